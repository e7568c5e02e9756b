//! Ends the leases of claws that no longer renew, and writes down what is left of those that are quiet.

use std::time::Duration;

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_statemachine::plan::leases::Leases;
use clawhive_statemachine::{Touched, level};

use super::{Leadership, Over, over, pace};

/// Renewals are frequent and only move the time away: they are looked at when the earlier time comes.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    // Counted anew by each leader, on its monotonic clock; what the one before knew is in the state.
    let mut leases = Leases::default();
    loop {
        feed.look();
        let view = ctx.replica.view();
        // Written down is what only the second level knows.
        let writes = level::current(&view) >= 2;
        leases.look(&view, millis(ctx.clock.monotonic()) + 1);
        drop(view);
        let now_ms = millis(ctx.clock.monotonic());
        let expired = leases.expired(now_ms);
        for claw in &expired {
            tracing::warn!(claw = claw.claw, "the lease of a claw has ended");
        }
        let left = leases.checkpoint(now_ms).filter(|_| writes).map(Kind::CheckpointLeases);
        let kinds = expired.into_iter().map(Kind::ExpireClaw).chain(left);
        let commands: Vec<Command> = kinds.map(|kind| Command { kind: Some(kind) }).collect();
        if !commands.is_empty() {
            match ctx.propose_leading(commands).await.map_err(over) {
                Ok(_) => {}
                Err(Err(over)) => return over,
                Err(Ok(error)) => {
                    tracing::warn!(%error, "what became of a lease is not answered");
                    pace::breathe().await;
                }
            }
            continue;
        }
        let next = if writes { leases.next_due_ms() } else { leases.next_end_ms() };
        tokio::select! {
            tick = feed.touched(Touched::CLAWS.with(Touched::ASSIGNMENTS)) => {
                if let Err(closed) = tick { return closed.into() }
                tokio::time::sleep(LEAST_PAUSE).await;
            }
            () = pace::until(now_ms, next) => {}
        }
    }
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}
