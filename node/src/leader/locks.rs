//! Ends leases of locks that nobody renews, and writes down what is left of those that are late.

use std::time::Duration;

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_statemachine::Touched;
use clawhive_statemachine::plan::locks::LockWatch;

use super::{Leadership, Over, over, pace};

/// Renewals are frequent and only move the time away.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    let mut watch = LockWatch::default();
    loop {
        feed.look();
        let now_ms = u64::try_from(ctx.clock.monotonic().as_millis()).unwrap_or(u64::MAX);
        let plan = watch.plan(&ctx.replica.view(), now_ms);
        let expire = plan.expire.map(Kind::ExpireLocks);
        let checkpoint = plan.checkpoint.map(Kind::CheckpointLocks);
        let commands: Vec<Command> =
            expire.into_iter().chain(checkpoint).map(|kind| Command { kind: Some(kind) }).collect();
        if !commands.is_empty() {
            match ctx.propose_leading(commands).await.map_err(over) {
                Ok(_) => {}
                Err(Err(over)) => return over,
                Err(Ok(error)) => {
                    tracing::warn!(%error, "the end of a lock's lease is not answered");
                    pace::breathe().await;
                }
            }
            continue;
        }
        tokio::select! {
            tick = feed.touched(Touched::LOCKS) => {
                if let Err(closed) = tick { return closed.into() }
                tokio::time::sleep(LEAST_PAUSE).await;
            }
            () = pace::until(now_ms, plan.next_due_ms) => {}
        }
    }
}
