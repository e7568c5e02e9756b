//! What a replica takes from outside: network, clock, and the way to die. The simulator replaces each.

use std::sync::Arc;

use clawhive_proto::Proposal;

use crate::audit::DivergeHook;
use crate::disk::{Disk, RealDisk};
use crate::statefile::Backend;
use crate::transport::Transport;

/// Wall-clock time, for the one stamp of time in the system.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch. May jump; the replica never stamps backwards within one leadership.
    fn now_ms(&self) -> u64;
}

/// Called once with the reason when the replica can't go on: failed storage or a broken invariant.
pub type AbortHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Called by the leader with each proposal before it is appended; may put commands behind those that are there.
pub type PrepareHook = Arc<dyn Fn(Proposal) -> Proposal + Send + Sync>;

/// The outside of a replica.
#[derive(Clone)]
pub struct Seams {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) abort: AbortHook,
    pub(crate) diverge: DivergeHook,
    pub(crate) prepare: PrepareHook,
    /// Where the log lives.
    pub(crate) disk: Arc<dyn Disk>,
    /// Replaces redb's file; only tests of this crate do.
    pub(crate) state_backend: Option<Backend>,
}

impl Seams {
    /// The real disk, and an abort that ends the process, with the given network and clock.
    pub fn new(transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Seams {
        Seams {
            transport,
            clock,
            abort: Arc::new(abort_process),
            diverge: Arc::new(|out| abort_process(&out.divergence.to_string())),
            prepare: Arc::new(|proposal| proposal),
            disk: Arc::new(RealDisk),
            state_backend: None,
        }
    }

    /// Puts the log on another disk.
    #[must_use]
    pub fn with_disk(mut self, disk: Arc<dyn Disk>) -> Seams {
        self.disk = disk;
        self
    }

    /// Replaces what happens when the replica can't go on. After the hook was called the replica applies nothing more.
    #[must_use]
    pub fn with_abort(mut self, abort: AbortHook) -> Seams {
        self.abort = abort;
        self
    }

    /// Replaces what happens when the state of this replica is found to be wrong; without it the process ends. After the
    /// hook was called the replica applies and answers nothing more, and is to be rebuilt.
    #[must_use]
    pub fn with_diverge(mut self, diverge: DivergeHook) -> Seams {
        self.diverge = diverge;
        self
    }

    /// Lets the leader put commands of its own behind those of a proposal: what it would propose next anyway. The
    /// answer then has more outcomes than the proposer sent commands.
    #[must_use]
    pub fn with_prepare(mut self, prepare: PrepareHook) -> Seams {
        self.prepare = prepare;
        self
    }
}

/// A stopped node can be repaired, a diverged one cannot.
fn abort_process(reason: &str) {
    eprintln!("clawhive: fatal: {reason}");
    eprintln!("clawhive: this node stops, so that nothing wrong is stored or answered.");
    std::process::abort();
}
