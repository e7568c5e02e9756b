//! Drops what has outlived its time: request ids, idempotency keys, finished runs, events. The rows of a dropped run
//! go through the backlog, since a run may have any number of them.

use alloc::vec::Vec;
use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Collect, Drop, EventBatch, EventKind, Progress, Reason};
use core::ops::ControlFlow;

use crate::halt::Step;
use crate::ids::RunId;
use crate::work::Work;
use crate::{Table, key, row};

/// How long finished runs and events are kept.
pub(crate) const HISTORY_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The most rows that one entry collects, whatever it asks for.
const MAX_ROWS: u32 = 10_000;

pub(crate) fn apply(work: &mut Work<'_>, command: &Collect) -> Step<Answer> {
    let mut left = command.limit.min(MAX_ROWS) as usize;
    let asked = left;
    expire(work, Table::RequestExpiry, Table::Requests, &mut left);
    expire(work, Table::IdempotencyExpiry, Table::Idempotency, &mut left);
    // What ended at this time or before is dropped.
    if let Some(horizon) = work.now.checked_sub(HISTORY_MS) {
        drop_runs(work, horizon, &mut left)?;
        drop_events(work, horizon, &mut left)?;
    }
    Ok(Answer::Progress(Progress { done: (asked - left) as u32, more: left == 0 }))
}

/// Keys of an index that starts with a time, up to and including `until`.
fn due(work: &Work<'_>, index: Table, until: u64, limit: usize) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let end = until.checked_add(1).map(u64::to_be_bytes);
    work.view().scan(index, &[], end.as_ref().map(|end| end.as_slice()), &mut |key, _| {
        if keys.len() == limit {
            return ControlFlow::Break(());
        }
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    });
    keys
}

/// Removes rows of `of` whose expiry index says so; the key there is the row's key after the time.
fn expire(work: &mut Work<'_>, index: Table, of: Table, left: &mut usize) {
    for key in due(work, index, work.now, *left) {
        work.delete(index, &key);
        work.delete(of, key.get(8..).unwrap_or_default());
        *left -= 1;
    }
}

fn drop_runs(work: &mut Work<'_>, horizon: u64, left: &mut usize) -> Step<()> {
    for key in due(work, Table::Finished, horizon, *left) {
        let run = RunId(key::u64_at(&key, 8).ok_or_else(|| row::damaged(Table::Finished, &key))?);
        work.delete(Table::Finished, &key);
        work.delete_run(run);
        work.fresh.push_back(Backlog::Drop(Drop { run: run.0, from: 0 }));
        work.event(clawhive_proto::Event {
            kind: EventKind::RunDropped as i32,
            // Not under `run`: the index of the run's events is being dropped too.
            detail: alloc::format!("run {run}"),
            reason: Reason::Unspecified as i32,
            ..Default::default()
        });
        *left -= 1;
    }
    Ok(())
}

fn drop_events(work: &mut Work<'_>, horizon: u64, left: &mut usize) -> Step<()> {
    while *left > 0 {
        let Some((key, value)) = row::first(work.view(), Table::Events, &[], None) else { return Ok(()) };
        let batch: EventBatch = row::decode(Table::Events, &key, value)?;
        if batch.time_ms > horizon {
            return Ok(());
        }
        work.delete(Table::Events, &key);
        // Readers with a place before this one have a gap. The first release did not say so.
        if work.level() >= 2 {
            work.meta.events_compacted = key::u64_at(&key, 0).unwrap_or_default();
        }
        *left -= 1;
    }
    Ok(())
}
