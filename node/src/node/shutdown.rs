//! Ending a node well: hand over leadership, take no new work, wait, then stop what runs.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Node;
use crate::context::Context;
use crate::transfer::{self, NotHandedOver};

/// How long open calls may go on once everything else has ended.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// How long what still holds parts of the node may take to let go.
const LET_GO: Duration = Duration::from_secs(5);

impl Node {
    /// Hands over leadership if it can, takes no new work, gives what runs so much time, then stops it; then leaves. What
    /// was stopped runs elsewhere. Everything acknowledged is durable when this returns, and the data directory is free.
    pub async fn shutdown(mut self, grace: Duration) {
        let node = self.id();
        tracing::info!(node, ?grace, "shutting down");
        self.claw_deps.start_draining();
        hand_over(&self.ctx).await;
        // The leader hears at once that this claw takes nothing new; when it does not, a grant is given back later.
        let told = timeout(Duration::from_secs(1), self.claw_deps.extra_beat()).await;
        if told.is_err() {
            tracing::debug!(node, "no leader was told of the drain");
        }
        self.claw.drain(grace).await;
        self.stop.send_replace(true);
        let ended = timeout(LAST_CALLS, async { while self.servers.join_next().await.is_some() {} }).await;
        if ended.is_err() {
            tracing::debug!(node, "open calls are cut off");
        }
        self.end(true).await;
        tracing::info!(node, "stopped");
    }

    /// Ends as a crash would, as far as one process can show it: nothing is handed over, given back or made durable, and
    /// what runs is killed. For tests of failover and recovery.
    pub async fn crash(self) {
        self.end(false).await;
    }

    async fn end(self, well: bool) {
        let Node { ctx, claw, logs, claw_deps, stop, cut, mut servers, mut tasks, data, .. } = self;
        drop((claw, claw_deps, logs, stop));
        cut.send_replace(true);
        tasks.shutdown().await;
        servers.shutdown().await;
        if well {
            ctx.replica.shutdown().await;
        } else {
            ctx.replica.halt().await;
        }
        // Calls that are being cut off hold the store for another moment.
        let started = tokio::time::Instant::now();
        while Arc::strong_count(&ctx) > 1 {
            if started.elapsed() > LET_GO {
                tracing::warn!(node = ctx.me.node, "a call holds the node although its connection is cut");
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(ctx);
        drop(data);
    }
}

/// Asks the voter that is furthest along to lead. Nothing happens when there is none that answers.
async fn hand_over(ctx: &Context) {
    match transfer::to(ctx, 0).await {
        Ok(to) => tracing::info!(to, "the leadership is handed over"),
        Err(NotHandedOver::NotLeader(_)) => {}
        Err(NotHandedOver::Refused(_, reason) | NotHandedOver::Failed(reason)) => {
            tracing::warn!(reason, "the leadership is not handed over");
        }
    }
}
