//! An attempt failed, was stopped, or was given up by its claw; or a task could not even be dispatched.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{AttemptState, Done, FailTask, Reason, RejectionCode, TaskState};

use crate::graph::attempt::{self, AttemptEnd, Ran};
use crate::graph::end::{self, End};
use crate::halt::{Step, rejected};
use crate::ids::{AttemptNumber, ClawId, Fence, RunId, TaskIndex};
use crate::work::Work;
use crate::{row, state};

/// The longest message that is kept.
const MESSAGE_BYTES: usize = 1_024;

pub(crate) fn apply(work: &mut Work<'_>, command: &FailTask) -> Step<Answer> {
    let (run, task) = (RunId(command.run), TaskIndex(command.task));
    let message = row::cut(&command.message, MESSAGE_BYTES);
    if command.attempt == 0 && command.fence == 0 {
        return not_dispatched(work, run, task, command.reason(), &message);
    }
    let known = matches!(
        command.reason(),
        Reason::Timeout
            | Reason::OutOfMemory
            | Reason::Signal
            | Reason::Exit
            | Reason::StartError
            | Reason::OutputError
            | Reason::Cancelled
            | Reason::TemplateError
    );
    if !known {
        return rejected(RejectionCode::Invalid, "an attempt does not fail for this reason");
    }
    let row = attempt::holder(work, run, task, AttemptNumber(command.attempt), Fence(command.fence))?;
    let given_up = command.reason() == Reason::Cancelled;
    let end = AttemptEnd {
        state: if given_up { AttemptState::Cancelled } else { AttemptState::Failed },
        reason: command.reason(),
        exit_code: command.exit_code,
        signal: command.signal,
        message: &message,
    };
    // A claw that gives an attempt up (it shuts down) is no fault of the task: as if the claw were lost.
    let ran =
        if command.never_started && row.state() == TaskState::Dispatched { Ran::Never } else { Ran::Perhaps };
    match given_up {
        true => attempt::lose(work, run, task, row, &end, ran)?,
        false => attempt::fail(work, run, task, row, &end)?,
    }
    Ok(Answer::Done(Done {}))
}

/// The leader could not resolve the templates of a ready task.
fn not_dispatched(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    reason: Reason,
    message: &str,
) -> Step<Answer> {
    if reason != Reason::TemplateError {
        return rejected(RejectionCode::Invalid, "only a template error ends a task without an attempt");
    }
    work.known_run(run)?;
    let row = work.known_task(run, task)?;
    let stopping = work.run(run)?.stop.is_some();
    if row.state() != TaskState::Ready || stopping {
        // Names the transition that is not in the table.
        state::task_step(row.state(), TaskState::Failed)?;
        return rejected(RejectionCode::WrongState, "the task is not ready any more");
    }
    let end = End { state: TaskState::Failed, reason, message, claw: ClawId(0) };
    end::task(work, run, task, row, end)?;
    Ok(Answer::Done(Done {}))
}
