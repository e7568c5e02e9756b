//! Nodes, and whether they can be reached. Answers also without a quorum, from what this node knows.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::{ClusterStatusResponse, NodeRole, NodeRow, NodeView, PeerStatus};
use clawhive_raft::Peer;
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::{ReadStore, names, read};
use futures::future::join_all;

use super::clocks::{self, Clocks};
use crate::context::Context;
use crate::env;
use crate::identity::format_id;

/// A peer that does not answer within this time is shown as down.
const PING: Duration = Duration::from_millis(500);

pub(super) async fn nodes(ctx: &Context) -> ClusterStatusResponse {
    let status = ctx.status();
    let pings = status.members.iter().filter(|peer| peer.id != ctx.me.node);
    let answers = join_all(pings.map(|peer| async move { (peer.id, ask(ctx, peer).await) })).await;
    let mut clocks = BTreeMap::new();
    let mut heard: BTreeMap<u64, PeerStatus> = BTreeMap::new();
    let own = ctx.peer_status();
    for (id, answer) in answers {
        if let Some((answer, clock)) = answer {
            clocks.insert(id, clock);
            heard.insert(id, answer);
        }
    }
    clocks.insert(ctx.me.node, Clocks::new(&own, own.wall_ms, own.wall_ms));
    heard.insert(ctx.me.node, own);
    let view = ctx.replica.view();
    let rows = read::nodes(&view);
    let mut shown: Vec<NodeView> =
        rows.into_iter().map(|(id, row)| node(&view, &status, &heard, id.0, row)).collect();
    for node in &mut shown {
        node.skew_ms = clocks::skew_ms(&clocks, status.leader, node.id);
    }
    let reachable = status.voters.iter().filter(|voter| heard.contains_key(voter)).count();
    let scheduler = heard.values().any(|peer| Some(peer.node) == status.leader && peer.scheduler);
    let majority = reachable * 2 > status.voters.len();
    ClusterStatusResponse {
        cluster_id: format_id(&ctx.me.cluster_id),
        leader: status.leader.filter(|leader| heard.contains_key(leader)).unwrap_or(0),
        term: status.term,
        committed_index: status.committed,
        quorum: majority,
        voters: count(status.voters.len()),
        reachable: count(reachable),
        nodes: shown,
        node: ctx.me.node,
        suspended: read::cluster(&view).suspended,
        scheduler,
        level: clawhive_statemachine::level::current(&view),
    }
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

fn node(
    view: &dyn ReadStore,
    status: &clawhive_raft::Status,
    heard: &BTreeMap<u64, PeerStatus>,
    id: u64,
    row: NodeRow,
) -> NodeView {
    let claw = read::claw(view, ClawId(id));
    let answer = heard.get(&id);
    let role = match row.role() {
        NodeRole::Claw => "claw",
        NodeRole::Voter if status.voters.contains(&id) => "voter",
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
        row: Some(row),
        skew_ms: 0,
    }
}
