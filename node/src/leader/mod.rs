//! What only the leader does: loops that read a view, decide with a pure plan, and propose.
//!
//! Owns: starting the loops when this node leads and stopping them when it does not, the claws' beats, the extra grants
//! of a completion. Must not: keep a decision in memory (a new leader starts from the state alone), or know how a claw
//! runs what it is given. A stale plan is harmless: `apply` checks every precondition again.

mod backlog;
mod beats;
mod collector;
mod digests;
pub(crate) mod handover;
mod level;
mod locks;
mod members;
mod pace;
mod reaper;
mod resolve;
mod scheduler;
mod timers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clawhive_raft::ProposeError;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::context::Context;
pub(crate) use beats::Beats;
pub(crate) use digests::Pace;

/// Whether the loops of a leader run. Part of readiness: a leader without a scheduler is not one.
#[derive(Debug, Default)]
pub(crate) struct Health(AtomicBool);

impl Health {
    /// True while this node leads and every loop of it runs.
    pub(crate) fn loops_run(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One term of this node as the leader, as its loops see it.
#[derive(Clone)]
pub(crate) struct Leadership {
    ctx: Arc<Context>,
}

/// Why a loop ended: this node leads no more, or stops.
#[derive(Debug)]
pub(crate) struct Over(String);

impl Over {
    /// For a loop that has nothing left to do: it ends when the others do.
    async fn never() -> Over {
        std::future::pending().await
    }
}

impl From<clawhive_raft::FeedClosed> for Over {
    fn from(closed: clawhive_raft::FeedClosed) -> Over {
        Over(closed.to_string())
    }
}

/// A proposal of a loop that was not answered: over, or worth another look after a pause.
fn over(error: ProposeError) -> Result<ProposeError, Over> {
    match error {
        ProposeError::NotLeader { .. } | ProposeError::NoCluster | ProposeError::Shutdown { .. } => {
            Err(Over(error.to_string()))
        }
        ProposeError::NoQuorum { .. }
        | ProposeError::Timeout { .. }
        | ProposeError::LeaderLost
        | ProposeError::NotYet(_)
        | ProposeError::TooLarge { .. } => Ok(error),
    }
}

/// Runs the loops whenever this node leads. Returns when the replica stops.
pub(crate) async fn run(ctx: Arc<Context>) {
    let mut status: watch::Receiver<clawhive_raft::Status> = ctx.replica.status();
    loop {
        let Ok(began) = status.wait_for(|status| status.is_leader).await.map(|status| status.term) else {
            return;
        };
        tracing::info!(node = ctx.me.node, term = began, "leads");
        let leadership = Leadership { ctx: ctx.clone() };
        ctx.beats.forget();
        let mut loops = JoinSet::new();
        loops.spawn(scheduler::run(leadership.clone()));
        loops.spawn(timers::run(leadership.clone()));
        loops.spawn(reaper::run(leadership.clone()));
        loops.spawn(collector::run(leadership.clone()));
        loops.spawn(backlog::run(leadership.clone()));
        loops.spawn(members::run(leadership.clone()));
        loops.spawn(digests::run(leadership.clone()));
        loops.spawn(level::run(leadership.clone()));
        loops.spawn(locks::run(leadership.clone()));
        loops.spawn(beats::run(leadership));
        ctx.health.0.store(true, Ordering::Relaxed);
        tokio::select! {
            ended = status.wait_for(|status| !status.is_leader || status.term != began) => {
                tracing::info!(node = ctx.me.node, term = began, stopping = ended.is_err(), "leads no more");
            }
            Some(ended) = loops.join_next() => {
                match ended {
                    Ok(Over(reason)) => tracing::info!(node = ctx.me.node, reason, "a leader loop ended"),
                    Err(error) => tracing::error!(node = ctx.me.node, %error, "a leader loop failed"),
                }
            }
        }
        ctx.health.0.store(false, Ordering::Relaxed);
        loops.shutdown().await;
        ctx.beats.forget();
        pace::breathe().await;
    }
}
