//! Runs as the API shows them: one with its tasks, and lists, newest first.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::{AttemptView, RunRow, RunState, RunView, StateCount, TaskState, TaskView};
use core::ops::ControlFlow;

use crate::ids::{RunId, Version, WorkflowUid};
use crate::read::{self, sound, sound_key};
use crate::{ReadStore, Table, key, state};

/// Which runs to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Empty: every state.
    pub states: Vec<RunState>,
    /// Empty: every namespace.
    pub namespace: String,
    /// Empty: every workflow.
    pub workflow: String,
    /// Only runs older than this one: where the last page ended.
    pub before: Option<RunId>,
    /// At most so many.
    pub limit: usize,
    /// Give up after looking at so many runs (0: never) and answer with what was found and a place to go on from, so
    /// that a filter that matches little cannot hold a reader for long.
    pub scan_limit: usize,
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunsPage {
    /// Newest first.
    pub runs: Vec<(RunId, RunRow)>,
    /// The `before` of the next page; none at the end. It stays valid whatever is submitted, ends or is dropped
    /// meanwhile.
    pub next: Option<RunId>,
}

impl RunFilter {
    fn wants(&self, row: &RunRow) -> bool {
        (self.states.is_empty() || self.states.contains(&row.state()))
            && (self.namespace.is_empty() || self.namespace == row.namespace)
            && (self.workflow.is_empty() || self.workflow == row.workflow)
    }
}

/// Lists runs, newest first.
pub fn list_runs(view: &dyn ReadStore, filter: &RunFilter) -> RunsPage {
    // The finished ones are many; when none of them is wanted, the index of the others is walked instead.
    let only_active =
        !filter.states.is_empty() && filter.states.iter().all(|state| !state::run_ended(*state));
    let table = if only_active { Table::Active } else { Table::Runs };
    let until = filter.before.map(key::run);
    let mut page = RunsPage::default();
    let mut looked_at = 0;
    let mut last = None;
    view.scan_back(table, &[], until.as_ref().map(|key| key.as_slice()), &mut |key, value| {
        if page.runs.len() >= filter.limit || (filter.scan_limit > 0 && looked_at >= filter.scan_limit) {
            page.next = last;
            return ControlFlow::Break(());
        }
        looked_at += 1;
        let id = RunId(sound_key(table, key, key::u64_at(key, 0)));
        last = Some(id);
        let row = if only_active { read::run(view, id) } else { Some(sound(table, key, value.clone())) };
        if let Some(row) = row.filter(|row| filter.wants(row)) {
            page.runs.push((id, row));
        }
        ControlFlow::Continue(())
    });
    page
}

/// How many tasks of a run are in which state; states without a task are left out.
pub fn state_counts(view: &dyn ReadStore, run: RunId) -> Vec<StateCount> {
    counts_of(read::tasks(view, run).iter().map(|(_, row)| row.state()))
}

fn counts_of(states: impl Iterator<Item = TaskState>) -> Vec<StateCount> {
    let mut counts = BTreeMap::new();
    for state in states {
        *counts.entry(state as i32).or_insert(0) += 1;
    }
    counts.into_iter().map(|(state, count)| StateCount { state, count }).collect()
}

/// A run as the API shows it; `brief` leaves its tasks out. The caller fills in `applied_index`.
pub fn run_view(view: &dyn ReadStore, run: RunId, brief: bool) -> Option<RunView> {
    let row = read::run(view, run)?;
    let rows = read::tasks(view, run);
    let counts = counts_of(rows.iter().map(|(_, row)| row.state()));
    let mut tasks = Vec::new();
    if !brief {
        let specs = read::specs(view, WorkflowUid(row.workflow_uid), Version(row.version));
        let name = |position: u32| {
            let task = specs.get(position as usize).and_then(|spec| spec.task.as_ref());
            task.map_or_else(|| position.to_string(), |task| task.name.clone())
        };
        for (index, row) in rows {
            let task = specs.get(index.0 as usize).and_then(|spec| spec.task.as_ref());
            let attempts = match row.attempt {
                0 => Vec::new(),
                _ => read::attempts(view, run, index),
            };
            tasks.push(TaskView {
                name: name(index.0),
                needs: task.map_or_else(Vec::new, |task| task.needs.iter().map(|need| name(*need)).collect()),
                outputs_json: match row.state() {
                    TaskState::Succeeded => read::outputs(view, run, index).unwrap_or_default(),
                    _ => String::new(),
                },
                attempts: attempts
                    .into_iter()
                    .map(|(number, row)| AttemptView { number: number.0, row: Some(row) })
                    .collect(),
                max_attempts: task
                    .and_then(|task| task.retries.as_ref())
                    .map_or(1, |retries| retries.max_attempts.max(1)),
                row: Some(row),
            });
        }
    }
    Some(RunView { id: run.0, run: Some(row), tasks, counts, ..RunView::default() })
}
