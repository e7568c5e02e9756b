//! What the claw asks of the node around it: its assignments, a way to report, a way to beat, a clock. The node fills
//! this over its own replica; tests fill it with a table in memory. The claw sees no table and no Raft.

use async_trait::async_trait;
use clawhive_proto::{Command, Outcome, Reason, RegisterClaw, Task};

/// One assignment of this claw as its own replica shows it. Small on purpose: the list is read after every change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The run.
    pub run: u64,
    /// Position of the task in its workflow.
    pub task: u32,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The fencing token: log index of the grant.
    pub fence: u64,
    /// Set when the attempt is to be ended (TERM, grace, KILL), with the reason to report.
    pub stop: Option<Reason>,
}

/// What an attempt needs to start; asked for once, when it starts.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// The task, templates resolved.
    pub task: Task,
    /// Namespace of the workflow.
    pub namespace: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Position in a fan-out.
    pub index: Option<u32>,
    /// Nominal time of the run (RFC 3339), when a schedule made it.
    pub nominal_time: Option<String>,
    /// W3C trace context of the run.
    pub traceparent: Option<String>,
    /// When the run's own timeout ends it, in milliseconds since the Unix epoch.
    pub run_deadline_ms: Option<u64>,
}

/// Why a proposal has no answer. It may have been applied; the claw sends the same content again.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no answer to the report: {0}")]
pub struct ReportError(pub String);

/// Why a beat has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("no answer to the beat: {0}")]
pub struct BeatError(pub String);

/// The leader's answer to a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeatReply {
    /// The renewal is committed, or nothing is leased.
    Confirmed,
    /// The cluster does not know this incarnation (any more).
    Unknown,
}

/// The node, as its claw sees it.
#[async_trait]
pub trait ClawDeps: Send + Sync + 'static {
    /// Wall clock in milliseconds since the Unix epoch; for the times in logs and CLAWHIVE_DEADLINE, never for leases.
    fn now_ms(&self) -> u64;

    /// 16 random bytes.
    fn new_incarnation(&self) -> [u8; 16];

    /// All assignments of this claw in the local replica, in any order. Must not block for long.
    fn assignments(&self) -> Vec<Assignment>;

    /// The task and names of an assignment; `Ok(None)` when the assignment is gone meanwhile. An error is a text for
    /// people and fails the attempt as START_ERROR.
    fn work(&self, assignment: &Assignment) -> Result<Option<Work>, String>;

    /// Returns when the local replica may show other assignments than at the last return. Must return at least once
    /// after it is first called. Cancel safe: a change during a dropped call is not lost.
    async fn changed(&self);

    /// Proposes these commands as one entry and waits for it: an outcome per command, in order. The claw repeats a
    /// failed call with the same commands as long as its lease holds.
    async fn report(&self, commands: Vec<Command>) -> Result<Vec<Outcome>, ReportError>;

    /// Proposes this registration and waits for it; answers with the log index of its entry. A rejection is an error.
    async fn register(&self, registration: RegisterClaw) -> Result<u64, ReportError>;

    /// One beat to the leader.
    async fn beat(&self, incarnation: [u8; 16]) -> Result<BeatReply, BeatError>;

    /// Reads what a task wrote to CLAWHIVE_OUTPUT against its declared outputs: the JSON object text, or what is wrong.
    fn check_outputs(&self, task: &Task, written: &[u8]) -> Result<String, String>;
}
