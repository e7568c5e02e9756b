//! Fires timers that are due. One that was removed meanwhile, or is not due at the entry's time, is skipped.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    EventKind, FireTimers, Progress, Reason, RunState, Stop, TaskState, TimerKey, TimerKind,
};

use crate::graph::end::{self, End};
use crate::graph::{admission, stop};
use crate::halt::Step;
use crate::ids::{ClawId, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, key, state};

pub(crate) fn apply(work: &mut Work<'_>, command: &FireTimers) -> Step<Answer> {
    let mut done = 0;
    if work.suspended()? {
        return Ok(Answer::Progress(Progress { done, more: false }));
    }
    for timer in &command.timers {
        let (run, task) = (RunId(timer.run), TaskIndex(timer.task));
        let key = key::timer(timer.due_ms, timer.kind(), run, task);
        if timer.due_ms > work.now || work.raw(Table::Timers, &key).is_none() {
            continue;
        }
        work.delete(Table::Timers, &key);
        fire(work, timer, run, task)?;
        done += 1;
    }
    Ok(Answer::Progress(Progress { done, more: false }))
}

fn fire(work: &mut Work<'_>, timer: &TimerKey, run: RunId, task: TaskIndex) -> Step<()> {
    if timer.kind() == TimerKind::RunTimeout {
        let run_row = work.run(run)?;
        if run_row.stop.is_none() && !state::run_ended(run_row.state()) {
            let message = alloc::format!("the run took longer than {} ms", run_row.timeout_ms);
            let (state, reason) = (RunState::Failed as i32, Reason::RunTimeout as i32);
            stop::run(work, run, Stop { state, reason, message })?;
        }
        return Ok(());
    }
    let mut row = work.task(run, task)?;
    // The row is gone from the table already.
    row.timer_due_ms = 0;
    if work.run(run)?.stop.is_some() {
        // The sweep has not come by yet.
        return stop::cancel(work, run, task, row, "", ClawId(0));
    }
    if row.state() == TaskState::Retrying {
        let queue_ms = work.spec(run, task)?.queue_ms();
        admission::make_ready(work, run, task, &mut row, queue_ms)?;
        work.task_event(EventKind::TaskReady, run, task, &row);
        work.put_task(run, task, &row);
        return Ok(());
    }
    let message = "no claw took it in time";
    let end = End { state: TaskState::Failed, reason: Reason::QueueTimeout, message, claw: ClawId(0) };
    end::task(work, run, task, row, end)
}
