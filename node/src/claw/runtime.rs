//! The claw as a whole: started once per node, it lives through sessions. A session is one registered incarnation; when
//! its lease is lost, everything is killed and a new one begins.

use super::config::ClawConfig;
use super::deps::ClawDeps;
use super::executor::{self, Executor};
use super::logs::LogStore;
use super::session::{self, End};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Why a claw cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ClawError {
    /// Its directories cannot be used.
    #[error("cannot use the data directory {path} for tasks and logs: {source}")]
    DataDir {
        /// The data directory.
        path: String,
        /// What the file system said.
        source: std::io::Error,
    },
}

/// What a claw is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClawStatus {
    /// The registered incarnation; zeros before the first.
    pub incarnation: [u8; 16],
    /// Log index of its registration; `None` while there is none that holds.
    pub registered_at: Option<u64>,
    /// Attempts that are running or being started or ended.
    pub running: u32,
    /// It takes nothing new.
    pub draining: bool,
    /// It has ended.
    pub stopped: bool,
}

/// Starts claws.
pub struct Claw;

/// A started claw. Dropping it kills what runs, without a report; `drain` first to end well.
pub struct ClawHandle {
    logs: LogStore,
    drain: watch::Sender<Option<Instant>>,
    status: watch::Receiver<ClawStatus>,
    _supervisor: JoinSet<()>,
}

pub(super) struct Shared {
    pub(super) config: ClawConfig,
    pub(super) deps: Arc<dyn ClawDeps>,
    pub(super) executors: Vec<Arc<dyn Executor>>,
    pub(super) logs: LogStore,
    /// Set once: until when attempts may still run.
    pub(super) drain: watch::Receiver<Option<Instant>>,
    pub(super) status: watch::Sender<ClawStatus>,
}

impl Claw {
    /// Starts a claw on the current runtime. It first ends what an earlier process left, then registers, then runs what
    /// it is assigned.
    pub fn start(config: ClawConfig, deps: Arc<dyn ClawDeps>) -> Result<ClawHandle, ClawError> {
        let fault = |source| ClawError::DataDir { path: config.data_dir.display().to_string(), source };
        let clock = {
            let deps = deps.clone();
            Arc::new(move || deps.now_ms())
        };
        let logs =
            LogStore::bounded(config.data_dir.join("logs"), clock, config.space.clone()).map_err(fault)?;
        let executors = executor::registry(&config).map_err(fault)?;
        let (drain, drain_seen) = watch::channel(None);
        let (status, status_seen) = watch::channel(ClawStatus::default());
        let shared = Shared { config, deps, executors, logs: logs.clone(), drain: drain_seen, status };
        let mut supervisor = JoinSet::new();
        supervisor.spawn(supervise(Arc::new(shared)));
        Ok(ClawHandle { logs, drain, status: status_seen, _supervisor: supervisor })
    }
}

impl ClawHandle {
    /// The logs of this node's attempts.
    pub fn logs(&self) -> LogStore {
        self.logs.clone()
    }

    /// What the claw is doing, now and after each change.
    pub fn status(&self) -> watch::Receiver<ClawStatus> {
        self.status.clone()
    }

    /// Ends the claw: takes nothing new, lets attempts run on for so long, then stops them (TERM, at most the
    /// configured grace, KILL). Returns when no process is left. What was stopped is given back to the cluster as lost.
    pub async fn drain(&self, grace: Duration) {
        let until = Instant::now() + grace;
        self.drain.send_modify(|drain| *drain = Some(drain.map_or(until, |old| old.min(until))));
        // An error means that the supervisor is gone, and everything with it.
        let _ = self.status.clone().wait_for(|status| status.stopped).await;
    }
}

async fn supervise(shared: Arc<Shared>) {
    let executors = shared.executors.clone();
    let clean_up = move || executors.iter().try_for_each(|executor| executor.clean_up());
    match tokio::task::spawn_blocking(clean_up).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "cannot clean up after an earlier process"),
        Err(error) => tracing::error!(%error, "cleaning up after an earlier process broke off"),
    }
    while shared.drain.borrow().is_none() {
        // In a task of its own: should it panic, its attempts are killed and the next session takes over.
        let mut session = JoinSet::new();
        session.spawn(session::run(shared.clone()));
        let end = session.join_next().await;
        shared.status.send_modify(|status| {
            status.registered_at = None;
            status.running = 0;
        });
        match end {
            Some(Ok(End::Drained)) | None => break,
            Some(Ok(End::LeaseLost)) => {
                tracing::warn!("the lease is lost, all attempts were killed; registering again")
            }
            Some(Ok(End::Unknown)) => {
                tracing::warn!(
                    "the cluster does not know this claw, all attempts were killed; registering again"
                );
            }
            Some(Err(error)) => {
                tracing::error!(%error, "the claw's session broke off, its attempts were killed; registering again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    shared.status.send_modify(|status| {
        status.draining = true;
        status.stopped = true;
    });
}
