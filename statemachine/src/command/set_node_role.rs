//! Whether a node is to vote. The leader makes Raft's membership follow.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, Event, EventKind, NodeRole, RejectionCode, SetNodeRole};

use super::remove_node::{check_other_voter, known};
use crate::halt::{Step, rejected};
use crate::ids::NodeId;
use crate::work::Work;
use crate::{Table, Touched, key};

pub(crate) fn apply(work: &mut Work<'_>, command: &SetNodeRole) -> Step<Answer> {
    let node = NodeId(command.node);
    let Ok(role) = NodeRole::try_from(command.role) else {
        return rejected(RejectionCode::Invalid, alloc::format!("{} is no role of a node", command.role));
    };
    let mut row = known(work, node)?;
    if row.role() == role {
        return Ok(Answer::Done(Done {}));
    }
    if role == NodeRole::Claw {
        check_other_voter(work, node)?;
    }
    row.set_role(role);
    work.put(Table::Nodes, &key::node(node), &row);
    work.touched.add(Touched::NODES);
    let detail = match role {
        NodeRole::Voter => "voter",
        NodeRole::Claw => "claw",
    };
    let kind = EventKind::NodeRoleChanged as i32;
    work.event(Event { kind, claw: node.0, detail: detail.into(), ..Event::default() });
    Ok(Answer::Done(Done {}))
}
