//! Grants ready tasks to claws. The log index of the entry is the fencing token of every attempt it starts. Each
//! grant is checked again here; one that no longer holds is counted as stale.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    AssignTasks, AssignmentRow, AttemptRow, AttemptState, ClawState, EventKind, Grant, Granted, Reason,
    RunState, TaskRow, TaskState,
};

use crate::graph::admission;
use crate::halt::Step;
use crate::ids::{AttemptNumber, ClawId, Fence, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, Touched, key, state};

pub(crate) fn apply(work: &mut Work<'_>, command: &AssignTasks) -> Step<Answer> {
    let mut answer = Granted { granted: 0, stale: 0 };
    if work.suspended()? {
        answer.stale = command.grants.len() as u32;
        return Ok(Answer::Granted(answer));
    }
    for grant in &command.grants {
        match holds(work, grant)? {
            Some(row) => {
                take(work, grant, row)?;
                answer.granted += 1;
            }
            None => answer.stale += 1,
        }
    }
    Ok(Answer::Granted(answer))
}

/// The task's row, when everything the plan relied on is still so.
fn holds(work: &mut Work<'_>, grant: &Grant) -> Step<Option<TaskRow>> {
    let (run, task) = (RunId(grant.run), TaskIndex(grant.task));
    if !work.has_run(run)? {
        return Ok(None);
    }
    let run_row = work.run(run)?;
    if run_row.stop.is_some() || state::run_ended(run_row.state()) || grant.task >= run_row.tasks {
        return Ok(None);
    }
    let free = |row: &clawhive_proto::ClawRow| row.state() == ClawState::Active && row.used < row.slots;
    if !work.claw(ClawId(grant.claw))?.is_some_and(free) {
        return Ok(None);
    }
    let row = work.task(run, task)?;
    if row.state() != TaskState::Ready || row.held || grant.attempt != row.attempt.saturating_add(1) {
        return Ok(None);
    }
    if row.attempt > 0 {
        // Tokens of one task grow strictly, also when an entry both loses an attempt and grants the next.
        let last = key::attempt(run, task, AttemptNumber(row.attempt));
        let last: Option<AttemptRow> = work.get(Table::Attempts, &last)?;
        if last.is_some_and(|last| last.fence >= work.log_index) {
            return Ok(None);
        }
    }
    Ok(Some(row))
}

fn take(work: &mut Work<'_>, grant: &Grant, mut row: TaskRow) -> Step<()> {
    let (run, task, claw) = (RunId(grant.run), TaskIndex(grant.task), ClawId(grant.claw));
    let fence = Fence(work.log_index);
    row.set_state(state::task_step(row.state(), TaskState::Dispatched)?);
    admission::leave(work, run, task, &mut row)?;
    row.attempt = grant.attempt;
    row.fence = fence.0;
    row.claw = claw.0;
    row.started_at_ms = 0;
    let attempt = AttemptRow {
        state: AttemptState::Dispatched as i32,
        claw: claw.0,
        fence: fence.0,
        dispatched_at_ms: work.now,
        ..AttemptRow::default()
    };
    work.put(Table::Attempts, &key::attempt(run, task, AttemptNumber(row.attempt)), &attempt);
    let assignment = AssignmentRow {
        attempt: row.attempt,
        resolved: grant.resolved.clone(),
        stop: false,
        stop_reason: Reason::Unspecified as i32,
    };
    work.put(Table::Assignments, &key::assignment(claw, fence, run, task), &assignment);
    work.touched.add(Touched::ASSIGNMENTS);

    let now = work.now;
    let claw_row = work.claw_mut(claw)?;
    if claw_row.used == 0 {
        // Nobody renewed a lease on nothing; it starts anew.
        claw_row.renewed_at_ms = now;
        claw_row.renew_seq += 1;
        claw_row.remaining_ms = None;
    }
    claw_row.used += 1;

    if work.run(run)?.state() == RunState::Pending {
        let run_row = work.run_mut(run)?;
        run_row.set_state(state::run_step(RunState::Pending, RunState::Running)?);
        work.run_event(EventKind::RunStarted, run, Reason::Unspecified, "");
    }
    work.task_event(EventKind::TaskDispatched, run, task, &row);
    work.put_task(run, task, &row);
    Ok(())
}
