//! Watching the disk under a node, and what follows: a leader hands over, a claw takes nothing new, and a node whose
//! directory is gone stops.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::claw_deps::NodeClaw;
use super::handover::{self, Handed};
use crate::context::Context;
use crate::storage::{Measure, Space, Trouble, size};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Between two tries to hand over.
const RETRY: Duration = Duration::from_secs(1);

/// A write may take this many election timeouts, and this long at least, before the disk counts as hanging: the others
/// would lead by then if the network had failed instead.
const HANGS_AFTER: (u32, Duration) = (4, Duration::from_secs(1));

/// A look at the volume that is under way. One at a time: on a disk that hangs it hangs too.
struct Look {
    since: Instant,
    done: JoinHandle<io::Result<(bool, Measure)>>,
}

impl Look {
    fn begin(space: Arc<Space>) -> Look {
        let look = move || Ok((space.is_there()?, space.measure()?));
        Look { since: Instant::now(), done: tokio::task::spawn_blocking(look) }
    }
}

/// Runs as long as the node does.
pub(super) async fn watch(ctx: Arc<Context>, claw: Arc<NodeClaw>, election_max: Duration) {
    let patience = (election_max * HANGS_AFTER.0).max(HANGS_AFTER.1);
    let space = ctx.storage.space().clone();
    let mut look = Look::begin(space.clone());
    let mut measured = None;
    let mut tried: Option<Instant> = None;
    loop {
        sleep(LOOK).await;
        if look.done.is_finished() {
            let finished = std::mem::replace(&mut look, Look::begin(space.clone()));
            match finished.done.await {
                Ok(Ok((true, measure))) => measured = Some(measure),
                Ok(Ok((false, _))) => return gone(&ctx),
                Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return gone(&ctx),
                Ok(Err(error)) => tracing::warn!(%error, "cannot look at the data directory"),
                Err(error) => tracing::error!(%error, "looking at the data directory broke off"),
            }
        }
        let now = judge(&ctx, measured, look.since.elapsed(), patience);
        if ctx.storage.set_trouble(now) {
            match now {
                Some(trouble) => tracing::error!(node = ctx.me.node, "{trouble}: no new work for this node"),
                None => tracing::info!(node = ctx.me.node, "the disk is well again"),
            }
            // The leader hears of it at once, not with the next regular beat. On the side: it may be us.
            let claw = claw.clone();
            tokio::spawn(async move { claw.extra_beat().await });
        }
        if now.is_none() || !ctx.status().is_leader {
            ctx.storage.set_refuses(false);
            continue;
        }
        if tried.is_none_or(|at| at.elapsed() >= RETRY) {
            tried = Some(Instant::now());
            let handed = handover::to_best(&ctx, false).await;
            let alone = matches!(handed, Handed::Nobody);
            ctx.storage.set_refuses(alone && matches!(now, Some(Trouble::NoSpace(_))));
        }
    }
}

/// What is stored from now on would not be there after the next start.
fn gone(ctx: &Context) {
    let dir = ctx.storage.space().dir().display();
    ctx.replica.fail(&format!(
        "the data directory {dir} is gone, or is not the one that this node was started with"
    ));
}

fn judge(
    ctx: &Context,
    measured: Option<Measure>,
    looks_for: Duration,
    patience: Duration,
) -> Option<Trouble> {
    let health = ctx.replica.disk_health();
    let before = ctx.storage.trouble();
    if let Some(measure) = measured {
        // A little more than needed before it counts as enough again: else every second changes its mind.
        let short_before = matches!(before, Some(Trouble::NoSpace(_)));
        let enough = if short_before { measure.needed + measure.needed / 4 } else { measure.needed };
        if health.lacks_room || measure.free < enough {
            return Some(Trouble::NoSpace(measure));
        }
    }
    let busy = health.busy_for.unwrap_or_default().max(looks_for);
    (busy >= patience).then_some(Trouble::Hangs(busy))
}

/// Room that a start needs: less than what is kept free, since a node that is short of it starts all the same.
pub(super) fn needed_to_start(measure: Measure) -> u64 {
    (1 << 20).min(measure.needed)
}

/// Says what is missing.
pub(super) fn short(measure: Measure) -> String {
    format!("{} free, {} needed to start", size(measure.free), size(needed_to_start(measure)))
}
