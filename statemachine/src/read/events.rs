//! Events, of everything and of one run.

use alloc::vec::Vec;
use clawhive_proto::EventBatch;
use clawhive_proto::prost::Message;
use core::ops::ControlFlow;

use crate::ids::RunId;
use crate::read::{self, sound, sound_key};
use crate::{ReadStore, Table, key};

/// A page size that suits most callers.
pub const EVENTS_PAGE: usize = 512;

/// A page ends after so many bytes, whatever its size: who reads slowly holds one page in memory.
const PAGE_BYTES: usize = 256 * 1024;

/// Events up to this log index have been dropped: who goes on from an earlier place has a gap.
pub fn compacted(view: &dyn ReadStore) -> u64 {
    read::meta(view).events_compacted
}

/// Batches with a log index above `after`, in order: at most `limit`, and no more once they are large.
pub fn events(view: &dyn ReadStore, after: u64, limit: usize) -> Vec<(u64, EventBatch)> {
    let mut found = Vec::new();
    let Some(from) = after.checked_add(1) else { return found };
    if limit == 0 {
        return found;
    }
    let mut bytes = 0;
    view.scan(Table::Events, &key::event(from), None, &mut |key, value| {
        let index = sound_key(Table::Events, key, key::u64_at(key, 0));
        bytes += value.len();
        found.push((index, sound(Table::Events, key, value.clone())));
        let more = found.len() < limit && bytes < PAGE_BYTES;
        if more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}

/// As [`events`], with the events of one run only. Of a batch that outlived its retention nothing is left.
pub fn run_events(view: &dyn ReadStore, run: RunId, after: u64, limit: usize) -> Vec<(u64, EventBatch)> {
    let mut indexes = Vec::new();
    let Some(from) = after.max(compacted(view)).checked_add(1) else { return Vec::new() };
    if limit == 0 {
        return Vec::new();
    }
    let until = key::after(&key::run(run));
    view.scan(Table::RunEvents, &key::run_event(run, from), until.as_deref(), &mut |key, _| {
        indexes.push(sound_key(Table::RunEvents, key, key::u64_at(key, 8)));
        if indexes.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let mut bytes = 0;
    let mut found = Vec::new();
    for index in indexes {
        let key = key::event(index);
        let Some(value) = view.get(Table::Events, &key) else { continue };
        let mut batch: EventBatch = sound(Table::Events, &key, value);
        batch.events.retain(|event| event.run == run.0);
        bytes += batch.encoded_len();
        found.push((index, batch));
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    found
}
