//! A hop of a chain in one commit: the completions about to be proposed free slots and successors; the grants planned
//! here travel in the same entry, behind them.
//!
//! What waits in the ready index comes first, in its order; a freed successor never overtakes it, other than by a
//! higher priority. The outputs of the completing tasks are not in the view yet: who resolves the templates of a
//! successor takes them from the reports.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use clawhive_proto::command::Kind;
use clawhive_proto::{Command, CompleteTask, Grant, TaskState};
use core::ops::ControlFlow;

use crate::ids::{RunId, TaskIndex, Version, WorkflowUid};
use crate::plan::assign::{self, AssignInput};
use crate::plan::slots::Slots;
use crate::read::{self, sound_key};
use crate::{ReadStore, Table, key, state};

/// The most edges that are looked at: as many as the entry would tell.
const MAX_EDGES: usize = 1_000;

/// A task that can be granted in the entry of the reports.
struct Candidate {
    /// Its place in the ready index: rank, then sequence; a freed one is last of its rank.
    place: (u32, u64),
    run: RunId,
    task: TaskIndex,
    /// The claw that completed its last upstream.
    wish: Option<u64>,
}

/// Plans the grants for one entry `[reports.., AssignTasks]`. Reports other than `CompleteTask`, and those that
/// `apply` would refuse, count for nothing.
pub fn plan(view: &dyn ReadStore, reports: &[Command], input: &AssignInput<'_>) -> Vec<Grant> {
    if read::cluster(view).suspended {
        return Vec::new();
    }
    let completions = completions(view, reports);
    let mut freed: BTreeMap<u64, u32> = BTreeMap::new();
    for claw in completions.values() {
        *freed.entry(*claw).or_insert(0) += 1;
    }
    let mut slots = Slots::new(view, input, &freed);
    let limit = input.limit.min(usize::try_from(slots.free()).unwrap_or(usize::MAX));
    if limit == 0 {
        return Vec::new();
    }
    let mut candidates = waiting(view, limit);
    candidates.extend(successors(view, &completions));
    candidates.sort_by_key(|candidate| candidate.place);
    candidates.truncate(limit);
    candidates
        .into_iter()
        .filter_map(|it| assign::grant(view, &mut slots, it.run, it.task, it.wish))
        .collect()
}

/// The tasks whose completion will be taken, with the claw that gives its slot back.
fn completions(view: &dyn ReadStore, reports: &[Command]) -> BTreeMap<(RunId, TaskIndex), u64> {
    let current = |report: &CompleteTask| {
        let (run, task) = (RunId(report.run), TaskIndex(report.task));
        let row = read::task(view, run, task)?;
        let taken =
            state::task_live(row.state()) && row.fence == report.fence && row.attempt == report.attempt;
        taken.then_some(((run, task), row.claw))
    };
    reports
        .iter()
        .filter_map(|command| match &command.kind {
            Some(Kind::CompleteTask(report)) => current(report),
            _ => None,
        })
        .collect()
}

/// What is in the ready index now.
fn waiting(view: &dyn ReadStore, limit: usize) -> Vec<Candidate> {
    let mut found = Vec::new();
    view.scan(Table::Ready, &[], None, &mut |ready_key, value| {
        let place = sound_key(Table::Ready, ready_key, key::parse_ready(ready_key));
        let (run, task) = sound_key(Table::Ready, ready_key, key::parse_task(value));
        found.push(Candidate { place, run, task, wish: None });
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}

/// What the completions make ready, run by run.
fn successors(view: &dyn ReadStore, completions: &BTreeMap<(RunId, TaskIndex), u64>) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut edges = 0;
    let runs: BTreeSet<RunId> = completions.keys().map(|(run, _)| *run).collect();
    for run in runs {
        let Some(row) = read::run(view, run).filter(|row| row.stop.is_none()) else { continue };
        let of_run = (run, TaskIndex(0))..=(run, TaskIndex(u32::MAX));
        let ended: Vec<(TaskIndex, u64)> =
            completions.range(of_run).map(|((_, task), claw)| (*task, *claw)).collect();
        // Held tasks come before those that are only now ready.
        let mut room = match row.max_parallel {
            0 => usize::MAX,
            most => (most as usize + ended.len()).saturating_sub((row.admitted + row.held) as usize),
        };
        let (uid, version) = (WorkflowUid(row.workflow_uid), Version(row.version));
        let mut told: BTreeMap<TaskIndex, u32> = BTreeMap::new();
        'run: for (task, claw) in ended {
            let Some(spec) = read::spec(view, uid, version, task) else { continue };
            for dependent in spec.dependents.iter().map(|dependent| TaskIndex(*dependent)) {
                edges += 1;
                if edges > MAX_EDGES {
                    return found;
                }
                if room == 0 {
                    break 'run;
                }
                let news = told.entry(dependent).or_insert(0);
                *news += 1;
                let free = read::task(view, run, dependent).is_some_and(|row| {
                    row.state() == TaskState::Pending && row.failed_upstreams == 0 && row.remaining == *news
                });
                if free {
                    room -= 1;
                    let rank = key::TOP_PRIORITY.saturating_sub(row.priority);
                    found.push(Candidate { place: (rank, u64::MAX), run, task: dependent, wish: Some(claw) });
                }
            }
        }
    }
    found
}
