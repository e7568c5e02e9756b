//! Reading through the layers: the newest slot of a place wins, gravestones hide.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use clawhive_statemachine::{Table, Value};
use imbl::OrdMap;

use crate::rowkey::RowKey;
use crate::statefile::{DiskRange, Rows};

/// A row, or the gravestone of one.
pub(crate) type Slot = Option<Value>;

type Head<'a> = Option<(&'a RowKey, &'a Slot)>;
type MemoryRange<'a> = Box<dyn Iterator<Item = (&'a RowKey, &'a Slot)> + 'a>;

/// Layers over the state file, newest first.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'a> {
    pub(crate) batch: Option<&'a BTreeMap<RowKey, Slot>>,
    pub(crate) active: &'a OrdMap<RowKey, Slot>,
    pub(crate) frozen: Option<&'a OrdMap<RowKey, Slot>>,
    pub(crate) disk: &'a Rows,
}

impl<'a> Layers<'a> {
    pub(crate) fn get(&self, key: &RowKey) -> Option<Value> {
        let slot = self
            .batch
            .and_then(|rows| rows.get(key))
            .or_else(|| self.active.get(key))
            .or_else(|| self.frozen.and_then(|rows| rows.get(key)));
        match slot {
            Some(slot) => slot.clone(),
            None => self.disk.get(key),
        }
    }

    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        back: bool,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        let Some((lower, upper)) = RowKey::bounds(table, from, until) else { return };
        let mut merged = Merged { back, memory: Vec::with_capacity(3), disk: DiskCursor::default() };
        if let Some(rows) = self.batch {
            let range = rows.range((lower.clone(), upper.clone()));
            merged.push(if back { Box::new(range.rev()) } else { Box::new(range) });
        }
        for rows in [Some(self.active), self.frozen].into_iter().flatten().filter(|rows| !rows.is_empty()) {
            let range = rows.range((lower.clone(), upper.clone()));
            merged.push(if back { Box::new(range.rev()) } else { Box::new(range) });
        }
        merged.disk = DiskCursor::new(self.disk.range((lower, upper), back));
        while let Some((place, value)) = merged.next() {
            if visit(&place[1..], &value).is_break() {
                return;
            }
        }
    }
}

/// One walk over all layers.
struct Merged<'a> {
    back: bool,
    memory: Vec<(Head<'a>, MemoryRange<'a>)>,
    disk: DiskCursor,
}

#[derive(Default)]
struct DiskCursor {
    head: Option<(Vec<u8>, Value)>,
    range: Option<DiskRange>,
}

impl DiskCursor {
    fn new(range: Option<DiskRange>) -> DiskCursor {
        let mut cursor = DiskCursor { head: None, range };
        cursor.advance();
        cursor
    }

    fn advance(&mut self) {
        self.head = self.range.as_mut().and_then(DiskRange::next_row);
    }
}

/// A place found by the walk: in memory it is borrowed, from the disk it is ours.
enum Place<'a> {
    Memory(&'a RowKey),
    Disk(Vec<u8>),
}

impl std::ops::Deref for Place<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Place::Memory(key) => key,
            Place::Disk(bytes) => bytes,
        }
    }
}

impl<'a> Merged<'a> {
    fn push(&mut self, mut range: MemoryRange<'a>) {
        if let head @ Some(_) = range.next() {
            self.memory.push((head, range));
        }
    }

    fn earlier(&self, a: &[u8], b: &[u8]) -> bool {
        if self.back { a > b } else { a < b }
    }

    /// The next living row.
    fn next(&mut self) -> Option<(Place<'a>, Value)> {
        loop {
            let mut best: Head<'a> = None;
            for (head, _) in &self.memory {
                if let Some((key, slot)) = *head
                    && best.is_none_or(|(first, _)| self.earlier(key, first))
                {
                    best = Some((key, slot));
                }
            }
            let disk_first = match (&best, &self.disk.head) {
                (_, None) => false,
                (None, Some(_)) => true,
                (Some((key, _)), Some((place, _))) => self.earlier(place, key),
            };
            if disk_first {
                let (place, value) = self.disk.head.take()?;
                self.disk.advance();
                return Some((Place::Disk(place), value));
            }
            let (key, slot) = best?;
            for (head, range) in &mut self.memory {
                if head.is_some_and(|(other, _)| other == key) {
                    *head = range.next();
                }
            }
            if self.disk.head.as_ref().is_some_and(|(place, _)| place[..] == **key) {
                self.disk.advance();
            }
            if let Some(value) = slot {
                return Some((Place::Memory(key), value.clone()));
            }
        }
    }
}
