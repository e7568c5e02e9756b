//! A node leaves the cluster for good: its row goes, its id and its data directory are remembered as removed. What its
//! claw runs may still run, so that its lease has to end first, as if the node had died.

use alloc::format;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    ClawState, Done, Event, EventKind, NodeRole, NodeRow, RejectionCode, RemoveNode, RemovedRow,
};

use crate::halt::{Step, rejected};
use crate::ids::{ClawId, NodeId};
use crate::work::Work;
use crate::{Table, Touched, key, read};

pub(crate) fn apply(work: &mut Work<'_>, command: &RemoveNode) -> Step<Answer> {
    let node = NodeId(command.node);
    let row = known(work, node)?;
    if row.role() == NodeRole::Voter {
        check_other_voter(work, node)?;
    }
    let removed = RemovedRow { join_id: row.join_id, peer_listen: row.peer_listen, removed_at_ms: work.now };
    work.delete(Table::Nodes, &key::node(node));
    work.put(Table::Removed, &key::node(node), &removed);
    let claw = ClawId(node.0);
    match work.claw(claw)?.map(|row| row.used) {
        Some(0) => work.delete_claw(claw),
        Some(_) => work.claw_mut(claw)?.set_state(ClawState::Draining),
        None => {}
    }
    work.touched.add(Touched::NODES.with(Touched::CLAWS));
    let kind = EventKind::NodeRemoved as i32;
    work.event(Event { kind, claw: node.0, ..Event::default() });
    Ok(Answer::Done(Done {}))
}

/// The row of a node, or a rejection.
pub(super) fn known(work: &Work<'_>, node: NodeId) -> Step<NodeRow> {
    if let Some(row) = work.get(Table::Nodes, &key::node(node))? {
        return Ok(row);
    }
    let was = match read::removed(work.view(), node) {
        Some(_) => "; it was removed",
        None => "",
    };
    rejected(RejectionCode::NotFound, format!("there is no node {node}{was}"))
}

/// Refuses to take the vote of the only node that is to have one.
pub(super) fn check_other_voter(work: &Work<'_>, node: NodeId) -> Step<()> {
    let other = |(id, row): &(NodeId, NodeRow)| *id != node && row.role() == NodeRole::Voter;
    match read::nodes(work.view()).iter().any(other) {
        true => Ok(()),
        false => rejected(
            RejectionCode::LastVoter,
            format!("node {node} is the only voter; a cluster has at least one"),
        ),
    }
}
