//! Nodes, and whether they can be reached. Answers also without a quorum, from what this node knows.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::{
    ClusterStatusResponse, Freshness, ListNodesResponse, NodeRole, NodeRow, NodeView, PeerStatus,
};
use clawhive_raft::{Peer, Status};
use clawhive_statemachine::ids::{ClawId, NodeId};
use clawhive_statemachine::{ReadStore, names, read};
use futures::future::join_all;

use super::clocks::{self, Clocks};
use super::health;
use crate::context::Context;
use crate::env;
use crate::identity::format_id;

/// A peer that does not answer within this time is shown as down.
const PING: Duration = Duration::from_millis(500);

/// What was heard from the members just now.
pub(super) struct Heard {
    /// The answer of each that answered.
    pub(super) answers: BTreeMap<u64, PeerStatus>,
}

impl Heard {
    /// The leader, if it answered.
    pub(super) fn leader(&self, status: &Status) -> Option<&PeerStatus> {
        self.answers.get(&status.leader?)
    }

    /// Entries of the leader's log that a node lacks, as far as is known.
    pub(super) fn lag(&self, status: &Status, node: u64) -> u64 {
        let Some(leader) = self.leader(status) else { return 0 };
        if leader.node == node {
            return 0;
        }
        let matched = leader.progress.iter().find(|one| one.node == node).map(|one| one.matched);
        let applied = self.answers.get(&node).map(|answer| answer.applied_index);
        // A node that answers says more than what its leader heard of it a moment ago.
        leader.last_log_index.saturating_sub(matched.max(applied).unwrap_or(0))
    }
}

pub(super) async fn list(ctx: &Context, freshness: Freshness) -> ListNodesResponse {
    ListNodesResponse { nodes: status(ctx).await.nodes, freshness: Some(freshness) }
}

pub(super) async fn status(ctx: &Context) -> ClusterStatusResponse {
    let status = ctx.status();
    let pings = status.members.iter().filter(|peer| peer.id != ctx.me.node);
    let asked = join_all(pings.map(|peer| async move { (peer.id, ask(ctx, peer).await) })).await;
    let own = ctx.peer_status();
    let mut clocks = BTreeMap::from([(ctx.me.node, Clocks::new(&own, own.wall_ms, own.wall_ms))]);
    let mut answers = BTreeMap::from([(ctx.me.node, own)]);
    for (id, answer) in asked {
        if let Some((answer, clock)) = answer {
            clocks.insert(id, clock);
            answers.insert(id, answer);
        }
    }
    let heard = Heard { answers };
    let view = ctx.replica.view();
    let mut nodes: Vec<NodeView> =
        rows(&view, &status).into_iter().map(|(id, row)| node(&view, &status, &heard, id.0, row)).collect();
    for node in &mut nodes {
        node.skew_ms = clocks::skew_ms(&clocks, status.leader, node.id);
    }
    let reachable = status.voters.iter().filter(|voter| heard.answers.contains_key(voter)).count();
    let scheduler = heard.leader(&status).is_some_and(|leader| leader.scheduler);
    let majority = status.voters.len() / 2 + 1;
    let mut response = ClusterStatusResponse {
        cluster_id: format_id(&ctx.me.cluster_id),
        leader: status.leader.filter(|leader| heard.answers.contains_key(leader)).unwrap_or(0),
        term: status.term,
        committed_index: status.committed,
        quorum: reachable >= majority,
        voters: count(status.voters.len()),
        reachable: count(reachable),
        nodes,
        node: ctx.me.node,
        suspended: read::cluster(&view).suspended,
        tolerates: count(reachable.saturating_sub(majority)),
        changing: status.joint,
        scheduler,
        level: clawhive_statemachine::level::current(&view),
        last_log_index: heard.leader(&status).map_or(status.last_log_index, |leader| leader.last_log_index),
        ..ClusterStatusResponse::default()
    };
    health::judge(&mut response, &status, &heard, &view);
    response
}

/// What a peer says of itself, and of its clocks as they compare with ours.
async fn ask(ctx: &Context, peer: &Peer) -> Option<(PeerStatus, Clocks)> {
    let sent_ms = env::wall_ms();
    let answer = ctx.links.status(peer, PING).await.ok()?;
    let clocks = Clocks::new(&answer, sent_ms, env::wall_ms());
    Some((answer, clocks))
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// The table of nodes, and those that were taken out of it while Raft still has them.
fn rows(view: &dyn ReadStore, status: &Status) -> Vec<(NodeId, NodeRow)> {
    let mut rows = read::nodes(view);
    for (id, removed) in read::removed_nodes(view) {
        if status.members.iter().any(|peer| peer.id == id.0) {
            let row = NodeRow { peer_listen: removed.peer_listen, ..NodeRow::default() };
            rows.push((id, row));
        }
    }
    rows.sort_by_key(|(id, _)| *id);
    rows
}

fn node(view: &dyn ReadStore, status: &Status, heard: &Heard, id: u64, row: NodeRow) -> NodeView {
    let claw = read::claw(view, ClawId(id));
    let answer = heard.answers.get(&id);
    let role = match row.role() {
        _ if status.voters.contains(&id) => "voter",
        NodeRole::Claw => "claw",
        NodeRole::Voter => "learner",
    };
    let state = match (&claw, answer) {
        (_, None) => "down".to_owned(),
        (None, Some(_)) => "standby".to_owned(),
        (Some(claw), Some(_)) => names::claw_state(claw.state()),
    };
    let claw = claw.unwrap_or_default();
    NodeView {
        id,
        role: role.to_owned(),
        state,
        leader: status.leader == Some(id) && answer.is_some(),
        term: answer.map_or(0, |answer| answer.term),
        applied_index: answer.map_or(0, |answer| answer.applied_index),
        slots: claw.slots,
        running: claw.used,
        labels: claw.labels,
        digest_index: answer.map_or(0, |answer| answer.digest_index),
        digest: answer.map_or_else(Vec::new, |answer| answer.digest.clone()),
        lag: heard.lag(status, id),
        row: Some(row),
        ..NodeView::default()
    }
}
