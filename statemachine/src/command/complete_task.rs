//! An attempt succeeded: its lease ends, its slot is free, its dependents hear of it, all in this entry.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{AttemptState, CompleteTask, Done, OutputRow, Reason, TaskState};

use crate::command::start_task::mark_started;
use crate::graph::attempt::{self, AttemptEnd};
use crate::graph::end::{self, End};
use crate::halt::Step;
use crate::ids::{AttemptNumber, Fence, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, key};

pub(crate) fn apply(work: &mut Work<'_>, command: &CompleteTask) -> Step<Answer> {
    let (run, task) = (RunId(command.run), TaskIndex(command.task));
    let number = AttemptNumber(command.attempt);
    let mut row = attempt::holder(work, run, task, number, Fence(command.fence))?;
    if row.state() == TaskState::Dispatched {
        mark_started(work, run, task, &mut row, None)?;
    }
    let closed = AttemptEnd {
        state: AttemptState::Succeeded,
        reason: Reason::Unspecified,
        exit_code: None,
        signal: None,
        message: "",
    };
    let claw = attempt::close(work, run, task, &mut row, &closed)?;
    if !command.outputs_json.is_empty() {
        let outputs = OutputRow { json: command.outputs_json.clone() };
        work.put(Table::Outputs, &key::task(run, task), &outputs);
    }
    let end = End { state: TaskState::Succeeded, reason: Reason::Unspecified, message: "", claw };
    end::task(work, run, task, row, end)?;
    Ok(Answer::Done(Done {}))
}
