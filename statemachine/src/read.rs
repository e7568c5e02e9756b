//! Typed reading of the state, for the API, the claws and tools. Every reader works on any [`ReadStore`]; for a
//! consistent answer give it a snapshot.
//!
//! Must not: write, or hide damage. A row that does not decode panics: the store is damaged, and no answer is better
//! than a wrong one.

mod events;
mod keys;
mod locks;
mod runs;

pub use events::{EVENTS_PAGE, compacted, events, run_events};
pub use keys::{KeyFilter, KeysPage, MAX_TXN_OPS, MAX_TXN_READ_BYTES, key_version, list_keys};
pub use locks::{list_locks, lock};
pub use runs::{RunFilter, RunsPage, list_runs, run_view, state_counts};

use alloc::string::String;
use alloc::vec::Vec;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    AssignmentRow, AttemptRow, ClawRow, ClusterRow, IdempotencyRow, KeyRow, Meta, NodeRow, OutputRow, RunRow,
    SpecRow, TaskRow, VersionRow, WorkflowRow,
};
use core::ops::ControlFlow;

use crate::ids::{AttemptNumber, ClawId, Fence, NodeId, RunId, TaskIndex, Version, WorkflowUid};
use crate::{ReadStore, Table, Value, key, row};

/// Decodes a row that must decode.
pub(crate) fn sound<R: Message + Default>(table: Table, key: &[u8], value: Value) -> R {
    match row::decode(table, key, value) {
        Ok(row) => row,
        Err(halt) => panic!("{halt}"),
    }
}

/// Reads a key that must be one of its table.
pub(crate) fn sound_key<K>(table: Table, key: &[u8], parsed: Option<K>) -> K {
    match parsed {
        Some(parsed) => parsed,
        None => panic!("{}", row::damaged(table, key)),
    }
}

fn one<R: Message + Default>(view: &dyn ReadStore, table: Table, key: &[u8]) -> Option<R> {
    view.get(table, key).map(|value| sound(table, key, value))
}

/// All rows under a prefix, with what `parse` makes of their keys.
fn many<K, R: Message + Default>(
    view: &dyn ReadStore,
    table: Table,
    prefix: &[u8],
    parse: impl Fn(&[u8]) -> Option<K>,
) -> Vec<(K, R)> {
    let mut rows = Vec::new();
    row::scan_prefix(view, table, prefix, &mut |key, value| {
        rows.push((sound_key(table, key, parse(key)), sound(table, key, value.clone())));
        ControlFlow::Continue(())
    });
    rows
}

/// The counters and the last time; all zero in an empty state.
pub fn meta(view: &dyn ReadStore) -> Meta {
    one(view, Table::Meta, &key::META).unwrap_or_default()
}

/// What holds for the cluster as a whole.
pub fn cluster(view: &dyn ReadStore) -> ClusterRow {
    one(view, Table::Cluster, &key::CLUSTER).unwrap_or_default()
}

/// A workflow by its name.
pub fn workflow(view: &dyn ReadStore, namespace: &str, name: &str) -> Option<WorkflowRow> {
    one(view, Table::Workflows, &key::workflow(namespace, name))
}

/// All workflows: (namespace, name) and row.
pub fn workflows(view: &dyn ReadStore) -> Vec<((String, String), WorkflowRow)> {
    many(view, Table::Workflows, &[], |key| {
        let mut parts = key.splitn(2, |byte| *byte == 0);
        let mut text = || Some(String::from(core::str::from_utf8(parts.next()?).ok()?));
        Some((text()?, text()?))
    })
}

/// A version of a workflow, without its tasks.
pub fn version(view: &dyn ReadStore, uid: WorkflowUid, version: Version) -> Option<VersionRow> {
    one(view, Table::Versions, &key::version(uid, version))
}

/// One task of a version, with the positions of those that need it.
pub fn spec(view: &dyn ReadStore, uid: WorkflowUid, version: Version, task: TaskIndex) -> Option<SpecRow> {
    one(view, Table::Specs, &key::spec(uid, version, task))
}

/// All tasks of a version, in file order.
pub fn specs(view: &dyn ReadStore, uid: WorkflowUid, version: Version) -> Vec<SpecRow> {
    let rows: Vec<((), SpecRow)> = many(view, Table::Specs, &key::version(uid, version), |_| Some(()));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// A run.
pub fn run(view: &dyn ReadStore, run: RunId) -> Option<RunRow> {
    one(view, Table::Runs, &key::run(run))
}

/// A task of a run.
pub fn task(view: &dyn ReadStore, run: RunId, task: TaskIndex) -> Option<TaskRow> {
    one(view, Table::Tasks, &key::task(run, task))
}

/// All tasks of a run, in file order.
pub fn tasks(view: &dyn ReadStore, run: RunId) -> Vec<(TaskIndex, TaskRow)> {
    many(view, Table::Tasks, &key::run(run), |key| Some(key::parse_task(key)?.1))
}

/// The attempts of a task, the first one first.
pub fn attempts(view: &dyn ReadStore, run: RunId, task: TaskIndex) -> Vec<(AttemptNumber, AttemptRow)> {
    many(view, Table::Attempts, &key::task(run, task), |key| Some(key::parse_attempt(key)?.2))
}

/// One attempt of a task.
pub fn attempt(
    view: &dyn ReadStore,
    run: RunId,
    task: TaskIndex,
    attempt: AttemptNumber,
) -> Option<AttemptRow> {
    one(view, Table::Attempts, &key::attempt(run, task, attempt))
}

/// The outputs of a task that succeeded: JSON object text. None when it wrote none.
pub fn outputs(view: &dyn ReadStore, run: RunId, task: TaskIndex) -> Option<String> {
    one::<OutputRow>(view, Table::Outputs, &key::task(run, task)).map(|row| row.json)
}

/// Names an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssignmentKey {
    /// The token of the attempt.
    pub fence: Fence,
    /// Of this run,
    pub run: RunId,
    /// this task.
    pub task: TaskIndex,
}

/// All that a claw has to run, oldest grant first.
pub fn assignments_of(view: &dyn ReadStore, claw: ClawId) -> Vec<(AssignmentKey, AssignmentRow)> {
    many(view, Table::Assignments, &key::claw(claw), |key| {
        let (_, fence, run, task) = key::parse_assignment(key)?;
        Some(AssignmentKey { fence, run, task })
    })
}

/// One assignment; none when it has ended.
pub fn assignment(view: &dyn ReadStore, claw: ClawId, at: AssignmentKey) -> Option<AssignmentRow> {
    one(view, Table::Assignments, &key::assignment(claw, at.fence, at.run, at.task))
}

/// A claw.
pub fn claw(view: &dyn ReadStore, claw: ClawId) -> Option<ClawRow> {
    one(view, Table::Claws, &key::claw(claw))
}

/// All claws.
pub fn claws(view: &dyn ReadStore) -> Vec<(ClawId, ClawRow)> {
    many(view, Table::Claws, &[], |key| key::u64_at(key, 0).map(ClawId))
}

/// A node.
pub fn node(view: &dyn ReadStore, node: NodeId) -> Option<NodeRow> {
    one(view, Table::Nodes, &key::node(node))
}

/// All nodes.
pub fn nodes(view: &dyn ReadStore) -> Vec<(NodeId, NodeRow)> {
    many(view, Table::Nodes, &[], |key| key::u64_at(key, 0).map(NodeId))
}

/// The node of a joining data directory.
pub fn node_of_join(view: &dyn ReadStore, join_id: &[u8]) -> Option<NodeId> {
    let value = view.get(Table::Joins, join_id)?;
    Some(NodeId(sound_key(Table::Joins, join_id, key::u64_at(&value, 0))))
}

/// A row of the key-value table.
pub fn key(view: &dyn ReadStore, namespace: &str, key: &str) -> Option<KeyRow> {
    one(view, Table::Keys, &key::key(namespace, key))
}

/// What an idempotency key stands for, when it is still valid at `now_ms`.
pub fn idempotency(view: &dyn ReadStore, namespace: &str, key: &str, now_ms: u64) -> Option<IdempotencyRow> {
    one(view, Table::Idempotency, &key::idempotency(namespace, key))
        .filter(|row: &IdempotencyRow| row.expires_ms > now_ms)
}

/// Whether a write under this request id was applied and is still remembered.
pub fn is_remembered(view: &dyn ReadStore, request_id: &[u8]) -> bool {
    !request_id.is_empty() && view.get(Table::Requests, request_id).is_some()
}

/// How many tasks wait in the ready index, counted up to `limit`.
pub fn ready_len(view: &dyn ReadStore, limit: usize) -> usize {
    let mut count = 0;
    view.scan(Table::Ready, &[], None, &mut |_, _| {
        count += 1;
        if count < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    count
}
