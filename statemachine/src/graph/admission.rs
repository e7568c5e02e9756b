//! From "all upstreams succeeded" to the ready index, and out of it. A run with `max_parallel` has at most so many
//! tasks in the index, dispatched or running; the others are held in order, so that a plan never has to skip over
//! tasks that may not start.

use clawhive_proto::{TaskRow, TaskState, TimerKind, TimerRow};

use crate::halt::{Step, broken};
use crate::ids::{RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, Touched, key, row, state};

/// Makes a pending or retrying task ready: into the index, or into the held queue. The caller stores the row.
pub(crate) fn make_ready(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: &mut TaskRow,
    queue_ms: u64,
) -> Step<()> {
    take_place(work, row)?;
    let run_row = work.run_mut(run)?;
    if run_row.max_parallel > 0 && run_row.admitted >= run_row.max_parallel {
        run_row.held += 1;
        row.held = true;
        work.put_raw(Table::Held, &key::held(run, row.ready_seq), &key::held_value(task));
        return Ok(());
    }
    run_row.admitted += 1;
    enter_index(work, run, task, row, queue_ms)
}

/// Makes a task ready again that was dispatched or running: it keeps its place under `max_parallel`.
pub(crate) fn ready_again(work: &mut Work<'_>, run: RunId, task: TaskIndex, row: &mut TaskRow) -> Step<()> {
    take_place(work, row)?;
    let queue_ms = work.spec(run, task)?.queue_ms();
    enter_index(work, run, task, row, queue_ms)
}

fn take_place(work: &mut Work<'_>, row: &mut TaskRow) -> Step<()> {
    row.set_state(state::task_step(row.state(), TaskState::Ready)?);
    row.reason = 0;
    row.ready_at_ms = work.now;
    row.timer_due_ms = 0;
    row.held = false;
    row.ready_seq = work.meta.next_ready;
    work.meta.next_ready += 1;
    Ok(())
}

fn enter_index(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: &mut TaskRow,
    queue_ms: u64,
) -> Step<()> {
    let priority = work.run(run)?.priority;
    work.put_raw(Table::Ready, &key::ready(priority, row.ready_seq), &key::task(run, task));
    work.touched.add(Touched::READY);
    if queue_ms > 0 {
        set_timer(work, run, task, row, TimerKind::QueueTimeout, queue_ms);
    }
    Ok(())
}

/// Takes a ready task out of the index or the held queue. It still counts as admitted if it was.
pub(crate) fn leave(work: &mut Work<'_>, run: RunId, task: TaskIndex, row: &mut TaskRow) -> Step<()> {
    if row.held {
        row.held = false;
        let run_row = work.run_mut(run)?;
        run_row.held = run_row.held.checked_sub(1).ok_or_else(|| broken("more held tasks left than came"))?;
        work.delete(Table::Held, &key::held(run, row.ready_seq));
    } else {
        let priority = work.run(run)?.priority;
        work.delete(Table::Ready, &key::ready(priority, row.ready_seq));
        clear_timer(work, run, task, row, TimerKind::QueueTimeout);
    }
    row.ready_seq = 0;
    Ok(())
}

/// Gives back a place under `max_parallel`, and lets the next held task have it.
pub(crate) fn release(work: &mut Work<'_>, run: RunId) -> Step<()> {
    let run_row = work.run_mut(run)?;
    run_row.admitted =
        run_row.admitted.checked_sub(1).ok_or_else(|| broken("more tasks left a run than came"))?;
    let room = run_row.held > 0 && run_row.admitted < run_row.max_parallel && run_row.stop.is_none();
    if !room {
        return Ok(());
    }
    let prefix = key::run(run);
    let Some((held_key, value)) =
        row::first(work.view(), Table::Held, &prefix, key::after(&prefix).as_deref())
    else {
        return Err(broken(alloc::format!("run {run} counts held tasks but has none")));
    };
    let task = TaskIndex(key::u32_at(&value, 0).ok_or_else(|| row::damaged(Table::Held, &held_key))?);
    work.delete(Table::Held, &held_key);
    let run_row = work.run_mut(run)?;
    run_row.held -= 1;
    run_row.admitted += 1;
    let mut row = work.task(run, task)?;
    row.held = false;
    let queue_ms = work.spec(run, task)?.queue_ms();
    enter_index(work, run, task, &mut row, queue_ms)?;
    work.put_task(run, task, &row);
    Ok(())
}

/// Sets the one timer that a task may have.
pub(crate) fn set_timer(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: &mut TaskRow,
    kind: TimerKind,
    after_ms: u64,
) {
    row.timer_due_ms = work.now.saturating_add(after_ms);
    work.put(Table::Timers, &key::timer(row.timer_due_ms, kind, run, task), &TimerRow {});
    work.touched.add(Touched::TIMERS);
}

/// Removes the timer of a task, if it has one.
pub(crate) fn clear_timer(
    work: &mut Work<'_>,
    run: RunId,
    task: TaskIndex,
    row: &mut TaskRow,
    kind: TimerKind,
) {
    if row.timer_due_ms > 0 {
        work.delete(Table::Timers, &key::timer(row.timer_due_ms, kind, run, task));
        row.timer_due_ms = 0;
    }
}
