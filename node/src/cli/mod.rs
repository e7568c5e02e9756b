//! The command line: arguments in, a call of the client or a running node, words or a document out.
//!
//! Owns: verbs, exit codes, output formats, the choice of the server, the log subscriber. Must not: decide anything about
//! workflows (it asks a node like everyone else), or print a debug form of anything.

mod args;
mod bench;
mod claim;
mod embedded;
mod failure;
mod ids;
mod output;
mod session;
mod signals;
mod trace;
mod verbs;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use args::{Args, Verb};
use failure::{Exit, Failure};
use output::{Format, Output};
pub(crate) use verbs::lock::{WATCHDOG_ARGUMENT, watchdog};

/// This program, also when its file was replaced meanwhile: `main` lets it be a guard.
const GUARD: &str = "/proc/self/exe";

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let args = match parse() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let output = Output::of_process(args.global.output);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let failure = Failure::unexpected(format!("cannot start: {error}"));
            return ExitCode::from(failure.tell(&output));
        }
    };
    let told = runtime.block_on(dispatch(&args, &output));
    // Whatever is still running has nothing left to say.
    runtime.shutdown_background();
    match told {
        Ok(code) => ExitCode::from(code),
        Err(failure) => ExitCode::from(failure.tell(&output)),
    }
}

async fn dispatch(args: &Args, output: &Output) -> Result<u8, Failure> {
    let global = &args.global;
    let told = match &args.verb {
        // Its exit code is that of the command it runs.
        Verb::Lock(verb) => return verbs::lock::run(verb, global, output).await,
        Verb::Kv { verb } => verbs::kv::run(verb, global, output).await,
        Verb::Run(verb) => verbs::run::run(verb, global, output).await,
        Verb::Dev(verb) => verbs::dev::run(verb, output).await,
        Verb::Server(verb) => verbs::server::run(verb).await,
        Verb::Validate(verb) => verbs::validate::run(verb, output).await,
        Verb::Submit(verb) => verbs::submit::run(verb, global, output).await,
        Verb::Wait(verb) => verbs::wait::run(verb, global, output).await,
        Verb::Ls(verb) => verbs::ls::run(verb, global, output).await,
        Verb::Show(verb) => verbs::show::run(verb, global, output).await,
        Verb::Logs(verb) => verbs::logs::run(verb, global, output).await,
        Verb::Events(verb) => verbs::events::run(verb, global, output).await,
        Verb::Cancel(verb) => verbs::cancel::run(verb, global, output).await,
        Verb::Node { verb: args::NodeVerb::Ls(verb) } => verbs::nodes::run(verb, global, output).await,
        Verb::Cluster { verb: args::ClusterVerb::Status } => verbs::cluster::run(global, output).await,
        Verb::Cluster { verb: args::ClusterVerb::Digest } => verbs::digest::run(global, output).await,
        Verb::Cluster { verb: args::ClusterVerb::Resume } => verbs::cluster::resume(global, output).await,
        Verb::Snapshot { verb: args::SnapshotVerb::Save(verb) } => {
            verbs::snapshot::save(verb, global, output).await
        }
        Verb::Snapshot { verb: args::SnapshotVerb::Inspect(verb) } => {
            verbs::snapshot::inspect(&verb.file, output)
        }
        Verb::Snapshot { verb: args::SnapshotVerb::Restore(verb) } => verbs::snapshot::restore(verb, output),
        Verb::Import { verb: args::ImportVerb::Wfcommons(verb) } => verbs::import::run(verb, output).await,
        Verb::Bench(verb) => verbs::bench::run(verb, global, output).await,
        Verb::Completions(verb) => verbs::completions::run(verb),
    };
    told.map(|exit| exit as u8)
}

/// Reads the arguments; help, versions and usage errors are told here.
fn parse() -> Result<Args, ExitCode> {
    let parsed = Args::command().try_get_matches().and_then(|matches| Args::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        let asked = asked_format(std::env::args());
        if !help && asked != Format::Table {
            let text = error.render().to_string();
            // The first paragraph says what is wrong; usage and tips are for people.
            let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
            let message = lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned();
            return ExitCode::from(Failure::usage(message).tell(&Output::of_process(asked)));
        }
        // Nowhere to say that nothing can be said.
        let _ = error.print();
        ExitCode::from(if help { Exit::Done } else { Exit::Usage } as u8)
    })
}

/// The output format that arguments ask for which could not be read as a whole.
fn asked_format(mut args: impl Iterator<Item = String>) -> Format {
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "-o" | "--output" => args.next().unwrap_or_default(),
            other => match other.strip_prefix("--output=").or_else(|| other.strip_prefix("-o")) {
                Some(value) => value.trim_start_matches('=').to_owned(),
                None => continue,
            },
        };
        match value.as_str() {
            "json" => return Format::Json,
            "yaml" => return Format::Yaml,
            _ => {}
        }
    }
    Format::Table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_found_in_arguments_that_are_wrong() {
        let of = |line: &str| asked_format(line.split(' ').map(str::to_owned));
        assert_eq!(of("clawhive ls --stat x -o json"), Format::Json);
        assert_eq!(of("clawhive ls -ojson"), Format::Json);
        assert_eq!(of("clawhive --output=yaml lss"), Format::Yaml);
        assert_eq!(of("clawhive ls"), Format::Table);
        assert_eq!(of("clawhive ls -o"), Format::Table);
    }

    #[test]
    fn the_arguments_are_a_valid_clap_command() {
        Args::command().debug_assert();
    }
}
