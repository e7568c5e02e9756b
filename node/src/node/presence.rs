//! What a node tells the cluster of itself: its addresses, and that its claw lives when the leader has changed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{AddNode, Command, Proposal};
use clawhive_raft::{ProposeError, View};
use clawhive_statemachine::ids::NodeId;
use clawhive_statemachine::{Touched, level, read};

use super::claw_deps::NodeClaw;
use crate::context::{Context, rejection};
use crate::identity::{DataDir, FORMAT};
use crate::{env, peer};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// How long to wait for a leader before the members are asked one by one.
const LEADER_PATIENCE: Duration = Duration::from_secs(2);

/// Makes the table of nodes show this node as it is. Once: addresses do not change while it runs.
pub(super) async fn announce(ctx: Arc<Context>, own: AddNode) {
    loop {
        match ctx.replica.linearizable_view(LEADER_PATIENCE).await {
            Ok(view) if is_shown(&view, &own) => return,
            Ok(_) => match propose(&ctx, &own).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(node = own.node, %error, "this node is not announced yet"),
            },
            // After a restart at another address no leader finds this node: it tells the others where it is.
            Err(_) => tell_members(&ctx, &own).await,
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_shown(view: &View, own: &AddNode) -> bool {
    read::node(view, NodeId(own.node)).is_some_and(|row| {
        row.listen == own.listen
            && row.peer_listen == own.peer_listen
            && row.role == own.role
            && row.version == own.version
    })
}

async fn propose(ctx: &Context, own: &AddNode) -> Result<(), ProposeError> {
    let proposal = Proposal {
        request_id: env::request_id().to_vec(),
        actor: ctx.actor(),
        commands: vec![Command { kind: Some(Kind::AddNode(own.clone())) }],
    };
    let committed = ctx.replica.propose(proposal, Duration::from_secs(5)).await?;
    if let Some(rejection) = committed.outcomes.first().and_then(rejection) {
        tracing::error!(node = own.node, reason = rejection.message, "the cluster does not take this node");
    }
    Ok(())
}

async fn tell_members(ctx: &Context, own: &AddNode) {
    let status = ctx.status();
    let moved = status.members.iter().any(|peer| peer.id == own.node && peer.addr != own.peer_listen);
    if !moved {
        return;
    }
    let others: Vec<String> =
        status.members.into_iter().filter(|peer| peer.id != own.node).map(|peer| peer.addr).collect();
    if let Err(error) = peer::join(&others, own).await {
        tracing::warn!(node = own.node, %error, "no member takes the new address yet");
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

/// Keeps the addresses of the table of nodes in the links.
pub(super) async fn follow_moves(ctx: Arc<Context>) {
    let mut feed = ctx.replica.feed();
    while feed.touched(Touched::NODES).await.is_ok() {
        let nodes = read::nodes(&ctx.replica.view());
        ctx.links.learn(nodes.into_iter().map(|(id, row)| (id.0, row.peer_listen)).collect());
    }
}

/// Once the cluster is at a level that release 0.1 does not know, that release must not open this directory any more.
pub(super) async fn keep_older_versions_out(ctx: Arc<Context>, data: Arc<Mutex<DataDir>>) {
    let mut feed = ctx.replica.feed();
    while feed.touched(Touched::NODES).await.is_ok() {
        if level::current(&ctx.replica.view()) < 2 {
            continue;
        }
        let raised = data.lock().unwrap_or_else(PoisonError::into_inner).raise_format(FORMAT);
        match raised {
            Ok(()) => return,
            // Tried again with the next change; an older version that opens the state meanwhile halts at what it does
            // not know.
            Err(error) => tracing::warn!(%error, "the format of the data directory is not raised yet"),
        }
    }
}
