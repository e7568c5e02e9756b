//! What runs a task: the trait, and the registry that is fixed at compile time. An executor knows one attempt; it hears
//! nothing of leases, reports or tables. Limits of time are kept by the caller, through `stop`.

use super::config::ClawConfig;
use super::deps::Work;
use super::logs::{AttemptId, LogWriter};
use super::process::ProcessExecutor;
use async_trait::async_trait;
use clawhive_proto::task::Executor as Kind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One attempt to start.
pub struct Start {
    /// Which.
    pub id: AttemptId,
    /// Its fencing token.
    pub fence: u64,
    /// The task and its names.
    pub work: Arc<Work>,
    /// Wall time at which the attempt will be stopped, in milliseconds since the Unix epoch.
    pub deadline_ms: Option<u64>,
    /// Nothing may be started after this moment: the lease could be over.
    pub not_after: Instant,
    /// Where the output goes.
    pub(crate) log: LogWriter,
}

/// Why nothing was started. The text names path and host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It has ended, how is not known (an embedding process took its status).
    Unknown,
}

/// A started attempt. Dropping it ends it at once, with everything that it started.
#[async_trait]
pub trait Running: Send {
    /// Waits for the end of the attempt, takes its output meanwhile and carries out a `stop`. When it returns, nothing of
    /// the attempt's group is left. Cancel safe; called again after the end it answers the same.
    async fn wait(&mut self) -> Exit;

    /// Asks the attempt to end (TERM) and makes sure of it after the grace (KILL). A later call can only shorten the
    /// time. Does not wait.
    fn stop(&mut self, grace: Duration);

    /// After `wait`: closes the log and removes what the attempt left; with `want_output` gives what it wrote for
    /// CLAWHIVE_OUTPUT, or what is wrong with that.
    async fn finish(self: Box<Self>, want_output: bool) -> Result<Vec<u8>, String>;
}

/// Starts attempts of one kind.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Whether it is the one for this kind of task.
    fn runs(&self, kind: &Kind) -> bool;

    /// Ends what an earlier process of this node left behind. Blocking; called once, before anything is started.
    fn clean_up(&self) -> std::io::Result<()>;

    /// Whatever runs must be gone at this moment, unless a later one is told before: for a watcher that works also while
    /// this process stands still. The caller itself stops attempts earlier.
    fn keep_until(&self, _until: Instant) {}

    /// Starts an attempt.
    async fn start(&self, start: Start) -> Result<Box<dyn Running>, StartError>;
}

/// All executors of this binary.
pub(crate) fn registry(config: &ClawConfig) -> std::io::Result<Vec<Arc<dyn Executor>>> {
    Ok(vec![Arc::new(ProcessExecutor::new(config)?)])
}
