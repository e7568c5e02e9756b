//! The first entry of a cluster that was made of a snapshot. What belonged to the old nodes ends here; what people gave
//! the cluster (workflows, runs, keys, request ids, idempotency keys) stays. Nothing starts before `ResumeCluster`.

use alloc::vec::Vec;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{ClusterRow, Done, Event, EventKind, NodeRole, NodeRow, RejectionCode, RestoreCluster};
use core::ops::ControlFlow;

use crate::command::expire_claw::lose_all;
use crate::halt::{Step, rejected};
use crate::ids::NodeId;
use crate::work::Work;
use crate::{Table, Touched, key, read, restore};

pub(crate) fn apply(work: &mut Work<'_>, command: &RestoreCluster) -> Step<Answer> {
    if command.join_id.len() != 16 || command.from_cluster.len() != 16 {
        return rejected(RejectionCode::Invalid, "a join id and a cluster id have 16 bytes each");
    }
    if command.from_index >= work.log_index {
        return rejected(RejectionCode::Invalid, "a restored log starts above what its snapshot covers");
    }
    for (claw, _) in read::claws(work.view()) {
        lose_all(work, claw)?;
        work.delete_claw(claw);
    }
    for table in [Table::Nodes, Table::Joins] {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        work.view().scan(table, &[], None, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        });
        for key in keys {
            work.delete(table, &key);
        }
    }
    let node = NodeId(work.log_index);
    let row = NodeRow {
        join_id: command.join_id.clone(),
        role: NodeRole::Voter as i32,
        added_at_ms: work.now,
        ..NodeRow::default()
    };
    work.put(Table::Nodes, &key::node(node), &row);
    work.put_raw(Table::Joins, &command.join_id, &key::node(node));
    let cluster = ClusterRow {
        suspended: true,
        restored_from: command.from_cluster.clone(),
        restored_index: command.from_index,
        restored_at_ms: work.now,
    };
    work.put(Table::Cluster, &key::CLUSTER, &cluster);
    restore::quiesce(work)?;
    work.touched.add(Touched::ALL);
    let kind = EventKind::ClusterRestored as i32;
    work.event(Event { kind, claw: node.0, ..Event::default() });
    Ok(Answer::Done(Done {}))
}
