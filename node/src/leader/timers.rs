//! Fires timers when they are due.

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_statemachine::plan::fire;
use clawhive_statemachine::{Touched, read};

use super::{Leadership, Over, over, pace};

/// Timers in one entry.
const BATCH: usize = 1_000;

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    loop {
        feed.look();
        let view = ctx.replica.view();
        // An earlier leader's clock may have been ahead: the log's time does not stand still for that.
        ctx.clock.not_before(read::meta(&view).last_time_ms);
        let now_ms = ctx.clock.now_ms();
        let plan = fire::plan(&view, now_ms, BATCH);
        drop(view);
        if let Some(command) = plan.command {
            match ctx
                .propose_leading(vec![Command { kind: Some(Kind::FireTimers(command)) }])
                .await
                .map_err(over)
            {
                Ok(_) => continue,
                Err(Err(over)) => return over,
                Err(Ok(error)) => {
                    tracing::warn!(%error, "firing timers is not answered");
                    pace::breathe().await;
                    continue;
                }
            }
        }
        tokio::select! {
            tick = feed.touched(Touched::TIMERS) => if let Err(closed) = tick { return closed.into() },
            () = pace::until(now_ms, plan.next_due_ms) => {}
        }
    }
}
