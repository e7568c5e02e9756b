//! Which segment has which entry: the sparse index.
//!
//! Owns: the list of segments and, for each, points from an index to an offset: one at least every 64 KiB,
//! and one wherever entries don't simply follow each other. Thereby the last point at or before an index
//! leads to the entry in force, though a truncated one with the same index may still lie in a file.
//! Must not: read or write files, except through [`Span::read`].

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::read_full;

use super::error::LogError;
use super::record::{self, Record};
use super::segment::Segment;
use super::types::LogEntry;

/// How far apart points are at most, not counting a record that is larger.
pub(crate) const POINT_EVERY: usize = 64 << 10;

/// What the writer did to the index, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    Point {
        index: u64,
        offset: u64,
    },
    /// Entries after this index are void.
    Cut {
        keep: Option<u64>,
    },
}

struct Listed {
    segment: Arc<Segment>,
    /// The index of the last entry before the segment.
    base: Option<u64>,
    /// Where its records end.
    end: u64,
    points: Vec<(u64, u64)>,
}

/// All segments, oldest first.
#[derive(Default)]
pub(crate) struct Catalog {
    segments: VecDeque<Listed>,
}

/// A part of a segment that has the entries from `first` up to but without `end`.
pub(crate) struct Span {
    segment: Arc<Segment>,
    from: u64,
    to: u64,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Catalog {
    pub(crate) fn add(&mut self, segment: Arc<Segment>, base: Option<u64>, end: u64) {
        self.segments.push_back(Listed { segment, base, end, points: Vec::new() });
    }

    /// Takes in what was written to the last segment.
    pub(crate) fn written(&mut self, marks: &mut Vec<Mark>, end: u64) {
        for mark in marks.drain(..) {
            match mark {
                Mark::Point { index, offset } => {
                    if let Some(last) = self.segments.back_mut() {
                        last.points.push((index, offset));
                    }
                }
                Mark::Cut { keep } => self.cut(keep),
            }
        }
        if let Some(last) = self.segments.back_mut() {
            last.end = end;
        }
    }

    fn cut(&mut self, keep: Option<u64>) {
        let void = |index: u64| keep.is_none_or(|keep| index > keep);
        for listed in self.segments.iter_mut().rev() {
            while listed.points.last().is_some_and(|(index, _)| void(*index)) {
                listed.points.pop();
            }
            if !listed.points.is_empty() {
                break;
            }
        }
    }

    /// Takes out the segments whose entries are all at or below `purged`, but never the last segment.
    pub(crate) fn retire(&mut self, purged: u64) -> Vec<Arc<Segment>> {
        let mut retired = Vec::new();
        while self.segments.get(1).is_some_and(|next| next.base.is_none_or(|base| base <= purged)) {
            retired.extend(self.segments.pop_front().map(|listed| listed.segment));
        }
        retired
    }

    /// Parts of segments that have the entries from `from` up to but without `to`, in order; not more
    /// than about `budget` bytes, but one at least. Empty if `from` is not in any.
    pub(crate) fn spans(&self, from: u64, to: u64, budget: usize) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        let mut bytes = 0;
        let Some(start) = self.segments.iter().rposition(|l| l.points.first().is_some_and(|p| p.0 <= from))
        else {
            return spans;
        };
        for (at, listed) in self.segments.iter().enumerate().skip(start) {
            let begin = listed.points.partition_point(|(index, _)| *index <= from).saturating_sub(1);
            for (i, (index, offset)) in listed.points.iter().enumerate().skip(begin) {
                if *index >= to || (bytes >= budget && !spans.is_empty()) {
                    return spans;
                }
                let next = listed.points.get(i + 1);
                let later = || self.segments.iter().skip(at + 1).find_map(|l| l.points.first());
                let end = next.or_else(later).map_or(to, |(index, _)| (*index).min(to));
                let until = next.map_or(listed.end, |(_, offset)| *offset);
                bytes += until.saturating_sub(*offset) as usize;
                let segment = Arc::clone(&listed.segment);
                spans.push(Span { segment, from: *offset, to: until, first: from.max(*index), end });
            }
        }
        spans
    }

    /// How many segments there are.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }
}

impl Span {
    /// The bytes it takes in its file.
    pub(crate) fn bytes(&self) -> usize {
        (self.to - self.from) as usize
    }

    /// Reads the entries of this span.
    pub(crate) fn read(&self, into: &mut Vec<LogEntry>) -> Result<(), LogError> {
        let mut buf = vec![0; (self.to - self.from) as usize];
        read_full(&*self.segment.file, &mut buf, self.from).map_err(|source| LogError::Io {
            action: "read",
            file: self.segment.path.clone(),
            source: Arc::new(source),
        })?;
        let bytes = Bytes::from(buf);
        let mut offset = 0;
        let mut wanted = self.first;
        while wanted < self.end {
            let Some(found) = record::read(&bytes, offset, self.segment.number) else {
                return Err(self.damaged(offset, "a record that was written is not there"));
            };
            if let Record::Entry(mut entry) = found.record {
                if entry.pos.index > wanted {
                    return Err(self.damaged(offset, "an entry is missing"));
                }
                if entry.pos.index == wanted {
                    // A slice would pin the whole span for as long as the entry lives.
                    entry.payload = Bytes::copy_from_slice(&entry.payload);
                    into.push(entry);
                    wanted += 1;
                }
            }
            offset = found.next;
        }
        Ok(())
    }

    fn damaged(&self, offset: usize, what: &'static str) -> LogError {
        LogError::Damaged { file: self.segment.path.clone(), offset: self.from + offset as u64, what }
    }
}
