//! Counters of runs and tasks are what a count from scratch gives, and no child goes before its parents.

use alloc::collections::BTreeMap;
use alloc::format;
use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::{RunRow, RunState, TaskState};

use crate::ids::{RunId, TaskIndex};
use crate::invariant::Findings;
use crate::invariant::snapshot::Snapshot;
use crate::state;

/// Edges that were not told yet: from an ended task of a run, the first position among its dependents.
type Untold = BTreeMap<(RunId, TaskIndex), u32>;

pub(super) fn check(snapshot: &Snapshot, findings: &mut Findings) {
    let untold: Untold = snapshot
        .backlog
        .iter()
        .filter_map(|item| match item {
            Backlog::Edges(edges) => Some(((RunId(edges.run), TaskIndex(edges.task)), edges.from)),
            _ => None,
        })
        .collect();
    for (run, row) in &snapshot.runs {
        counters(snapshot, findings, *run, row);
        upstreams(snapshot, findings, *run, row, &untold);
        ends(snapshot, findings, *run, row);
    }
    for (run, task) in &snapshot.outputs {
        let succeeded =
            snapshot.tasks.get(&(*run, *task)).is_none_or(|task| task.state() == TaskState::Succeeded);
        findings
            .expect(succeeded, "only a task that succeeded has outputs", || format!("run {run} task {task}"));
    }
    let dropping = |run: RunId| {
        snapshot.backlog.iter().any(|item| matches!(item, Backlog::Drop(drop) if drop.run == run.0))
    };
    for (run, task) in snapshot.tasks.keys() {
        let known = snapshot.runs.contains_key(run) || dropping(*run);
        findings.expect(known, "a task has a run", || format!("run {run} task {task}"));
    }
}

fn counters(snapshot: &Snapshot, findings: &mut Findings, run: RunId, row: &RunRow) {
    let count = |wanted: fn(TaskState) -> bool| {
        snapshot.tasks_of(run).filter(|(_, task)| wanted(task.state())).count() as u32
    };
    for (law, counted, stored) in [
        ("a run has all its tasks", count(|_| true), row.tasks),
        ("unfinished tasks are counted", count(|state| !state::task_ended(state)), row.unfinished),
        ("failed tasks are counted", count(|state| state == TaskState::Failed), row.failed),
        ("succeeded tasks are counted", count(|state| state == TaskState::Succeeded), row.succeeded),
    ] {
        findings.expect(counted == stored, law, || format!("run {run}: {counted} counted, {stored} stored"));
    }
}

fn upstreams(snapshot: &Snapshot, findings: &mut Findings, run: RunId, row: &RunRow, untold: &Untold) {
    for (index, task) in snapshot.tasks_of(run) {
        let place = || format!("run {run} task {index}: {task:?}");
        let Some(spec) = snapshot.spec(row, index) else {
            findings.expect(false, "a task has a definition", place);
            continue;
        };
        let needs = spec.task.as_ref().map_or(&[][..], |task| &task.needs);
        let upstream = |need: u32| snapshot.tasks.get(&(run, TaskIndex(need)));
        let succeeded =
            needs.iter().all(|need| upstream(*need).is_some_and(|row| row.state() == TaskState::Succeeded));
        let never_began = task.attempt == 0
            && matches!(task.state(), TaskState::Pending | TaskState::UpstreamFailed | TaskState::Cancelled);
        findings.expect(succeeded || never_began, "no child before its parents succeeded", place);
        if task.state() != TaskState::Pending || row.stop.is_some() {
            continue;
        }
        // An edge of an ended upstream counts as open until it was told.
        let open = |need: u32| {
            let ended = upstream(need).is_some_and(|row| state::task_ended(row.state()));
            !ended || is_untold(snapshot, run, row, need, index, untold)
        };
        let remaining = needs.iter().filter(|need| open(**need)).count() as u32;
        findings.expect(remaining == task.remaining, "remaining upstreams are counted", place);
        findings.expect(task.remaining > 0, "a pending task waits for something", place);
        let failed = needs.iter().filter(|need| {
            !open(**need) && upstream(**need).is_some_and(|row| row.state() != TaskState::Succeeded)
        });
        findings.expect(
            failed.count() as u32 == task.failed_upstreams,
            "failed upstreams are counted",
            place,
        );
    }
}

fn is_untold(
    snapshot: &Snapshot,
    run: RunId,
    row: &RunRow,
    need: u32,
    dependent: TaskIndex,
    untold: &Untold,
) -> bool {
    let Some(from) = untold.get(&(run, TaskIndex(need))) else { return false };
    let Some(spec) = snapshot.spec(row, TaskIndex(need)) else { return false };
    let position = spec.dependents.iter().position(|other| *other == dependent.0);
    position.is_some_and(|position| position >= *from as usize)
}

fn ends(snapshot: &Snapshot, findings: &mut Findings, run: RunId, row: &RunRow) {
    let place = || format!("run {run}: {row:?}");
    let ended = state::run_ended(row.state());
    findings.expect(ended == (row.unfinished == 0), "a run ends with its last task", place);
    findings.expect(
        snapshot.active.contains(&run) != ended,
        "active runs are those that have not ended",
        place,
    );
    let listed = snapshot.finished.contains(&(row.ended_at_ms, run));
    findings.expect(listed == ended, "finished runs are those that have ended", place);
    if ended {
        let timers = snapshot.timers.iter().any(|(_, _, of, _)| *of == run);
        findings.expect(!timers, "a run that has ended has no timers", place);
        let expected = match &row.stop {
            Some(stop) => stop.state(),
            None if row.failed > 0 => RunState::Failed,
            None => RunState::Succeeded,
        };
        findings.expect(row.state() == expected, "a run ends as its tasks did, or as it was stopped", place);
        let all = row.succeeded == row.tasks;
        findings.expect(
            row.state() != RunState::Succeeded || all,
            "a run succeeds when all its tasks did",
            place,
        );
    }
    let swept = snapshot.backlog.iter().any(|item| matches!(item, Backlog::Sweep(it) if it.run == run.0));
    if row.stop.is_some() && !swept {
        for ((_, _, of, task), assignment) in &snapshot.assignments {
            findings.expect(*of != run || assignment.stop, "a stopped run stops its attempts", || {
                format!("run {run} task {task}")
            });
        }
        let idle = snapshot
            .tasks_of(run)
            .any(|(_, task)| !state::task_ended(task.state()) && !state::task_live(task.state()));
        findings.expect(!idle, "a stopped run keeps no task waiting", place);
    }
}
