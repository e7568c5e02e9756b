//! What a node tells the cluster of itself: its addresses, and that its claw lives when the leader has changed.

use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{AddNode, Command, Proposal};
use clawhive_statemachine::ids::NodeId;
use clawhive_statemachine::read;

use super::claw_deps::NodeClaw;
use crate::context::{Context, rejection};
use crate::env;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Makes the table of nodes show this node as it is. Once: addresses do not change while it runs.
pub(super) async fn announce(ctx: Arc<Context>, own: AddNode) {
    loop {
        let Ok(view) = ctx.replica.linearizable_view(Duration::from_secs(5)).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let shown = read::node(&view, NodeId(own.node)).is_some_and(|row| {
            row.listen == own.listen
                && row.peer_listen == own.peer_listen
                && row.role == own.role
                && row.version == own.version
        });
        if shown {
            return;
        }
        let proposal = Proposal {
            request_id: env::request_id().to_vec(),
            actor: ctx.actor(),
            commands: vec![Command { kind: Some(Kind::AddNode(own.clone())) }],
        };
        match ctx.replica.propose(proposal, Duration::from_secs(5)).await {
            Ok(committed) => {
                if let Some(rejection) = committed.outcomes.first().and_then(rejection) {
                    tracing::error!(
                        node = own.node,
                        reason = rejection.message,
                        "the cluster does not take this node"
                    );
                }
                return;
            }
            Err(error) => {
                tracing::warn!(node = own.node, %error, "this node is not announced yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// A new leader has heard of no claw: this one does not wait for its next regular beat.
pub(super) async fn greet_leaders(ctx: Arc<Context>, claw: Arc<NodeClaw>) {
    let mut status = ctx.replica.status();
    let mut greeted = None;
    loop {
        let leads = |status: &clawhive_raft::Status| {
            // This node's own leadership begins when it is ready to lead.
            let ready = status.leader != Some(status.node_id) || status.is_leader;
            status.leader.filter(|_| ready).map(|leader| (leader, status.term))
        };
        let changed = status.wait_for(|status| leads(status).is_some_and(|now| Some(now) != greeted)).await;
        let Ok(now) = changed.map(|status| leads(&status)) else { return };
        greeted = now;
        claw.extra_beat().await;
    }
}
