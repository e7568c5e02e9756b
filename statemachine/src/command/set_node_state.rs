//! Whether a node is to be given work. What a drained one runs goes on to its end.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{ClawState, Done, Event, EventKind, NodeState, RejectionCode, SetNodeState};

use super::remove_node::known;
use crate::halt::{Step, rejected};
use crate::ids::{ClawId, NodeId};
use crate::work::Work;
use crate::{Table, Touched, key};

pub(crate) fn apply(work: &mut Work<'_>, command: &SetNodeState) -> Step<Answer> {
    let node = NodeId(command.node);
    let Ok(state) = NodeState::try_from(command.state) else {
        return rejected(RejectionCode::Invalid, alloc::format!("{} is no state of a node", command.state));
    };
    let mut row = known(work, node)?;
    if row.state() == state {
        return Ok(Answer::Done(Done {}));
    }
    row.set_state(state);
    work.put(Table::Nodes, &key::node(node), &row);
    let claw = ClawId(node.0);
    let (of_claw, kind) = match state {
        NodeState::Draining => (ClawState::Draining, EventKind::NodeDrained),
        NodeState::Active => (ClawState::Active, EventKind::NodeActivated),
    };
    // A claw that is down says itself when it is up again.
    if work.claw(claw)?.is_some_and(|row| row.state() != ClawState::Down) {
        work.claw_mut(claw)?.set_state(of_claw);
    }
    work.touched.add(Touched::NODES.with(Touched::CLAWS).with(Touched::READY));
    work.event(Event { kind: kind as i32, claw: node.0, ..Event::default() });
    Ok(Answer::Done(Done {}))
}
