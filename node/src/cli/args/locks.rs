//! The arguments of `lock` and `kv`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Subcommand;

use super::duration;

/// Run a command while holding a lock, or look at locks
///
/// One holder at a time, first come first served. The command gets the fencing token of this acquisition as
/// CLAWHIVE_FENCE: what it writes with `kv put --fence` is refused once somebody else has had the lock. When the lock is
/// lost, the command is stopped (SIGTERM, then SIGKILL after the grace). The exit code is the command's, or 128 and the
/// signal that ended it; 4 when the lock was not free in time, 6 when it was lost. Without a command: who holds the lock.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive lock deploy -- ./deploy.sh\n  clawhive lock deploy --wait-timeout 30s -- sh -c 'clawhive kv put --fence $CLAWHIVE_FENCE version 7'\n  clawhive lock deploy        who holds it\n  clawhive lock               all locks that are held"
)]
pub(in crate::cli) struct LockArgs {
    /// The lock
    pub(in crate::cli) name: Option<String>,
    /// How long the lock outlives a holder that is gone
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub(in crate::cli) ttl: Duration,
    /// Wait no longer than this for the lock (exit code 4); 0s is not at all
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "command")]
    pub(in crate::cli) wait_timeout: Option<Duration>,
    /// Between SIGTERM and SIGKILL, when the lock is lost
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub(in crate::cli) grace: Duration,
    /// The namespace of the lock
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub(in crate::cli) namespace: String,
    /// Look at what the node asked has, also without a quorum; it may be behind
    #[arg(long, conflicts_with = "command")]
    pub(in crate::cli) stale: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "name")]
    pub(in crate::cli) command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum KvVerb {
    Get(KvGetArgs),
    Put(KvPutArgs),
    Delete(KvDeleteArgs),
    Ls(KvLsArgs),
}

/// Print the value of a key, byte by byte; exit code 5 when there is none
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clawhive kv get config/limit\n  clawhive kv get config/limit -o json")]
pub(in crate::cli) struct KvGetArgs {
    /// The key
    pub(in crate::cli) key: String,
    /// Its namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub(in crate::cli) namespace: String,
    /// What the node asked has, also without a quorum; it may be behind
    #[arg(long)]
    pub(in crate::cli) stale: bool,
}

/// Set a key; exit code 6 when a condition does not hold
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive kv put config/limit 10\n  clawhive kv put config/limit 12 --if-version 1\n  clawhive kv put report - < report.txt\n  clawhive kv put deployed v7 --fence $CLAWHIVE_FENCE --lock deploy"
)]
pub(in crate::cli) struct KvPutArgs {
    /// The key
    pub(in crate::cli) key: String,
    /// Its value; `-` is standard input
    #[arg(allow_hyphen_values = true)]
    pub(in crate::cli) value: OsString,
    #[command(flatten)]
    pub(in crate::cli) conditions: KvConditions,
}

/// Remove a key; exit code 6 when a condition does not hold
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive kv delete config/limit\n  clawhive kv delete config/limit --if-version 2"
)]
pub(in crate::cli) struct KvDeleteArgs {
    /// The key
    pub(in crate::cli) key: String,
    #[command(flatten)]
    pub(in crate::cli) conditions: KvConditions,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct KvConditions {
    /// Refused when a newer fencing token has written the key
    #[arg(long, value_name = "TOKEN", value_parser = clap::value_parser!(u64).range(1..))]
    pub(in crate::cli) fence: Option<u64>,
    /// With --fence: refused unless the token is the current one of this lock
    #[arg(long, value_name = "LOCK", requires = "fence")]
    pub(in crate::cli) lock: Option<String>,
    /// Only if the key was written so many times
    #[arg(long, value_name = "N", group = "compare")]
    pub(in crate::cli) if_version: Option<u64>,
    /// Only if the key has this value
    #[arg(long, value_name = "VALUE", group = "compare")]
    pub(in crate::cli) if_value: Option<String>,
    /// Only if there is no such key
    #[arg(long, group = "compare")]
    pub(in crate::cli) if_absent: bool,
    /// Its namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub(in crate::cli) namespace: String,
}

/// List keys in their order
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive kv ls\n  clawhive kv ls config/ --values\n  clawhive kv ls --limit 1000 -o json"
)]
pub(in crate::cli) struct KvLsArgs {
    /// Only keys that begin like this
    #[arg(default_value = "")]
    pub(in crate::cli) prefix: String,
    /// With their values
    #[arg(long)]
    pub(in crate::cli) values: bool,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(in crate::cli) limit: u32,
    /// Go on where an earlier answer ended
    #[arg(long, value_name = "CURSOR")]
    pub(in crate::cli) cursor: Option<String>,
    /// Their namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub(in crate::cli) namespace: String,
    /// What the node asked has, also without a quorum; it may be behind
    #[arg(long)]
    pub(in crate::cli) stale: bool,
}
