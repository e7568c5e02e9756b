//! Bringing a run to an end before its tasks are done: a cancel, a failure under `on_failure: stop`, a run timeout.
//! From the moment `stop` is set nothing of the run is made ready or assigned, and its edges are no longer told: the
//! sweep ends every task that no claw holds, and tells the claws to end the others.

use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::{AssignmentRow, EventKind, Reason, Stop, Sweep, TaskRow};

use crate::graph::end::{self, End};
use crate::halt::Step;
use crate::ids::{ClawId, Fence, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, Touched, key, state};

/// Starts to stop a run that has not ended and is not being stopped.
pub(crate) fn run(work: &mut Work<'_>, run: RunId, stop: Stop) -> Step<()> {
    work.run_event(EventKind::RunStopping, run, stop.reason(), &stop.message);
    work.run_mut(run)?.stop = Some(stop);
    work.fresh.push_back(Backlog::Sweep(Sweep { run: run.0, from: 0 }));
    Ok(())
}

/// Why the tasks of a run that is being stopped are cancelled.
pub(crate) fn task_reason(stop: &Stop) -> Reason {
    match stop.reason() {
        Reason::TaskFailed => Reason::Stopped,
        other => other,
    }
}

/// Ends a task of a run that is being stopped. Its attempt, if it had one, is closed.
pub(crate) fn cancel(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: TaskRow,
    message: &str,
    claw: ClawId,
) -> Step<()> {
    let reason = work.run(run)?.stop.as_ref().map_or(Reason::Cancelled, task_reason);
    let end = End { state: clawhive_proto::TaskState::Cancelled, reason, message, claw };
    end::task(work, run, task, row, end)
}

/// Does the next steps of a sweep; answers with what is left of it.
pub(crate) fn sweep(work: &mut Work<'_>, sweep: Sweep) -> Step<Option<Sweep>> {
    let run = RunId(sweep.run);
    if !work.has_run(run)? {
        return Ok(None);
    }
    let tasks = work.run(run)?.tasks;
    for index in sweep.from..tasks {
        if state::run_ended(work.run(run)?.state()) {
            return Ok(None);
        }
        if work.steps == 0 {
            return Ok(Some(Sweep { run: run.0, from: index }));
        }
        work.steps -= 1;
        let task = TaskIndex(index);
        let row = work.task(run, task)?;
        match row.state() {
            ended if state::task_ended(ended) => {}
            live if state::task_live(live) => tell_claw(work, run, task, &row)?,
            _ => cancel(work, run, task, row, "", ClawId(0))?,
        }
    }
    Ok(None)
}

/// Tells the claw that holds the task to end the attempt; its report closes it.
fn tell_claw(work: &mut Work<'_>, run: RunId, task: TaskIndex, row: &TaskRow) -> Step<()> {
    let key = key::assignment(ClawId(row.claw), Fence(row.fence), run, task);
    let reason = work.run(run)?.stop.as_ref().map_or(Reason::Cancelled, task_reason);
    let Some(mut assignment) = work.get::<AssignmentRow>(Table::Assignments, &key)? else {
        return Err(crate::halt::broken(alloc::format!(
            "task {task} of run {run} runs without an assignment"
        )));
    };
    assignment.stop = true;
    assignment.set_stop_reason(reason);
    work.put(Table::Assignments, &key, &assignment);
    work.touched.add(Touched::ASSIGNMENTS);
    Ok(())
}
