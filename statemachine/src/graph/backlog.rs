//! Work that an entry frees: edges to tell, runs to sweep, history to drop. An entry does its own work up to its
//! budget and leaves the rest as rows of the backlog, which `Advance` commands go on with. So no entry touches an
//! unbounded number of rows, and nothing here recurses: a blocked chain of any length is a queue.

use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::{BacklogRow, Drop, Edges, Reason, TaskState};
use core::ops::ControlFlow;

use crate::graph::end::{self, End};
use crate::graph::{admission, stop};
use crate::halt::{Step, broken};
use crate::ids::{ClawId, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, key, row, state};

/// Does the work this entry has freed, while its budget lasts.
pub(crate) fn run_fresh(work: &mut Work<'_>) -> Step<()> {
    while work.steps > 0 {
        let Some(item) = work.fresh.pop_front() else { return Ok(()) };
        if let Some(rest) = step(work, item)? {
            work.fresh.push_front(rest);
        }
    }
    Ok(())
}

/// Does stored work, oldest first, and what it frees, while the budget lasts. True when something is left.
pub(crate) fn run_stored(work: &mut Work<'_>) -> Step<bool> {
    loop {
        run_fresh(work)?;
        let stored = row::first(work.view(), Table::Backlog, &[], None);
        let Some((key, value)) = stored else { return Ok(!work.fresh.is_empty()) };
        if work.steps == 0 {
            return Ok(true);
        }
        let item: BacklogRow = row::decode(Table::Backlog, &key, value)?;
        let kind = item.kind.ok_or_else(|| row::damaged(Table::Backlog, &key))?;
        // What is left of it gets a new place at the end: runs take turns, and no key is ever stored twice.
        work.delete(Table::Backlog, &key);
        work.fresh.push_back(kind);
    }
}

fn step(work: &mut Work<'_>, item: Backlog) -> Step<Option<Backlog>> {
    Ok(match item {
        Backlog::Edges(it) => edges(work, it)?.map(Backlog::Edges),
        Backlog::Sweep(it) => stop::sweep(work, it)?.map(Backlog::Sweep),
        Backlog::Drop(it) => drop_run(work, it)?.map(Backlog::Drop),
    })
}

/// Tells the dependents of an ended task.
fn edges(work: &mut Work<'_>, item: Edges) -> Step<Option<Edges>> {
    let (run, source) = (RunId(item.run), TaskIndex(item.task));
    if !work.has_run(run)? {
        return Ok(None);
    }
    let run_row = work.run(run)?;
    if run_row.stop.is_some() || state::run_ended(run_row.state()) {
        return Ok(None);
    }
    let spec = work.spec(run, source)?;
    if spec.dependents.is_empty() {
        return Ok(None);
    }
    let succeeded = work.task(run, source)?.state() == TaskState::Succeeded;
    for (position, dependent) in spec.dependents.iter().enumerate().skip(item.from as usize) {
        if work.steps == 0 {
            return Ok(Some(Edges { from: position as u32, ..item }));
        }
        work.steps -= 1;
        tell(work, run, TaskIndex(*dependent), succeeded)?;
    }
    Ok(None)
}

/// One upstream of `task` has ended.
fn tell(work: &mut Work<'_>, run: RunId, task: TaskIndex, succeeded: bool) -> Step<()> {
    let mut row = work.task(run, task)?;
    if row.state() != TaskState::Pending || row.remaining == 0 {
        return Err(broken(alloc::format!("task {task} of run {run} was told of one upstream too many")));
    }
    row.remaining -= 1;
    row.failed_upstreams += u32::from(!succeeded);
    if row.remaining > 0 {
        work.put_task(run, task, &row);
        return Ok(());
    }
    if row.failed_upstreams > 0 {
        let end =
            End { state: TaskState::UpstreamFailed, reason: Reason::Upstream, message: "", claw: ClawId(0) };
        return end::task(work, run, task, row, end);
    }
    let queue_ms = work.spec(run, task)?.queue_ms();
    admission::make_ready(work, run, task, &mut row, queue_ms)?;
    work.put_task(run, task, &row);
    Ok(())
}

/// Drops rows of a run whose own row is gone already.
fn drop_run(work: &mut Work<'_>, item: Drop) -> Step<Option<Drop>> {
    let prefix = key::run(RunId(item.run));
    for table in [Table::Tasks, Table::Attempts, Table::Outputs, Table::RunEvents] {
        let limit = work.steps as usize;
        let mut keys = alloc::vec::Vec::new();
        row::scan_prefix(work.view(), table, &prefix, &mut |key, _| {
            if keys.len() == limit {
                return ControlFlow::Break(());
            }
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        });
        for key in &keys {
            work.delete(table, key);
        }
        work.steps -= keys.len() as u32;
        if work.steps == 0 {
            return Ok(Some(item));
        }
    }
    Ok(None)
}
