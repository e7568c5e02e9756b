//! The end of a task and of a run: in the entry that ends a task its place is given back, its run counts it, and the
//! news for its dependents is queued.

use alloc::string::String;
use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::{
    Edges, EventKind, OnFailure, Reason, RunState, SpecRow, Stop, TaskRow, TaskState, TimerKind,
};

use crate::graph::{admission, stop};
use crate::halt::{Step, broken};
use crate::ids::{ClawId, RunId, TaskIndex, Version, WorkflowUid};
use crate::work::Work;
use crate::{Table, key, state};

/// How a task ends.
pub(crate) struct End<'a> {
    pub state: TaskState,
    pub reason: Reason,
    /// Short text for people.
    pub message: &'a str,
    /// Whose attempt ended with it; 0 is none.
    pub claw: ClawId,
}

/// Ends a task. An attempt of it must have been closed before ([`super::attempt::close`]).
pub(crate) fn task(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    mut row: TaskRow,
    end: End<'_>,
) -> Step<()> {
    let from = row.state();
    let to = state::task_step(from, end.state)?;
    let mut admitted = state::task_live(from);
    match from {
        TaskState::Ready => {
            admitted = !row.held;
            admission::leave(work, run, task, &mut row)?;
        }
        TaskState::Retrying => admission::clear_timer(work, run, task, &mut row, TimerKind::Retry),
        _ => {}
    }
    row.set_state(to);
    row.set_reason(end.reason);
    row.ended_at_ms = work.now;
    row.message = end.message.into();
    record(work, run, task, &row, &end);
    work.put_task(run, task, &row);

    let run_row = work.run_mut(run)?;
    run_row.unfinished =
        run_row.unfinished.checked_sub(1).ok_or_else(|| broken("more tasks ended than the run has"))?;
    match to {
        TaskState::Succeeded => run_row.succeeded += 1,
        TaskState::Failed => run_row.failed += 1,
        _ => {}
    }
    let finished = run_row.unfinished == 0;
    let stopping = run_row.stop.is_some();
    let stops = to == TaskState::Failed && !stopping && run_row.on_failure() == OnFailure::Stop;
    if stops && !finished {
        let failed = Stop {
            state: RunState::Failed as i32,
            reason: Reason::TaskFailed as i32,
            message: alloc::format!("task {} failed", name(work, run, task)?),
        };
        stop::run(work, run, failed)?;
    }
    if admitted {
        admission::release(work, run)?;
    }
    if finished {
        return self::run(work, run);
    }
    if !stopping && !stops {
        work.fresh.push_back(Backlog::Edges(Edges { run: run.0, task: task.0, from: 0 }));
    }
    Ok(())
}

/// The name of a task, for people.
fn name(work: &mut Work<'_>, run: RunId, task: TaskIndex) -> Step<String> {
    let row = work.run(run)?;
    let key = key::spec(WorkflowUid(row.workflow_uid), Version(row.version), task);
    let spec: Option<SpecRow> = work.get(Table::Specs, &key)?;
    Ok(spec.and_then(|spec| spec.task).map(|task| task.name).unwrap_or_default())
}

fn record(work: &mut Work<'_>, run: RunId, task: TaskIndex, row: &TaskRow, end: &End<'_>) {
    let kind = match end.state {
        TaskState::Succeeded => EventKind::TaskSucceeded,
        TaskState::Failed => EventKind::TaskFailed,
        TaskState::UpstreamFailed => EventKind::TaskUpstreamFailed,
        _ => EventKind::TaskCancelled,
    };
    work.event(clawhive_proto::Event {
        kind: kind as i32,
        run: run.0,
        task_plus_1: task.0 + 1,
        attempt: row.attempt,
        claw: end.claw.0,
        reason: row.reason,
        detail: end.message.into(),
        ..Default::default()
    });
}

/// Ends a run whose tasks have all ended.
fn run(work: &mut Work<'_>, run: RunId) -> Step<()> {
    let now = work.now;
    let row = work.run_mut(run)?;
    let (to, reason, detail) = match &row.stop {
        Some(stop) => (stop.state(), stop.reason(), stop.message.clone()),
        None if row.failed > 0 => (RunState::Failed, Reason::TaskFailed, Default::default()),
        None => (RunState::Succeeded, Reason::Unspecified, Default::default()),
    };
    row.set_state(state::run_step(row.state(), to)?);
    row.set_reason(reason);
    row.ended_at_ms = now;
    let timeout_due = match row.timeout_ms {
        0 => None,
        timeout_ms => Some(row.created_at_ms.saturating_add(timeout_ms)),
    };
    let kind = match to {
        RunState::Succeeded => EventKind::RunSucceeded,
        RunState::Failed => EventKind::RunFailed,
        _ => EventKind::RunCancelled,
    };
    if let Some(due_ms) = timeout_due {
        work.delete(Table::Timers, &key::timer(due_ms, TimerKind::RunTimeout, run, TaskIndex(0)));
    }
    work.delete(Table::Active, &key::run(run));
    work.put_raw(Table::Finished, &key::finished(now, run), &[]);
    work.run_event(kind, run, reason, &detail);
    Ok(())
}
