//! Events, of everything and of one run.

use alloc::vec::Vec;
use clawhive_proto::EventBatch;
use core::ops::ControlFlow;

use crate::ids::RunId;
use crate::read::{sound, sound_key};
use crate::{ReadStore, Table, key};

/// A page size that suits most callers.
pub const EVENTS_PAGE: usize = 512;

/// At most `limit` batches with a log index above `after`, in order.
pub fn events(view: &dyn ReadStore, after: u64, limit: usize) -> Vec<(u64, EventBatch)> {
    let mut found = Vec::new();
    let Some(from) = after.checked_add(1) else { return found };
    if limit == 0 {
        return found;
    }
    view.scan(Table::Events, &key::event(from), None, &mut |key, value| {
        let index = sound_key(Table::Events, key, key::u64_at(key, 0));
        found.push((index, sound(Table::Events, key, value.clone())));
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}

/// As [`events`], with the events of one run only. A batch that outlived its retention is left out.
pub fn run_events(view: &dyn ReadStore, run: RunId, after: u64, limit: usize) -> Vec<(u64, EventBatch)> {
    let mut indexes = Vec::new();
    let Some(from) = after.checked_add(1) else { return Vec::new() };
    if limit == 0 {
        return Vec::new();
    }
    let until = key::after(&key::run(run));
    view.scan(Table::RunEvents, &key::run_event(run, from), until.as_deref(), &mut |key, _| {
        indexes.push(sound_key(Table::RunEvents, key, key::u64_at(key, 8)));
        if indexes.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let batch = |index: u64| {
        let key = key::event(index);
        let mut batch: EventBatch = sound(Table::Events, &key, view.get(Table::Events, &key)?);
        batch.events.retain(|event| event.run == run.0);
        Some((index, batch))
    };
    indexes.into_iter().filter_map(batch).collect()
}
