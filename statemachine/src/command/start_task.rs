//! A claw reports that an attempt has started. Said twice with the right token, it changes nothing.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{AttemptRow, AttemptState, Done, EventKind, StartTask, TaskState};

use crate::graph::attempt;
use crate::halt::Step;
use crate::ids::{AttemptNumber, Fence, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, key, state};

pub(crate) fn apply(work: &mut Work<'_>, command: &StartTask) -> Step<Answer> {
    let (run, task) = (RunId(command.run), TaskIndex(command.task));
    let number = AttemptNumber(command.attempt);
    let mut row = attempt::holder(work, run, task, number, Fence(command.fence))?;
    if row.state() == TaskState::Running {
        return Ok(Answer::Done(Done {}));
    }
    row.set_state(state::task_step(row.state(), TaskState::Running)?);
    mark_started(work, run, task, &mut row, Some(AttemptState::Running))?;
    work.task_event(EventKind::TaskRunning, run, task, &row);
    work.put_task(run, task, &row);
    Ok(Answer::Done(Done {}))
}

/// Notes the time of the start on task, attempt and run; also for a report of the end that overtook that of the
/// start.
pub(crate) fn mark_started(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: &mut clawhive_proto::TaskRow,
    attempt_state: Option<AttemptState>,
) -> Step<()> {
    let now = work.now;
    row.started_at_ms = now;
    let key = key::attempt(run, task, AttemptNumber(row.attempt));
    if let Some(mut attempt) = work.get::<AttemptRow>(Table::Attempts, &key)? {
        attempt.started_at_ms = now;
        if let Some(state) = attempt_state {
            attempt.set_state(state);
        }
        work.put(Table::Attempts, &key, &attempt);
    }
    if work.run(run)?.started_at_ms == 0 {
        work.run_mut(run)?.started_at_ms = now;
    }
    Ok(())
}
