//! The ready index, the held queue and the timers hold exactly what the states of the tasks say.

use alloc::collections::BTreeSet;
use alloc::format;
use clawhive_proto::{RunRow, TaskRow, TaskState, TimerKind};

use crate::ids::{RunId, TaskIndex};
use crate::invariant::Findings;
use crate::invariant::snapshot::Snapshot;
use crate::{key, state};

pub(super) fn check(snapshot: &Snapshot, findings: &mut Findings) {
    let mut timers = BTreeSet::new();
    for (run, row) in &snapshot.runs {
        admitted(snapshot, findings, *run, row);
        if row.timeout_ms > 0 && !state::run_ended(row.state()) {
            let due = row.created_at_ms.saturating_add(row.timeout_ms);
            // It is gone once it has fired, and then the run is being stopped.
            let timer = (due, TimerKind::RunTimeout, *run, TaskIndex(0));
            if row.stop.is_none() || snapshot.timers.contains(&timer) {
                timers.insert(timer);
            }
        }
        for (index, task) in snapshot.tasks_of(*run) {
            place_of(snapshot, findings, *run, row, index, task);
            timers.extend(timer_of(snapshot, findings, *run, row, index, task));
        }
    }
    let stored: BTreeSet<_> = snapshot.timers.iter().copied().collect();
    findings.expect(stored == timers, "timers are those that the tasks and runs wait for", || {
        let missing: alloc::vec::Vec<_> = timers.difference(&stored).collect();
        let stray: alloc::vec::Vec<_> = stored.difference(&timers).collect();
        format!("missing {missing:?}, stray {stray:?}")
    });
    let ready = count(snapshot, |task| !task.held);
    findings.expect(ready == snapshot.ready.len(), "the ready index holds the ready tasks", || {
        format!("{} rows for {ready} tasks", snapshot.ready.len())
    });
    let held = count(snapshot, |task| task.held);
    findings.expect(held == snapshot.held.len(), "the held queue holds the held tasks", || {
        format!("{} rows for {held} tasks", snapshot.held.len())
    });
}

fn count(snapshot: &Snapshot, wanted: fn(&TaskRow) -> bool) -> usize {
    snapshot.tasks.values().filter(|task| task.state() == TaskState::Ready && wanted(task)).count()
}

fn admitted(snapshot: &Snapshot, findings: &mut Findings, run: RunId, row: &RunRow) {
    let place = || format!("run {run}: {row:?}");
    let mut admitted = 0;
    let mut held = 0;
    for (_, task) in snapshot.tasks_of(run) {
        let ready = task.state() == TaskState::Ready;
        admitted += u32::from(state::task_live(task.state()) || ready && !task.held);
        held += u32::from(ready && task.held);
    }
    findings.expect(admitted == row.admitted, "admitted tasks are counted", place);
    findings.expect(held == row.held, "held tasks are counted", place);
    findings.expect(row.max_parallel == 0 || admitted <= row.max_parallel, "max_parallel is kept", place);
    let waits = row.stop.is_none() && held > 0;
    findings.expect(
        !waits || admitted == row.max_parallel,
        "a task is held only when the run is full",
        place,
    );
}

fn place_of(
    snapshot: &Snapshot,
    findings: &mut Findings,
    run: RunId,
    row: &RunRow,
    index: TaskIndex,
    task: &TaskRow,
) {
    let place = || format!("run {run} task {index}: {task:?}");
    if task.state() != TaskState::Ready {
        findings.expect(!task.held && task.ready_seq == 0, "only a ready task has a place in a queue", place);
    } else if task.held {
        let there = snapshot.held.get(&(run, task.ready_seq)) == Some(&index);
        findings.expect(there, "a held task is in the held queue", place);
    } else {
        let rank = key::TOP_PRIORITY.saturating_sub(row.priority);
        let there = snapshot.ready.get(&(rank, task.ready_seq)) == Some(&(run, index));
        findings.expect(there, "a ready task is in the ready index", place);
    }
}

fn timer_of(
    snapshot: &Snapshot,
    findings: &mut Findings,
    run: RunId,
    row: &RunRow,
    index: TaskIndex,
    task: &TaskRow,
) -> Option<(u64, TimerKind, RunId, TaskIndex)> {
    let place = || format!("run {run} task {index}: {task:?}");
    let spec = snapshot.spec(row, index).and_then(|spec| spec.task.as_ref());
    let queue_ms = spec.and_then(|task| task.timeout.as_ref()).map_or(0, |timeout| timeout.queue_ms);
    let kind = match task.state() {
        TaskState::Retrying => Some(TimerKind::Retry),
        TaskState::Ready if !task.held && queue_ms > 0 => Some(TimerKind::QueueTimeout),
        _ => None,
    };
    findings.expect(
        kind.is_some() == (task.timer_due_ms > 0),
        "a task has a timer when it waits for one",
        place,
    );
    kind.map(|kind| (task.timer_due_ms, kind, run, index))
}
