//! Nodes, and whether they can be reached. Answers also without a quorum, from what this node knows.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::{ClusterStatusResponse, NodeRole, NodeRow, NodeView, PeerStatus};
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::{ReadStore, names, read};
use futures::future::join_all;

use crate::context::Context;
use crate::identity::format_id;

/// A peer that does not answer within this time is shown as down.
const PING: Duration = Duration::from_millis(500);

pub(super) async fn nodes(ctx: &Context) -> ClusterStatusResponse {
    let status = ctx.status();
    let pings = status.members.iter().filter(|peer| peer.id != ctx.me.node);
    let answers =
        join_all(pings.map(|peer| async move { (peer.id, ctx.links.status(peer, PING).await.ok()) })).await;
    let mut heard: BTreeMap<u64, PeerStatus> =
        answers.into_iter().filter_map(|(id, answer)| Some((id, answer?))).collect();
    heard.insert(ctx.me.node, ctx.peer_status());
    let view = ctx.replica.view();
    let rows = read::nodes(&view);
    let shown = rows.into_iter().map(|(id, row)| node(&view, &status, &heard, id.0, row)).collect();
    let reachable = status.voters.iter().filter(|voter| heard.contains_key(voter)).count();
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
        level: clawhive_statemachine::level::current(&view),
    }
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
        row: Some(row),
    }
}
