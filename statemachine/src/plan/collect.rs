//! When something has outlived its time. It is collected a little late, so that a stream of requests is collected in
//! batches.

use clawhive_proto::{Collect, EventBatch};

use crate::command::collect::HISTORY_MS;
use crate::read::sound;
use crate::{ReadStore, Table, key, row};

/// How late.
pub const SLACK_MS: u64 = 5_000;

/// How many rows one command may drop.
pub const BATCH: u32 = 2_000;

/// What to collect now, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectPlan {
    /// None when nothing is due.
    pub command: Option<Collect>,
    /// When the next row is due; in the past when `command` is given; none when nothing has an end.
    pub next_due_ms: Option<u64>,
}

/// Plans the next collection.
pub fn plan(view: &dyn ReadStore, now_ms: u64) -> CollectPlan {
    let first_time = |index: Table| {
        let (row_key, _) = row::first(view, index, &[], None)?;
        key::u64_at(&row_key, 0)
    };
    let first_event = row::first(view, Table::Events, &[], None).map(|(row_key, value)| {
        let batch: EventBatch = sound(Table::Events, &row_key, value);
        batch.time_ms
    });
    let ends = [
        first_time(Table::RequestExpiry),
        first_time(Table::IdempotencyExpiry),
        first_time(Table::Finished).map(|ended| ended.saturating_add(HISTORY_MS)),
        first_event.map(|time| time.saturating_add(HISTORY_MS)),
        first_time(Table::OccurrenceExpiry).map(|recorded| recorded.saturating_add(HISTORY_MS)),
    ];
    let next_due_ms = ends.into_iter().flatten().min().map(|end| end.saturating_add(SLACK_MS));
    let command = next_due_ms.filter(|due| *due <= now_ms).map(|_| Collect { limit: BATCH });
    CollectPlan { command, next_due_ms }
}
