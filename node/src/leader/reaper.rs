//! Ends the leases of claws that no longer renew.

use std::time::Duration;

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_statemachine::Touched;
use clawhive_statemachine::plan::expire;

use super::{Leadership, Over, over, pace};

/// Renewals are frequent and only move the time away: they are looked at when the earlier time comes.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    loop {
        feed.look();
        let now_ms = ctx.clock.now_ms();
        let view = ctx.replica.view();
        let expired = expire::plan(&view, now_ms, leadership.since_ms);
        if !expired.is_empty() {
            for claw in &expired {
                tracing::warn!(claw = claw.claw, "the lease of a claw has ended");
            }
            let commands =
                expired.into_iter().map(|claw| Command { kind: Some(Kind::ExpireClaw(claw)) }).collect();
            if let Err(error) = ctx.propose_leading(commands).await.map_err(over) {
                match error {
                    Err(over) => return over,
                    Ok(error) => tracing::warn!(%error, "an expiry is not answered"),
                }
            }
            pace::breathe().await;
            continue;
        }
        let next = expire::next_due_ms(&view, leadership.since_ms);
        drop(view);
        tokio::select! {
            tick = feed.touched(Touched::CLAWS.with(Touched::ASSIGNMENTS)) => {
                if let Err(closed) = tick { return closed.into() }
                tokio::time::sleep(LEAST_PAUSE).await;
            }
            () = pace::until(now_ms, next) => {}
        }
    }
}
