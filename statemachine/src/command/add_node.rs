//! A peer asks to belong to the cluster. Its id is the index of the entry that added it, so that no id is ever used
//! twice; the same data directory gets the same id again.

use alloc::format;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{AddNode, Event, EventKind, NodeAdded, NodeRow, RejectionCode};

use crate::halt::{Step, rejected};
use crate::ids::NodeId;
use crate::work::Work;
use crate::{Table, Touched, key, read, row};

pub(crate) fn apply(work: &mut Work<'_>, command: &AddNode) -> Step<Answer> {
    if command.join_id.len() != 16 {
        return rejected(RejectionCode::Invalid, "a join id has 16 bytes");
    }
    let joined = match work.raw(Table::Joins, &command.join_id) {
        Some(value) => {
            Some(key::u64_at(&value, 0).ok_or_else(|| row::damaged(Table::Joins, &command.join_id))?)
        }
        None => None,
    };
    let node = match (joined, command.node) {
        (Some(joined), asked) if asked != 0 && asked != joined => {
            return rejected(RejectionCode::Conflict, format!("this data directory is node {joined}"));
        }
        (Some(joined), _) => NodeId(joined),
        (None, 0) => NodeId(work.log_index),
        // The first node of a cluster has its id before there is a log. An index below this entry's that is no
        // node's yet can never become one.
        (None, asked) if asked < work.log_index => NodeId(asked),
        (None, asked) => {
            return rejected(RejectionCode::Invalid, format!("{asked} is not the id of a node"));
        }
    };
    let known: Option<NodeRow> = work.get(Table::Nodes, &key::node(node))?;
    if joined.is_none() && known.is_some() {
        return rejected(RejectionCode::Conflict, format!("node {node} has another data directory"));
    }
    // Nobody could have been removed at level 1, and roles came with the joining node at each of its starts.
    let mut role = command.role;
    if work.level() >= 2 {
        check_not_removed(work, node)?;
        match &known {
            Some(known) => role = known.role,
            None => check_address(work, &command.peer_listen)?,
        }
    }
    let row = NodeRow {
        join_id: command.join_id.clone(),
        listen: command.listen.clone(),
        peer_listen: command.peer_listen.clone(),
        role,
        version: command.version.clone(),
        added_at_ms: known.as_ref().map_or(work.now, |known| known.added_at_ms),
        state: known.as_ref().map_or(0, |known| known.state),
    };
    if known.as_ref() != Some(&row) {
        work.put(Table::Nodes, &key::node(node), &row);
        work.touched.add(Touched::NODES);
    }
    if known.is_none() {
        work.put_raw(Table::Joins, &command.join_id, &key::node(node));
        let kind = EventKind::NodeAdded as i32;
        work.event(Event { kind, claw: node.0, ..Event::default() });
    }
    Ok(Answer::NodeAdded(NodeAdded { node: node.0 }))
}

fn check_not_removed(work: &Work<'_>, node: NodeId) -> Step<()> {
    if read::removed(work.view(), node).is_none() {
        return Ok(());
    }
    rejected(
        RejectionCode::NodeRemoved,
        format!(
            "node {node} was removed from the cluster; to bring the machine back, empty its data directory and start it \
             with --join: it joins as a new node"
        ),
    )
}

/// A new data directory behind the address of a node: its disk was wiped, or somebody made a mistake. Either way the old
/// node must not be counted on any more, which only a person can say.
fn check_address(work: &Work<'_>, peer_listen: &str) -> Step<()> {
    let holds = |(_, row): &(NodeId, NodeRow)| !peer_listen.is_empty() && row.peer_listen == peer_listen;
    let Some((node, _)) = read::nodes(work.view()).into_iter().find(holds) else { return Ok(()) };
    rejected(
        RejectionCode::AddressTaken,
        format!(
            "{peer_listen} is the address of node {node}, which has another data directory; if that one is lost, run \
             `clawhive node remove {node}` and start this node again: it joins as a new one; if not, start this node \
             with the data directory of node {node}, or at another --peer-listen address"
        ),
    )
}
