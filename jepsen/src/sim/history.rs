//! What the oracles see of a simulation: facts, in the order of the log. Owns the vocabulary between the simulated
//! world and the laws in [`super::invariants`]; must not call the state machine, so that the oracles stay independent.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clawhive_proto::{AttemptRow, AttemptState, ClawRow, RunRow, RunState, TaskRow, TaskState};

use super::graphs::Graph;

/// The place of a task: (run, position).
pub type Place = (u64, u32);

/// Something that the world saw happen.
pub enum Fact<'a> {
    /// A run row appeared at this log index.
    RunCreated {
        /// Its id.
        run: u64,
        /// What the submitted workflow looks like, from the client's hands and not from the store.
        graph: Rc<Graph>,
        /// Namespace and idempotency key, when it has one.
        key: Option<(String, String)>,
        /// Log time.
        time_ms: u64,
    },
    /// A run row changed.
    Run {
        /// Its id.
        run: u64,
        /// Of the change.
        index: u64,
        /// The row before; none at its creation.
        before: Option<&'a RunRow>,
        /// The row after.
        after: &'a RunRow,
    },
    /// A run row went away.
    RunGone {
        /// Its id.
        run: u64,
    },
    /// A task row changed.
    Task {
        /// Which.
        place: Place,
        /// The row before; none at its creation.
        before: Option<&'a TaskRow>,
        /// The row after.
        after: &'a TaskRow,
    },
    /// An attempt row changed.
    Attempt {
        /// Of which task.
        place: Place,
        /// Its number.
        attempt: u32,
        /// Of the change.
        index: u64,
        /// The row before; none at its creation.
        before: Option<&'a AttemptRow>,
        /// The row after.
        after: &'a AttemptRow,
    },
    /// A claw row changed.
    Claw {
        /// Its node id.
        claw: u64,
        /// The row after.
        after: &'a ClawRow,
    },
    /// The state machine said yes to a completion or failure report.
    Accepted {
        /// Of which task.
        place: Place,
        /// The attempt that the report names.
        attempt: u32,
        /// The token that the report carries.
        fence: u64,
        /// True for a completion.
        success: bool,
    },
    /// An entry is applied; all row changes of it came before.
    Entry {
        /// Log index.
        index: u64,
        /// Log time after the entry.
        time_ms: u64,
        /// The caller's request id; empty for internal entries.
        request: &'a [u8],
        /// A hash of the encoded outcomes.
        outcomes: u64,
        /// Rows changed other than Meta.
        changed: usize,
        /// Virtual time.
        at_ms: u64,
    },
    /// A client got the answer to a submit: this run is acknowledged.
    Acknowledged {
        /// The run in the answer.
        run: u64,
        /// The log index in the answer.
        index: u64,
        /// Namespace and idempotency key, when the submit had one.
        key: Option<(String, String)>,
        /// Hash of what was submitted.
        body: Vec<u8>,
    },
    /// A replica applied an index.
    Applied {
        /// Its number; the reference is number 0.
        replica: usize,
        /// The index.
        index: u64,
        /// Its dump, hashed.
        digest: u64,
    },
    /// All runs that a replica holds.
    Runs {
        /// Its number.
        replica: usize,
        /// Its applied index.
        applied: u64,
        /// The ids of its runs with their states.
        runs: &'a BTreeMap<u64, RunState>,
    },
    /// A claw was told that its lease is renewed.
    LeaseTold {
        /// Its node id.
        claw: u64,
        /// Of which process.
        incarnation: &'a [u8],
        /// Virtual time.
        until_ms: u64,
    },
    /// A claw really started the process of an attempt.
    Began {
        /// Of which task.
        place: Place,
        /// The token of the assignment.
        fence: u64,
        /// Virtual time.
        at_ms: u64,
    },
    /// The process of an attempt is gone, whatever the reason.
    Gone {
        /// Of which task.
        place: Place,
        /// The token of the assignment.
        fence: u64,
    },
    /// The world came to rest: everything that can finish has finished.
    Rest {
        /// Every run of the reference replica with its state.
        runs: &'a BTreeMap<u64, RunState>,
    },
}

/// True for a state that a task never leaves.
pub fn task_ended(state: TaskState) -> bool {
    use TaskState::*;
    matches!(state, Succeeded | Failed | Cancelled | Skipped | UpstreamFailed | Quarantined)
}

/// True for a state that a run never leaves.
pub fn run_ended(state: RunState) -> bool {
    matches!(state, RunState::Succeeded | RunState::Failed | RunState::Cancelled)
}

/// True while an attempt holds a lease.
pub fn attempt_live(state: AttemptState) -> bool {
    matches!(state, AttemptState::Dispatched | AttemptState::Running)
}

/// What became of the tasks of a run, kept by oracles that need all of them.
#[derive(Default)]
pub struct RunTasks {
    /// The graph as the client made it.
    pub graph: Option<Rc<Graph>>,
    /// State of each task, by position.
    pub states: BTreeMap<u32, TaskState>,
    /// Positions changed by the entry being looked at.
    pub changed: BTreeSet<u32>,
}

impl RunTasks {
    /// The state of a task; pending before its row is seen.
    pub fn state(&self, task: u32) -> TaskState {
        self.states.get(&task).copied().unwrap_or(TaskState::Pending)
    }

    /// The upstreams of a task.
    pub fn needs(&self, task: u32) -> &[u32] {
        self.graph.as_ref().and_then(|graph| graph.needs.get(task as usize)).map_or(&[], Vec::as_slice)
    }
}
