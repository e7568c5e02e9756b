//! The rows that the laws speak of, decoded.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::prost::Message;
use clawhive_proto::{AssignmentRow, AttemptRow, BacklogRow, ClawRow, RunRow, SpecRow, TaskRow, TimerKind};
use core::ops::ControlFlow;

use crate::ids::{AttemptNumber, ClawId, Fence, RunId, TaskIndex};
use crate::read::{sound, sound_key};
use crate::{ReadStore, Table, key};

type Place = (RunId, TaskIndex);

pub(crate) struct Snapshot {
    pub runs: BTreeMap<RunId, RunRow>,
    pub tasks: BTreeMap<Place, TaskRow>,
    pub attempts: BTreeMap<(RunId, TaskIndex, AttemptNumber), AttemptRow>,
    pub assignments: BTreeMap<(ClawId, Fence, RunId, TaskIndex), AssignmentRow>,
    pub claws: BTreeMap<ClawId, ClawRow>,
    /// By (workflow uid, version, task).
    pub specs: BTreeMap<(u64, u64, u32), SpecRow>,
    /// (rank, sequence) to task.
    pub ready: BTreeMap<(u32, u64), Place>,
    /// (run, sequence) to task.
    pub held: BTreeMap<(RunId, u64), TaskIndex>,
    pub timers: Vec<(u64, TimerKind, RunId, TaskIndex)>,
    pub backlog: Vec<Backlog>,
    pub active: BTreeSet<RunId>,
    pub finished: BTreeSet<(u64, RunId)>,
    pub outputs: Vec<Place>,
}

impl Snapshot {
    pub fn take(view: &dyn ReadStore) -> Snapshot {
        Snapshot {
            runs: rows(view, Table::Runs, |key| Some(RunId(key::u64_at(key, 0)?))),
            tasks: rows(view, Table::Tasks, key::parse_task),
            attempts: rows(view, Table::Attempts, key::parse_attempt),
            assignments: rows(view, Table::Assignments, key::parse_assignment),
            claws: rows(view, Table::Claws, |key| Some(ClawId(key::u64_at(key, 0)?))),
            specs: rows(view, Table::Specs, |key| {
                Some((key::u64_at(key, 0)?, key::u64_at(key, 8)?, key::u32_at(key, 16)?))
            }),
            ready: pairs(view, Table::Ready, |key, value| {
                Some((key::parse_ready(key)?, key::parse_task(value)?))
            })
            .into_iter()
            .collect(),
            held: pairs(view, Table::Held, |key, value| {
                let place = (RunId(key::u64_at(key, 0)?), key::u64_at(key, 8)?);
                Some((place, TaskIndex(key::u32_at(value, 0)?)))
            })
            .into_iter()
            .collect(),
            timers: pairs(view, Table::Timers, |key, _| key::parse_timer(key)),
            backlog: pairs(view, Table::Backlog, |_, value| {
                BacklogRow::decode(value).ok().and_then(|row| row.kind)
            }),
            active: pairs(view, Table::Active, |key, _| Some(RunId(key::u64_at(key, 0)?)))
                .into_iter()
                .collect(),
            finished: pairs(view, Table::Finished, |key, _| {
                Some((key::u64_at(key, 0)?, RunId(key::u64_at(key, 8)?)))
            })
            .into_iter()
            .collect(),
            outputs: pairs(view, Table::Outputs, |key, _| key::parse_task(key)),
        }
    }

    /// The tasks of a run, by position.
    pub fn tasks_of(&self, run: RunId) -> impl Iterator<Item = (TaskIndex, &TaskRow)> {
        let of_run = (run, TaskIndex(0))..=(run, TaskIndex(u32::MAX));
        self.tasks.range(of_run).map(|((_, task), row)| (*task, row))
    }

    /// The definition of a task.
    pub fn spec(&self, run: &RunRow, task: TaskIndex) -> Option<&SpecRow> {
        self.specs.get(&(run.workflow_uid, run.version, task.0))
    }
}

fn rows<K: Ord, R: Message + Default>(
    view: &dyn ReadStore,
    table: Table,
    parse: impl Fn(&[u8]) -> Option<K>,
) -> BTreeMap<K, R> {
    let mut found = BTreeMap::new();
    view.scan(table, &[], None, &mut |key, value| {
        found.insert(sound_key(table, key, parse(key)), sound(table, key, value.clone()));
        ControlFlow::Continue(())
    });
    found
}

fn pairs<P>(view: &dyn ReadStore, table: Table, parse: impl Fn(&[u8], &[u8]) -> Option<P>) -> Vec<P> {
    let mut found = Vec::new();
    view.scan(table, &[], None, &mut |key, value| {
        found.push(sound_key(table, key, parse(key, value)));
        ControlFlow::Continue(())
    });
    found
}
