//! The settings of a server: one TOML file, environment variables, flags; the later beats the earlier.
//!
//! Owns: names, types and defaults of the settings, and telling exactly what is wrong with a given one. Must not: open
//! sockets or directories, or read the environment by itself (the caller hands it in).

mod parse;
mod settings;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use settings::{Begin, LogFormat, Role, Settings};

/// Before each setting's name (in capitals) in the environment.
pub const ENV_PREFIX: &str = "CLAWHIVE_";

/// Variables with our prefix that are no settings of a server: what clients read, and what a claw tells its tasks.
const OTHER_VARIABLES: [&str; 16] = [
    // For testing only: see env.rs.
    crate::env::TEST_CLOCK,
    "CLAWHIVE_SERVER",
    "CLAWHIVE_CONFIG",
    "CLAWHIVE_LOG",
    "CLAWHIVE_RUN",
    "CLAWHIVE_WORKFLOW",
    "CLAWHIVE_TASK",
    "CLAWHIVE_INDEX",
    "CLAWHIVE_ATTEMPT",
    "CLAWHIVE_FENCE",
    "CLAWHIVE_DEADLINE",
    "CLAWHIVE_NOMINAL_TIME",
    "CLAWHIVE_OUTPUT",
    "CLAWHIVE_TRACEPARENT",
    "CLAWHIVE_OUTPUT_FORMAT",
    "CLAWHIVE_NAMESPACE",
];

/// Settings as one source gives them: absent means "not said here".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Partial {
    /// `data`: the data directory.
    pub data: Option<PathBuf>,
    /// `listen`: address for clients.
    pub listen: Option<SocketAddr>,
    /// `peer_listen`: address for peers.
    pub peer_listen: Option<SocketAddr>,
    /// `advertise`: what clients are told instead of `listen`.
    pub advertise: Option<String>,
    /// `peer_advertise`: what peers are told instead of `peer_listen`.
    pub peer_advertise: Option<String>,
    /// `bootstrap`: make a new cluster of one when the data directory is empty.
    pub bootstrap: Option<bool>,
    /// `join`: peers to ask for admission when the data directory is empty.
    pub join: Option<Vec<String>>,
    /// `role`: voter or claw.
    pub role: Option<Role>,
    /// `labels` of the claw.
    pub labels: Option<BTreeMap<String, String>>,
    /// `slots` of the claw.
    pub slots: Option<u32>,
    /// `task_nice`: how much nicer than the node tasks are.
    pub task_nice: Option<u32>,
    /// `lease` of the claw.
    pub lease: Option<Duration>,
    /// `heartbeat` between leader and followers.
    pub heartbeat: Option<Duration>,
    /// `election_min`: shortest election timeout.
    pub election_min: Option<Duration>,
    /// `election_max`: longest election timeout.
    pub election_max: Option<Duration>,
    /// `cache`: bytes of the store's page cache.
    pub cache: Option<u64>,
    /// `log_format`: text or json.
    pub log_format: Option<LogFormat>,
    /// `log_level`: a filter such as `info` or `warn,clawhive_raft=debug`.
    pub log_level: Option<String>,
    /// `shutdown_grace`: how long a shutdown waits for running tasks.
    pub shutdown_grace: Option<Duration>,
    /// `snapshot_entries`: a snapshot each time the log grew by so many entries.
    pub snapshot_entries: Option<u64>,
    /// `snapshot_keep`: entries kept in the log behind a snapshot.
    pub snapshot_keep: Option<u64>,
    /// `digest_entries`: states are compared each time the log grew by so many entries.
    pub digest_entries: Option<u64>,
    /// `digest_interval`: states are compared this often while anything changes.
    pub digest_interval: Option<Duration>,
    /// `level`: the highest level that the node says it can do.
    pub level: Option<u32>,
    /// Not of a file: the program that guards the claw's processes.
    pub guard: Option<PathBuf>,
}

impl Partial {
    /// Reads the text of a settings file. All faults of the file in one pass; `path` is only for the messages.
    pub fn from_toml(path: &Path, text: &str) -> Result<Partial, ConfigError> {
        parse::file(path, text)
    }

    /// Reads the settings among the given environment variables. One with our prefix that nobody knows is a fault.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Partial, ConfigError> {
        parse::environment(variables)
    }

    /// These settings, and where they say nothing those of `below`.
    #[must_use]
    pub fn over(self, below: Partial) -> Partial {
        Partial {
            data: self.data.or(below.data),
            listen: self.listen.or(below.listen),
            peer_listen: self.peer_listen.or(below.peer_listen),
            advertise: self.advertise.or(below.advertise),
            peer_advertise: self.peer_advertise.or(below.peer_advertise),
            bootstrap: self.bootstrap.or(below.bootstrap),
            join: self.join.or(below.join),
            role: self.role.or(below.role),
            labels: self.labels.or(below.labels),
            slots: self.slots.or(below.slots),
            task_nice: self.task_nice.or(below.task_nice),
            lease: self.lease.or(below.lease),
            heartbeat: self.heartbeat.or(below.heartbeat),
            election_min: self.election_min.or(below.election_min),
            election_max: self.election_max.or(below.election_max),
            cache: self.cache.or(below.cache),
            log_format: self.log_format.or(below.log_format),
            log_level: self.log_level.or(below.log_level),
            shutdown_grace: self.shutdown_grace.or(below.shutdown_grace),
            snapshot_entries: self.snapshot_entries.or(below.snapshot_entries),
            snapshot_keep: self.snapshot_keep.or(below.snapshot_keep),
            digest_entries: self.digest_entries.or(below.digest_entries),
            digest_interval: self.digest_interval.or(below.digest_interval),
            level: self.level.or(below.level),
            guard: self.guard.or(below.guard),
        }
    }
}

/// One thing wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The setting, as it was written.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// The nearest name, or what would be right; may be empty.
    pub help: String,
    /// In a file, counted from 1; 0 elsewhere.
    pub line: usize,
    /// In a file, counted from 1; 0 elsewhere.
    pub column: usize,
}

/// Settings that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ConfigError {
    /// The file, "environment", or "settings".
    pub origin: String,
    /// Everything that is wrong.
    pub faults: Vec<Fault>,
}

impl ConfigError {
    fn one(origin: &str, key: &str, message: impl Into<String>, help: impl Into<String>) -> ConfigError {
        let fault =
            Fault { key: key.to_owned(), message: message.into(), help: help.into(), line: 0, column: 0 };
        ConfigError { origin: origin.to_owned(), faults: vec![fault] }
    }

    fn text(&self) -> String {
        let line = |fault: &Fault| {
            let place = match fault.line {
                0 => self.origin.clone(),
                line => format!("{}:{line}:{}", self.origin, fault.column),
            };
            let help = if fault.help.is_empty() { String::new() } else { format!(" ({})", fault.help) };
            format!("{place}: {}{help}", fault.message)
        };
        self.faults.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
