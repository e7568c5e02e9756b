//! The log of this process, on standard error. The only place that installs a subscriber.

use std::io::IsTerminal;

use clawhive_node::config::LogFormat;
use tracing_subscriber::EnvFilter;

use super::failure::Failure;

/// The filter of processes that are no servers, and of servers instead of their setting.
const VARIABLE: &str = "CLAWHIVE_LOG";

/// For a server: as its settings say.
pub(super) fn server(format: LogFormat, level: &str) -> Result<(), Failure> {
    let level = std::env::var(VARIABLE).unwrap_or_else(|_| level.to_owned());
    install(format, &level)
}

/// Whether a setting is a filter.
pub(super) fn check(level: &str) -> Result<(), Failure> {
    filter(level).map(drop)
}

fn filter(level: &str) -> Result<EnvFilter, Failure> {
    EnvFilter::try_new(level)
        .map_err(|error| Failure::usage(format!("the log level {level:?} cannot be read: {error}")))
}

/// For a verb with a node inside: silent, unless asked, because what matters is told by the verb.
pub(super) fn verb() -> Result<(), Failure> {
    match std::env::var(VARIABLE) {
        Ok(level) => install(LogFormat::Text, &level),
        Err(_) => Ok(()),
    }
}

fn install(format: LogFormat, level: &str) -> Result<(), Failure> {
    let filter = filter(level)?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .with_target(true);
    // A second subscriber in one process would be a fault of ours that changes nothing.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    Ok(())
}
