//! What a claw is started with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How much nicer than the node tasks are unless set: about a tenth of its weight each.
pub const TASK_NICE: u8 = 10;

/// Settings of one claw.
#[derive(Clone, Debug)]
pub struct ClawConfig {
    /// Node id; the claw has the same.
    pub node_id: u64,
    /// The node's data directory: `work/` and `logs/` are made inside.
    pub data_dir: PathBuf,
    /// Attempts at once.
    pub slots: u32,
    /// How long a confirmed beat holds.
    pub lease: Duration,
    /// For CLAWHIVE_SERVER.
    pub server_addr: String,
    /// Shown with the claw and, later, matched by placement.
    pub labels: BTreeMap<String, String>,
    /// Version of the binary.
    pub version: String,
    /// Named in start errors.
    pub host: String,
    /// PATH, HOME and LANG of tasks.
    pub base_env: BaseEnv,
    /// Longest grace that a stop of the whole claw gives to an attempt, whatever its task says.
    pub stop_grace: Duration,
    /// How much nicer than the node its tasks are, 0 to 19: under load the node comes first.
    pub task_nice: u8,
    /// A program that, started with [`GUARD_ARGUMENT`](super::GUARD_ARGUMENT) and a directory, calls
    /// [`guard`](super::guard): it ends the processes of this node should the node die without a word. Absent: they run
    /// on until this node starts again.
    pub guard: Option<PathBuf>,
}

impl ClawConfig {
    /// The defaults of product.md for this node.
    pub fn new(node_id: u64, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            node_id,
            data_dir: data_dir.into(),
            slots: default_slots(cores()),
            lease: Duration::from_secs(5),
            server_addr: String::new(),
            labels: BTreeMap::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host_name(),
            base_env: BaseEnv::of_process(),
            stop_grace: Duration::from_secs(5),
            task_nice: TASK_NICE,
            guard: None,
        }
    }

    /// Time between the claw's own end of a lease and the cluster's: enough to kill and reap.
    pub fn margin(&self) -> Duration {
        self.lease / 10
    }
}

/// The only three variables that a task gets from the server's environment.
#[derive(Clone, Debug)]
pub struct BaseEnv {
    /// PATH.
    pub path: String,
    /// HOME.
    pub home: String,
    /// LANG.
    pub lang: String,
}

impl BaseEnv {
    /// As this process has them, with a usual value for what is missing.
    pub fn of_process() -> Self {
        let get = |name: &str, default: &str| {
            std::env::var(name).ok().filter(|v| !v.is_empty()).unwrap_or_else(|| default.to_owned())
        };
        Self {
            path: get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            home: get("HOME", "/"),
            lang: get("LANG", "C.UTF-8"),
        }
    }
}

/// cores × 0.8 × (1 + 7/3), at least 1, at most 1000.
pub fn default_slots(cores: usize) -> u32 {
    // 0.8 × 10/3 = 8/3
    let slots = cores.saturating_mul(8) / 3;
    u32::try_from(slots.clamp(1, 1000)).unwrap_or(1000)
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// This machine's name, for messages.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_cores_within_bounds() {
        assert_eq!(default_slots(0), 1);
        assert_eq!(default_slots(1), 2);
        assert_eq!(default_slots(2), 5);
        assert_eq!(default_slots(8), 21);
        assert_eq!(default_slots(10_000), 1000);
        assert_eq!(default_slots(usize::MAX), 1000);
    }
}
