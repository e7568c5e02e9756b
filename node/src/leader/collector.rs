//! Drops what has outlived its time: request ids, idempotency keys, finished runs.

use std::time::Duration;

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_statemachine::Touched;
use clawhive_statemachine::plan::collect;

use super::{Leadership, Over, over, pace};

/// Nobody waits for a row to go: one entry for many rows instead of one for each.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    loop {
        feed.look();
        let now_ms = ctx.clock.now_ms();
        let plan = collect::plan(&ctx.replica.view(), now_ms);
        if let Some(command) = plan.command
            && let Err(error) =
                ctx.propose_leading(vec![Command { kind: Some(Kind::Collect(command)) }]).await.map_err(over)
        {
            match error {
                Err(over) => return over,
                Ok(error) => tracing::warn!(%error, "a collection is not answered"),
            }
        }
        tokio::time::sleep(LEAST_PAUSE).await;
        if plan.command.is_some() {
            continue;
        }
        tokio::select! {
            tick = feed.touched(Touched::EXPIRY) => if let Err(closed) = tick { return closed.into() },
            () = pace::until(now_ms, plan.next_due_ms) => {}
        }
    }
}
