//! A claw process announces itself. A new incarnation ends what the old one held; the same one only updates its row.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    ClawRow, ClawState, Done, Event, EventKind, NodeRow, NodeState, RegisterClaw, RejectionCode,
};

use crate::command::expire_claw::lose_all;
use crate::halt::{Step, rejected};
use crate::ids::{ClawId, NodeId};
use crate::work::Work;
use crate::{Table, Touched, key, read};

/// The hard cap on the slots of a claw: what bounds the work of an entry that expires one.
pub(crate) const MAX_SLOTS: u32 = 1_000;

pub(crate) fn apply(work: &mut Work<'_>, command: &RegisterClaw) -> Step<Answer> {
    let claw = ClawId(command.claw);
    if command.claw == 0 || command.incarnation.len() != 16 {
        return rejected(RejectionCode::Invalid, "a claw needs a node id and an incarnation of 16 bytes");
    }
    if command.slots > MAX_SLOTS || command.lease_ms == 0 {
        return rejected(
            RejectionCode::Invalid,
            "a claw has at most 1000 slots, and a lease longer than nothing",
        );
    }
    if read::removed(work.view(), NodeId(claw.0)).is_some() {
        return rejected(
            RejectionCode::NodeRemoved,
            alloc::format!("node {claw} was removed from the cluster"),
        );
    }
    let old = work.claw(claw)?.cloned();
    let same = old.as_ref().filter(|old| old.incarnation == command.incarnation);
    if same.is_some_and(|old| command.slots < old.used) {
        return rejected(RejectionCode::Invalid, "a claw cannot have fewer slots than it uses");
    }
    let mut row = match (same, &old) {
        (Some(same), _) => same.clone(),
        (None, Some(old)) => {
            let renew_seq = old.renew_seq + 1;
            lose_all(work, claw)?;
            ClawRow { renew_seq, renewed_at_ms: work.now, ..ClawRow::default() }
        }
        (None, None) => ClawRow { renewed_at_ms: work.now, ..ClawRow::default() },
    };
    row.incarnation = command.incarnation.clone();
    row.slots = command.slots;
    row.lease_ms = command.lease_ms;
    row.labels = command.labels.clone();
    row.version = command.version.clone();
    let node: Option<NodeRow> = work.get(Table::Nodes, &key::node(NodeId(claw.0)))?;
    let draining = node.is_some_and(|node| node.state() == NodeState::Draining);
    row.set_state(if draining { ClawState::Draining } else { ClawState::Active });
    work.put_claw(claw, row);
    work.touched.add(Touched::CLAWS.with(Touched::READY));
    let kind = EventKind::ClawRegistered as i32;
    work.event(Event { kind, claw: claw.0, ..Event::default() });
    Ok(Answer::Done(Done {}))
}
