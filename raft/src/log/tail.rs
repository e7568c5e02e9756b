//! The newest entries in memory, bounded in bytes.
//!
//! Owns: which entries are in memory. An entry that is not yet in a file is never evicted, since nothing
//! else can give it back. Must not: touch files.

use std::collections::VecDeque;

use super::types::LogEntry;

/// The end of the log. Its entries follow each other without a gap.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Entries with their serial numbers, which unlike indexes are never used twice.
    entries: VecDeque<(u64, LogEntry)>,
    bytes: usize,
    next_serial: u64,
}

impl Tail {
    /// Adds an entry and returns its serial number.
    pub(crate) fn push(&mut self, entry: LogEntry) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.bytes += entry.weight();
        self.entries.push_back((serial, entry));
        serial
    }

    /// The serial number the next entry will get.
    pub(crate) fn next_serial(&self) -> u64 {
        self.next_serial
    }

    /// The index of the oldest entry in memory.
    pub(crate) fn first(&self) -> Option<u64> {
        self.entries.front().map(|(_, entry)| entry.pos.index)
    }

    /// Drops entries after `keep`; `None`: all.
    pub(crate) fn truncate(&mut self, keep: Option<u64>) {
        while let Some((_, entry)) = self.entries.back() {
            if keep.is_some_and(|keep| entry.pos.index <= keep) {
                break;
            }
            self.bytes -= entry.weight();
            self.entries.pop_back();
        }
    }

    /// Drops entries up to `index`.
    pub(crate) fn purge(&mut self, index: u64) {
        while let Some((_, entry)) = self.entries.front() {
            if entry.pos.index > index {
                break;
            }
            self.bytes -= entry.weight();
            self.entries.pop_front();
        }
    }

    /// Drops the oldest entries until `limit` bytes are left, but none with serial `written` or above.
    pub(crate) fn evict(&mut self, limit: usize, written: u64) {
        while self.bytes > limit {
            match self.entries.front() {
                Some((serial, entry)) if *serial < written => {
                    self.bytes -= entry.weight();
                    self.entries.pop_front();
                }
                _ => break,
            }
        }
    }

    /// Copies entries from `from` up to but without `to`, as long as they fit in `budget` bytes; the first
    /// comes in any case. `from` must not be before [`Tail::first`].
    pub(crate) fn copy(&self, from: u64, to: u64, mut budget: usize, into: &mut Vec<LogEntry>) {
        let Some(first) = self.first() else { return };
        let skip = from.saturating_sub(first) as usize;
        let count = to.saturating_sub(from) as usize;
        for (_, entry) in self.entries.iter().skip(skip).take(count) {
            if !into.is_empty() && budget < entry.payload.len() {
                break;
            }
            budget = budget.saturating_sub(entry.payload.len());
            into.push(entry.clone());
        }
    }

    /// The bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::types::LogPos;

    fn entry(index: u64) -> LogEntry {
        LogEntry { pos: LogPos { term: 1, node: 0, index }, tag: 0, payload: Bytes::from_static(&[0; 104]) }
    }

    fn indexes(tail: &Tail, from: u64, to: u64, budget: usize) -> Vec<u64> {
        let mut found = Vec::new();
        tail.copy(from, to, budget, &mut found);
        found.iter().map(|entry| entry.pos.index).collect()
    }

    #[test]
    fn eviction_is_by_bytes_and_spares_what_is_not_written() {
        let mut tail = Tail::default();
        for index in 10..20 {
            tail.push(entry(index));
        }
        assert_eq!(tail.bytes(), 2000);
        tail.evict(500, 3);
        assert_eq!(tail.first(), Some(13), "serials 3 and up are not written");
        tail.evict(500, 100);
        assert_eq!((tail.first(), tail.bytes()), (Some(18), 400));
    }

    #[test]
    fn copies_are_limited_but_never_empty() {
        let mut tail = Tail::default();
        for index in 10..20 {
            tail.push(entry(index));
        }
        assert_eq!(indexes(&tail, 12, 15, usize::MAX), [12, 13, 14]);
        assert_eq!(indexes(&tail, 12, 15, 1), [12]);
        assert_eq!(indexes(&tail, 12, 20, 208), [12, 13]);
        tail.truncate(Some(16));
        tail.purge(12);
        assert_eq!(indexes(&tail, 13, 20, usize::MAX), [13, 14, 15, 16]);
        tail.truncate(None);
        assert_eq!((tail.first(), tail.bytes()), (None, 0));
    }
}
