//! Opening a log: from files to state.
//!
//! Owns: which files are the log, and whether they are whole. Must not: guess. What was synced is there or
//! the log does not open; only the remains of a write that was never synced are cut off.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, DiskFile, read_full};

use super::catalog::{Catalog, Mark, POINT_EVERY};
use super::damage::{Verdict, judge};
use super::error::OpenError;
use super::ledger::Ledger;
use super::options::LogOptions;
use super::record::{self, Record};
use super::segment::{
    FORMAT_VERSION, HEADER_LEN, Header, HeaderError, Segment, free_number, path_of, segment_number,
};
use super::tail::Tail;

/// The largest segment file that is read: offsets in records have 32 bits.
const LARGEST: u64 = u32::MAX as u64;

/// What was found.
pub(crate) struct Recovered {
    pub ledger: Ledger,
    pub catalog: Catalog,
    pub tail: Tail,
    /// How many entries were put in `tail`, evicted or not.
    pub entries: u64,
    /// The segment to go on writing, and where.
    pub active: Arc<Segment>,
    pub end: u64,
    /// The numbers of files that are not part of the log.
    pub free: Vec<u64>,
}

/// The numbers of the segments and of the free files in a directory.
pub(crate) fn survey(disk: &dyn Disk, dir: &Path) -> Result<(Vec<u64>, Vec<u64>), OpenError> {
    let names = disk.list(dir).map_err(|error| failed("list", dir, error))?;
    let mut segments: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
    segments.sort_unstable();
    for pair in segments.windows(2) {
        if pair[0] + 1 != pair[1] {
            return Err(OpenError::Missing { file: path_of(dir, pair[0] + 1) });
        }
    }
    Ok((segments, names.iter().filter_map(|name| free_number(name)).collect()))
}

pub(crate) fn failed(action: &'static str, file: &Path, source: io::Error) -> OpenError {
    OpenError::Io { action, file: file.to_owned(), source: Arc::new(source) }
}

/// Reads the segments with these numbers, of which there is one at least.
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    segments: &[u64],
    free: Vec<u64>,
    options: &LogOptions,
) -> Result<Recovered, OpenError> {
    let &LogOptions { tail_bytes, known_committed, refuse_torn, .. } = options;
    let mut scan = Scan {
        ledger: Ledger::default(),
        catalog: Catalog::default(),
        tail: Tail::default(),
        entries: 0,
        tail_bytes,
    };
    let mut first_base = None;
    let mut previous_end = 0;
    let mut active = None;
    for (i, number) in segments.iter().enumerate() {
        let path = path_of(dir, *number);
        let (segment, bytes) = load(disk, path, *number)?;
        let header = header_of(&segment, &bytes)?;
        if i == 0 {
            scan.ledger = header.ledger;
            first_base = header.ledger.last;
        } else {
            let expected = Ledger { origin: None, ..scan.ledger };
            if header.ledger != expected || header.previous_end != previous_end {
                return Err(OpenError::Header {
                    file: segment.path.clone(),
                    what: "it does not go on where the segment before ends",
                });
            }
        }
        let is_last = i + 1 == segments.len();
        let (end, synced_to) = scan.segment(&segment, &bytes)?;
        let verdict = judge(&bytes, end as usize, segment.number);
        let damaged = |what| OpenError::Damaged { file: segment.path.clone(), offset: end, what };
        match verdict {
            Verdict::Damaged(what) => return Err(damaged(what)),
            Verdict::Torn { .. } if !is_last => return Err(damaged("another segment follows")),
            Verdict::Torn { .. } if refuse_torn => {
                return Err(damaged(
                    "a write is torn there, and the state that could tell whether it was committed is damaged too",
                ));
            }
            Verdict::Torn { .. } | Verdict::Clean => {}
        }
        previous_end = end;
        if is_last {
            check_committed(&segment, verdict, end, &scan.ledger, known_committed)?;
            active = Some((segment, bytes, end, synced_to, verdict));
        }
    }
    check_beginning(dir, segments, first_base, &scan.ledger)?;
    let Some((active, bytes, end, synced_to, verdict)) = active else {
        return Err(OpenError::Missing { file: path_of(dir, 1) });
    };
    // Nothing is changed before everything was checked.
    settle(&active, &bytes, end, synced_to, verdict)?;
    disk.sync_dir(dir).map_err(|error| failed("sync", dir, error))?;
    let Scan { ledger, catalog, tail, entries, .. } = scan;
    Ok(Recovered { ledger, catalog, tail, entries, active, end, free })
}

fn load(disk: &dyn Disk, path: PathBuf, number: u64) -> Result<(Arc<Segment>, Bytes), OpenError> {
    let file: Arc<dyn DiskFile> = disk.open(&path).map_err(|error| failed("open", &path, error))?;
    let len = file.size().map_err(|error| failed("measure", &path, error))?;
    if len > LARGEST {
        return Err(OpenError::Header { file: path, what: "the file is larger than a segment can be" });
    }
    let mut buf = vec![0; len as usize];
    let read = read_full(&*file, &mut buf, 0).map_err(|error| failed("read", &path, error))?;
    if read as u64 != len {
        return Err(OpenError::Header { file: path, what: "the file became shorter while it was read" });
    }
    Ok((Arc::new(Segment { number, path, file, len }), Bytes::from(buf)))
}

fn header_of(segment: &Segment, bytes: &[u8]) -> Result<Header, OpenError> {
    let file = || segment.path.clone();
    let header = Header::decode(bytes).map_err(|error| match error {
        HeaderError::Version(found) => OpenError::Version { file: file(), found, supported: FORMAT_VERSION },
        HeaderError::Damaged(what) => OpenError::Header { file: file(), what },
    })?;
    if header.number != segment.number {
        return Err(OpenError::Header { file: file(), what: "it is another segment's" });
    }
    Ok(header)
}

/// A segment at the beginning may only be gone if all its entries are purged.
fn check_beginning(
    dir: &Path,
    segments: &[u64],
    base: Option<super::types::LogPos>,
    ledger: &Ledger,
) -> Result<(), OpenError> {
    let purged = ledger.purged.map(|pos| pos.index);
    let first = segments.first().copied().unwrap_or(1);
    match base {
        Some(base) if purged.is_none_or(|purged| purged < base.index) => {
            Err(OpenError::Missing { file: path_of(dir, first.saturating_sub(1)) })
        }
        _ => Ok(()),
    }
}

fn check_committed(
    segment: &Segment,
    verdict: Verdict,
    end: u64,
    ledger: &Ledger,
    known: Option<u64>,
) -> Result<(), OpenError> {
    let last = ledger.last.map_or(0, |pos| pos.index);
    match (verdict, known) {
        (Verdict::Torn { .. }, Some(committed)) if last < committed => {
            Err(OpenError::BelowCommitted { file: segment.path.clone(), offset: end, last, committed })
        }
        _ => Ok(()),
    }
}

/// Makes what was found durable, and what was cut off zeroes.
///
/// What was read may be in the system's cache only, and after a failed sync of an earlier process a page
/// may even be marked clean without ever having been written. So everything that is not known to be synced
/// is written again before it is synced.
fn settle(
    segment: &Segment,
    bytes: &[u8],
    end: u64,
    synced_to: u64,
    verdict: Verdict,
) -> Result<(), OpenError> {
    let file = &segment.file;
    let write = |from: u64, what: &[u8]| {
        file.write_at(what, from).map_err(|error| failed("write", &segment.path, error))
    };
    if let Verdict::Torn { dirty_to } = verdict {
        tracing::warn!(file = %segment.path.display(), offset = end, dirty_to, "cut off a torn write");
        // Else a record of the torn write could look like one that follows a new record.
        write(end, &vec![0; dirty_to - end as usize])?;
    }
    if synced_to < end {
        write(synced_to, &bytes[synced_to as usize..end as usize])?;
    }
    file.sync_data().map_err(|error| failed("sync", &segment.path, error))
}

struct Scan {
    ledger: Ledger,
    catalog: Catalog,
    tail: Tail,
    entries: u64,
    tail_bytes: usize,
}

impl Scan {
    /// Replays one segment. Returns where its valid records end, and up to where they are known to be synced.
    fn segment(&mut self, segment: &Arc<Segment>, bytes: &Bytes) -> Result<(u64, u64), OpenError> {
        self.catalog.add(Arc::clone(segment), self.ledger.last.map(|pos| pos.index), HEADER_LEN);
        let mut offset = HEADER_LEN as usize;
        let mut synced_to = HEADER_LEN;
        let mut marks = Vec::new();
        let mut point_at = None;
        while let Some(found) = record::read(bytes, offset, segment.number) {
            let damaged =
                |what| OpenError::Damaged { file: segment.path.clone(), offset: offset as u64, what };
            if (found.synced_to as usize) > offset {
                return Err(damaged("a record says that what follows it was synced before"));
            }
            synced_to = synced_to.max(u64::from(found.synced_to));
            let before = self.ledger.last;
            self.ledger.replay(&found.record).map_err(damaged)?;
            match found.record {
                Record::Entry(mut entry) => {
                    if point_at.is_none_or(|at: usize| offset - at >= POINT_EVERY) {
                        marks.push(Mark::Point { index: entry.pos.index, offset: offset as u64 });
                        point_at = Some(offset);
                    }
                    // A slice would pin the whole segment.
                    entry.payload = Bytes::copy_from_slice(&entry.payload);
                    self.entries = self.tail.push(entry) + 1;
                    self.tail.evict(self.tail_bytes, self.entries);
                }
                Record::Truncate(_) if self.ledger.last != before => {
                    let keep = self.ledger.last.map(|pos| pos.index);
                    self.tail.truncate(keep);
                    marks.push(Mark::Cut { keep });
                    point_at = None;
                }
                Record::Purge(pos) => {
                    self.tail.purge(pos.index);
                    point_at = None;
                }
                Record::Truncate(_) | Record::Vote(_) | Record::Committed(_) => {}
            }
            offset = found.next;
        }
        self.catalog.written(&mut marks, offset as u64);
        Ok((offset as u64, synced_to))
    }
}
