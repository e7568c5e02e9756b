//! Settings with every default filled in, checked against each other.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clawhive_statemachine::level::LEVEL;

use super::{ConfigError, Partial};
use crate::claw::TASK_NICE;

/// What is logged unless said otherwise: our own news, and of libraries only what has failed.
const OUR_LOGS: &str = "error,clawhive=info,clawhive_node=info,clawhive_raft=info";

/// More slots than this help nobody.
const MAX_SLOTS: u32 = 1_000;

/// What a node is to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Takes part in elections and majorities once it has caught up.
    #[default]
    Voter,
    /// Only keeps a replica and runs tasks.
    Claw,
}

impl Role {
    /// From the word in a setting.
    pub fn parse(text: &str) -> Result<Role, String> {
        match text {
            "voter" => Ok(Role::Voter),
            "claw" => Ok(Role::Claw),
            other => Err(format!("must be \"voter\" or \"claw\", not `{other}`")),
        }
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}

impl LogFormat {
    /// From the word in a setting.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            other => Err(format!("must be \"text\" or \"json\", not `{other}`")),
        }
    }
}

/// What to do with the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// Go on with what is in it; refused when it is empty.
    #[default]
    Restart,
    /// Make a new cluster of one; refused when it is not empty.
    Bootstrap,
    /// Make a new cluster of one when it is empty, else go on with what is in it.
    BootstrapIfEmpty,
    /// Ask one of these peers for admission when it is empty, else go on with what is in it.
    Join(Vec<String>),
}

/// Everything a node needs to know before it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The data directory.
    pub data: PathBuf,
    /// Address for clients.
    pub listen: SocketAddr,
    /// Address for peers.
    pub peer_listen: SocketAddr,
    /// What clients are told instead of `listen`.
    pub advertise: Option<String>,
    /// What peers are told instead of `peer_listen`.
    pub peer_advertise: Option<String>,
    /// What to do with the data directory.
    pub begin: Begin,
    /// Voter or claw.
    pub role: Role,
    /// Labels of the claw.
    pub labels: BTreeMap<String, String>,
    /// Slots of the claw.
    pub slots: u32,
    /// How much nicer than the node its tasks are.
    pub task_nice: u8,
    /// Lease of the claw.
    pub lease: Duration,
    /// Between leader and followers.
    pub heartbeat: Duration,
    /// Shortest election timeout.
    pub election_min: Duration,
    /// Longest election timeout.
    pub election_max: Duration,
    /// Bytes of the store's page cache.
    pub cache: u64,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Which log lines are written.
    pub log_level: String,
    /// How long a shutdown waits for running tasks.
    pub shutdown_grace: Duration,
    /// A snapshot each time the log grew by so many entries.
    pub snapshot_entries: u64,
    /// Entries kept in the log behind a snapshot.
    pub snapshot_keep: u64,
    /// States are compared each time the log grew by so many entries.
    pub digest_entries: u64,
    /// States are compared this often while anything changes.
    pub digest_interval: Duration,
    /// The program that guards the claw's processes.
    pub guard: Option<PathBuf>,
    /// The highest level that this node says it can do: see [`clawhive_statemachine::level`]. Below that of the version,
    /// it keeps the way back to an older version open.
    pub level: u32,
}

impl Settings {
    /// Fills in the defaults and checks what only shows when all is known.
    pub fn complete(partial: Partial) -> Result<Settings, ConfigError> {
        let fault = |key: &str, message: &str, help: &str| {
            Err(ConfigError::one("settings", key, format!("`{key}` {message}"), help))
        };
        let Some(data) = partial.data else { return fault("data", "is missing", "--data DIR") };
        let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        let begin = match (partial.bootstrap.unwrap_or(false), partial.join) {
            (true, Some(_)) => return fault("join", "and `bootstrap` exclude each other", ""),
            (true, None) => Begin::BootstrapIfEmpty,
            (false, Some(peers)) if peers.is_empty() => return fault("join", "names no peer", ""),
            (false, Some(peers)) => Begin::Join(peers),
            (false, None) => Begin::Restart,
        };
        let settings = Settings {
            data,
            listen: partial.listen.unwrap_or(local(7400)),
            peer_listen: partial.peer_listen.unwrap_or(local(7401)),
            advertise: partial.advertise,
            peer_advertise: partial.peer_advertise,
            begin,
            role: partial.role.unwrap_or_default(),
            labels: partial.labels.unwrap_or_default(),
            slots: partial.slots.unwrap_or_else(default_slots),
            task_nice: u8::try_from(partial.task_nice.unwrap_or(u32::from(TASK_NICE))).unwrap_or(u8::MAX),
            lease: partial.lease.unwrap_or(Duration::from_secs(5)),
            heartbeat: partial.heartbeat.unwrap_or(Duration::from_millis(50)),
            election_min: partial.election_min.unwrap_or(Duration::from_millis(150)),
            election_max: partial.election_max.unwrap_or(Duration::from_millis(300)),
            cache: partial.cache.unwrap_or(64 << 20),
            log_format: partial.log_format.unwrap_or_default(),
            log_level: partial.log_level.unwrap_or_else(|| OUR_LOGS.to_owned()),
            shutdown_grace: partial.shutdown_grace.unwrap_or(Duration::from_secs(30)),
            snapshot_entries: partial.snapshot_entries.unwrap_or(200_000),
            snapshot_keep: partial.snapshot_keep.unwrap_or(50_000),
            digest_entries: partial.digest_entries.unwrap_or(10_000),
            digest_interval: partial.digest_interval.unwrap_or(Duration::from_secs(60)),
            guard: partial.guard,
            level: partial.level.unwrap_or(LEVEL),
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let fault = |key: &str, message: String| {
            Err(ConfigError::one("settings", key, format!("`{key}` {message}"), ""))
        };
        if !(1..=LEVEL).contains(&self.level) {
            return fault("level", format!("is {}; this version knows levels 1 to {LEVEL}", self.level));
        }
        if self.slots > MAX_SLOTS {
            return fault("slots", format!("is {}; at most {MAX_SLOTS} are allowed", self.slots));
        }
        if self.task_nice > 19 {
            return fault("task_nice", "is more than 19, which is as nice as a process can be".to_owned());
        }
        if self.lease < Duration::from_millis(500) {
            return fault("lease", format!("is {:?}; at least 500ms are needed", self.lease));
        }
        if self.heartbeat.is_zero() || self.election_min <= self.heartbeat * 2 {
            return fault(
                "election_min",
                format!("must be more than twice `heartbeat` ({:?})", self.heartbeat),
            );
        }
        if self.election_max <= self.election_min {
            return fault("election_max", format!("must be above `election_min` ({:?})", self.election_min));
        }
        if self.snapshot_entries == 0 || self.digest_entries == 0 {
            let key = if self.digest_entries == 0 { "digest_entries" } else { "snapshot_entries" };
            return fault(key, "must not be 0".to_owned());
        }
        if self.digest_interval < Duration::from_millis(100) {
            return fault(
                "digest_interval",
                format!("is {:?}; at least 100ms are needed", self.digest_interval),
            );
        }
        let unspecified =
            |address: &SocketAddr, told: &Option<String>| address.ip().is_unspecified() && told.is_none();
        if unspecified(&self.peer_listen, &self.peer_advertise) {
            let told = "listens everywhere: say what address peers shall use with `peer_advertise`";
            return fault("peer_listen", told.to_owned());
        }
        if unspecified(&self.listen, &self.advertise) {
            let told = "listens everywhere: say what address clients shall use with `advertise`";
            return fault("listen", told.to_owned());
        }
        Ok(())
    }
}

/// cores × 0.8 × (1 + wait / compute) with wait / compute = 7/3, at least one.
fn default_slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let slots = cores.saturating_mul(8).saturating_mul(10) / 30;
    u32::try_from(slots).unwrap_or(MAX_SLOTS).clamp(1, MAX_SLOTS)
}
