//! The end of an attempt: the lease ends and the slot is given back in the same step, then the policy says what
//! becomes of the task.

use clawhive_proto::{
    AttemptRow, AttemptState, EventKind, Reason, RejectionCode, TaskRow, TaskState, TimerKind,
};

use crate::graph::end::{self, End};
use crate::graph::{admission, stop};
use crate::halt::{Step, broken, rejected};
use crate::ids::{AttemptNumber, ClawId, Fence, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, Touched, key, row, state};

/// How often in a row an attempt may be lost with its claw, without counting as a try.
pub(crate) const MAX_LOSSES: u32 = 3;

/// How an attempt ends.
pub(crate) struct AttemptEnd<'a> {
    pub state: AttemptState,
    pub reason: Reason,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub message: &'a str,
}

/// The task a report is about, if the report's token is the current one.
pub(crate) fn holder(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    attempt: AttemptNumber,
    fence: Fence,
) -> Step<TaskRow> {
    work.known_run(run)?;
    let row = work.known_task(run, task)?;
    let current = state::task_live(row.state()) && row.fence == fence.0 && row.attempt == attempt.0;
    match current {
        true => Ok(row),
        false => rejected(
            RejectionCode::StaleFence,
            alloc::format!(
                "token {fence} of attempt {attempt} of task {task} of run {run} is not the current one"
            ),
        ),
    }
}

/// Closes the current attempt: its row, its assignment, its claw's slot. The task's row loses token and claw, its
/// state is the caller's.
pub(crate) fn close(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: &mut TaskRow,
    end: &AttemptEnd<'_>,
) -> Step<ClawId> {
    let claw = ClawId(row.claw);
    let key = key::attempt(run, task, AttemptNumber(row.attempt));
    let Some(mut attempt) = work.get::<AttemptRow>(Table::Attempts, &key)? else {
        return Err(broken(alloc::format!("attempt {} of task {task} of run {run} is gone", row.attempt)));
    };
    attempt.set_state(end.state);
    attempt.set_reason(end.reason);
    attempt.exit_code = end.exit_code;
    attempt.signal = end.signal;
    attempt.message = end.message.into();
    attempt.ended_at_ms = work.now;
    work.put(Table::Attempts, &key, &attempt);
    work.delete(Table::Assignments, &key::assignment(claw, Fence(row.fence), run, task));
    let claw_row = work.claw_mut(claw)?;
    claw_row.used = claw_row.used.checked_sub(1).ok_or_else(|| broken("more slots given back than taken"))?;
    row.fence = 0;
    row.claw = 0;
    // A slot is free: whatever is ready can have it.
    work.touched.add(Touched::ASSIGNMENTS.with(Touched::READY));
    Ok(claw)
}

/// What is known of an attempt whose claw lost it or gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It may have run, in part or as a whole.
    Perhaps,
    /// Its claw vouches that nothing of it ever ran.
    Never,
}

/// Why an attempt that was lost is the last one.
const AT_MOST_ONCE: &str = "it may have run, and delivery: at_most_once does not run it again";

/// An attempt that ended through no fault of its task: its claw is gone, or gave it up. It runs again at once, unless it
/// may have run and the task must not run twice.
pub(crate) fn lose(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    mut row: TaskRow,
    end: &AttemptEnd<'_>,
    ran: Ran,
) -> Step<()> {
    let stopping = work.run(run)?.stop.is_some();
    let last = ran == Ran::Perhaps && !stopping && work.spec(run, task)?.at_most_once();
    let end = &AttemptEnd { message: if last { AT_MOST_ONCE } else { end.message }, ..*end };
    let claw = close(work, run, task, &mut row, end)?;
    if stopping {
        return stop::cancel(work, run, task, row, end.message, claw);
    }
    if last {
        let end = End { state: TaskState::Failed, reason: Reason::LostClaw, message: end.message, claw };
        return end::task(work, run, task, row, end);
    }
    row.losses += 1;
    if row.losses > MAX_LOSSES {
        let end = End { state: TaskState::Failed, reason: end.reason, message: end.message, claw };
        return end::task(work, run, task, row, end);
    }
    work.event(clawhive_proto::Event {
        kind: EventKind::AttemptFailed as i32,
        run: run.0,
        task_plus_1: task.0 + 1,
        attempt: row.attempt,
        claw: claw.0,
        reason: end.reason as i32,
        detail: end.message.into(),
        ..Default::default()
    });
    row.message = end.message.into();
    admission::ready_again(work, run, task, &mut row)?;
    work.task_event(EventKind::TaskReady, run, task, &row);
    work.put_task(run, task, &row);
    Ok(())
}

/// An attempt that failed: a retry when the policy has one left, else the end of the task.
pub(crate) fn fail(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    mut row: TaskRow,
    end: &AttemptEnd<'_>,
) -> Step<()> {
    let claw = close(work, run, task, &mut row, end)?;
    if work.run(run)?.stop.is_some() {
        return stop::cancel(work, run, task, row, end.message, claw);
    }
    row.tries += 1;
    row.losses = 0;
    let spec = work.spec(run, task)?;
    let again = row.tries < spec.max_attempts() && retried(end.reason) && !spec.at_most_once();
    let policy = spec.retries().filter(|_| again);
    let Some(policy) = policy else {
        let end = End { state: TaskState::Failed, reason: end.reason, message: end.message, claw };
        return end::task(work, run, task, row, end);
    };
    let draw = row::mix([run.0, u64::from(task.0), u64::from(row.attempt)]);
    let delay_ms = row::retry_delay_ms(policy, row.tries, draw);
    row.set_state(state::task_step(row.state(), TaskState::Retrying)?);
    row.set_reason(end.reason);
    row.message = end.message.into();
    admission::set_timer(work, run, task, &mut row, TimerKind::Retry, delay_ms);
    work.task_event_because(EventKind::TaskRetrying, run, task, &row, end.message);
    work.put_task(run, task, &row);
    admission::release(work, run)
}

fn retried(reason: Reason) -> bool {
    reason != Reason::TemplateError
}
