//! Rows in memory, in front of the state file: what apply wrote and the flusher has not moved yet.
//!
//! Three layers, newest first: the batch that apply works on (an ordinary map, nobody else sees it), the active layer
//! (persistent map, cheap to clone for views) and the frozen layer (what the flusher is moving right now). A layer maps
//! a place to a row, or to a gravestone that hides the row below.
//! Must not: know of Raft, or do I/O other than reading through.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use clawhive_statemachine::{ReadStore, Store, Table, Value};
use imbl::OrdMap;

use crate::merge::{Layers, Slot};
use crate::rowkey::RowKey;
use crate::statefile::Rows;

/// What a row costs in memory beyond its bytes: map nodes and counters.
const ROW_OVERHEAD: usize = 128;

/// What one slot is accounted as.
fn weight(key: &RowKey, slot: &Slot) -> usize {
    key.len() + slot.as_ref().map_or(0, Value::len) + ROW_OVERHEAD
}

/// A persistent layer with its size.
#[derive(Clone, Default)]
pub(crate) struct Layer {
    pub(crate) rows: OrdMap<RowKey, Slot>,
    pub(crate) bytes: usize,
}

impl Layer {
    fn insert(&mut self, key: RowKey, slot: Slot) {
        let size = weight(&key, &slot);
        self.bytes += size;
        if let Some(old) = self.rows.insert(key.clone(), slot) {
            self.bytes -= weight(&key, &old);
        }
    }

    fn remove(&mut self, key: &RowKey) {
        if let Some(old) = self.rows.remove(key) {
            self.bytes -= weight(key, &old);
        }
    }
}

/// The store that apply writes to: one batch over active, frozen and the state file.
pub(crate) struct Batch<'a> {
    written: BTreeMap<RowKey, Slot>,
    active: &'a Layer,
    frozen: Option<&'a Layer>,
    disk: &'a Rows,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(active: &'a Layer, frozen: Option<&'a Layer>, disk: &'a Rows) -> Batch<'a> {
        Batch { written: BTreeMap::new(), active, frozen, disk }
    }

    /// The batch's rows, to be merged into the active layer.
    pub(crate) fn finish(self) -> BTreeMap<RowKey, Slot> {
        self.written
    }

    fn layers(&self) -> Layers<'_> {
        Layers {
            batch: Some(&self.written),
            active: &self.active.rows,
            frozen: self.frozen.map(|layer| &layer.rows),
            disk: self.disk,
        }
    }
}

impl ReadStore for Batch<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Option<Value> {
        self.layers().get(&RowKey::new(table, key))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        self.layers().scan(table, from, until, false, visit);
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        self.layers().scan(table, from, until, true, visit);
    }
}

impl Store for Batch<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: Value) {
        self.written.insert(RowKey::new(table, key), Some(value));
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.written.insert(RowKey::new(table, key), None);
    }
}

/// Merges a batch into the active layer. A gravestone over nothing is dropped where that is worth the lookup: in tables
/// of short-lived rows, whose scans would otherwise wade through the dead until the next flush.
pub(crate) fn merge(
    written: BTreeMap<RowKey, Slot>,
    active: &mut Layer,
    frozen: Option<&Layer>,
    disk: &Rows,
) {
    for (key, slot) in written {
        if slot.is_none() && short_lived(&key) && !frozen.is_some_and(|layer| layer.rows.contains_key(&key)) {
            // Uniqueness of the key is a hint, not relied on: a row may have been written again after it reached the
            // disk, and would come back without its gravestone.
            if disk.get(&key).is_none() {
                active.remove(&key);
                continue;
            }
        }
        active.insert(key, slot);
    }
}

fn short_lived(key: &RowKey) -> bool {
    Table::from_number(key[0]).is_some_and(Table::keys_are_unique)
}
