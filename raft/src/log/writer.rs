//! The only one that writes records.
//!
//! Owns: the order on disk, which is the order of the queue; when to sync; and going on in a new segment.
//! Must not: retry. After any error it answers everything with that error.

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Disk, Room, is_full};

use super::catalog::{Mark, POINT_EVERY};
use super::error::LogError;
use super::ledger::Ledger;
use super::pool::{Pool, failed};
use super::record::{self, Place, Record};
use super::segment::{HEADER_LEN, Header, Segment, path_of};
use super::shared::Shared;
use super::types::{Ballot, LogEntry, LogPos};

/// Called when what it came with is durable, or never will be. It runs on the writer's thread, or inside the
/// call: it must not block, nor call the log.
pub type OnDurable = Box<dyn FnOnce(Result<(), LogError>) + Send>;

/// What the writer keeps of its buffer between batches.
const BUFFER: usize = 4 << 20;

/// A thing to write, in the order of the queue.
pub(crate) enum Op {
    Append {
        entries: Vec<LogEntry>,
        bytes: usize,
        next_serial: u64,
    },
    Vote(Ballot),
    Committed(LogPos),
    Truncate(Option<LogPos>),
    Purge(LogPos),
    /// Nothing, after everything before is synced.
    Sync,
    /// Guards the end of the log: what is before can't be taken for a torn write afterwards.
    Guard,
}

pub(crate) struct Job {
    pub op: Op,
    pub done: Option<OnDurable>,
}

pub(crate) struct Writer {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    /// Whether this writer does the pool's work too, since there is no thread for it.
    does_pool: bool,
    active: Arc<Segment>,
    /// Where `buf` will be written.
    at: u64,
    /// Up to where the active segment is synced.
    synced: u64,
    ledger: Ledger,
    buf: Vec<u8>,
    marks: Vec<Mark>,
    /// Where the last point of the index is; `None`: the next entry gets one.
    point_at: Option<u64>,
    /// Entries with serials below this are in `buf` or in files.
    entries: u64,
    /// Of the queue's bytes, those that are in `buf`.
    bytes: usize,
    /// Whether a purge awaits its sync.
    purged: bool,
    guarded: bool,
    /// Where to wait on a full disk.
    room: Option<Arc<Room>>,
}

/// Where a writer begins.
pub(crate) struct Start {
    pub active: Arc<Segment>,
    pub end: u64,
    pub ledger: Ledger,
    pub entries: u64,
    /// Where to wait on a full disk.
    pub room: Option<Arc<Room>>,
}

impl Writer {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        shared: Arc<Shared>,
        pool: Arc<Pool>,
        does_pool: bool,
        start: Start,
    ) -> Self {
        let Start { active, end, ledger, entries, room } = start;
        Self {
            disk,
            dir,
            shared,
            pool,
            does_pool,
            active,
            at: end,
            synced: end,
            ledger,
            buf: Vec::new(),
            marks: Vec::new(),
            point_at: None,
            entries,
            bytes: 0,
            purged: false,
            guarded: false,
            room,
        }
    }

    /// Writes a batch, makes it durable if anything in it must be, and answers.
    pub(crate) fn commit(&mut self, batch: &mut Vec<Job>) {
        let result = match self.shared.fatal() {
            Some(fatal) => Err(LogError::Poisoned(fatal)),
            None => {
                let shared = Arc::clone(&self.shared);
                shared.busy(|| self.write(batch)).inspect_err(|error| shared.poison(error))
            }
        };
        for job in batch.drain(..) {
            if let Some(done) = job.done {
                done(result.clone());
            }
        }
    }

    fn write(&mut self, batch: &[Job]) -> Result<(), LogError> {
        let mut sync = false;
        for job in batch {
            sync |= !matches!(job.op, Op::Committed(_));
            self.put(&job.op)?;
        }
        self.flush(sync)?;
        if std::mem::take(&mut self.purged)
            && let Some(purged) = self.ledger.purged
        {
            self.pool.retire(self.shared.retire(purged.index));
            if self.does_pool {
                self.pool.work_off()?;
            }
        }
        Ok(())
    }

    fn put(&mut self, op: &Op) -> Result<(), LogError> {
        self.guarded &= matches!(op, Op::Guard | Op::Sync);
        match op {
            Op::Append { entries, bytes, next_serial } => {
                for entry in entries {
                    self.put_entry(entry)?;
                }
                self.entries = *next_serial;
                self.bytes += bytes;
                Ok(())
            }
            Op::Vote(vote) => self.put_small(&Record::Vote(*vote)),
            Op::Committed(pos) => self.put_small(&Record::Committed(*pos)),
            Op::Truncate(after) => self.put_small(&Record::Truncate(*after)),
            Op::Purge(pos) => self.put_small(&Record::Purge(*pos)),
            Op::Sync => Ok(()),
            Op::Guard if self.guarded => Ok(()),
            Op::Guard => {
                self.flush(true)?;
                self.guarded = true;
                // Any record that changes nothing will do.
                match (self.ledger.vote, self.ledger.committed) {
                    (Some(vote), _) => self.put_small(&Record::Vote(vote)),
                    (None, Some(pos)) => self.put_small(&Record::Committed(pos)),
                    (None, None) => Ok(()),
                }
            }
        }
    }

    fn put_entry(&mut self, entry: &LogEntry) -> Result<(), LogError> {
        self.make_room(record::size_of(entry.payload.len()))?;
        let offset = self.at + self.buf.len() as u64;
        if self.point_at.is_none_or(|at| offset - at >= POINT_EVERY as u64) {
            self.point_at = Some(offset);
            self.marks.push(Mark::Point { index: entry.pos.index, offset });
        }
        self.ledger.append(entry.pos).map_err(LogError::Refused)?;
        let place = self.place();
        record::put_entry(&mut self.buf, place, entry);
        Ok(())
    }

    fn put_small(&mut self, what: &Record) -> Result<(), LogError> {
        self.make_room(record::size_of(0))?;
        let before = self.ledger.last;
        // The log checked this before it queued it, by the same rules.
        self.ledger.replay(what).map_err(|what| self.impossible(what))?;
        let place = self.place();
        match what {
            Record::Vote(vote) => record::put_vote(&mut self.buf, place, *vote),
            Record::Committed(pos) => record::put_committed(&mut self.buf, place, *pos),
            Record::Truncate(after) => {
                record::put_truncate(&mut self.buf, place, *after);
                if self.ledger.last != before {
                    self.marks.push(Mark::Cut { keep: self.ledger.last.map(|pos| pos.index) });
                    self.point_at = None;
                }
            }
            Record::Purge(pos) => {
                record::put_purge(&mut self.buf, place, *pos);
                self.point_at = None;
                self.purged = true;
            }
            Record::Entry(entry) => record::put_entry(&mut self.buf, place, entry),
        }
        Ok(())
    }

    fn impossible(&self, what: &'static str) -> LogError {
        LogError::Damaged { file: self.active.path.clone(), offset: self.at, what }
    }

    fn place(&self) -> Place {
        // A segment is never larger than 32 bits can say.
        Place { segment: self.active.number, synced_to: self.synced as u32 }
    }

    fn make_room(&mut self, size: usize) -> Result<(), LogError> {
        let needed = self.at + (self.buf.len() + size) as u64;
        if needed <= self.active.len {
            return Ok(());
        }
        self.flush(true)?;
        self.roll(HEADER_LEN + size as u64)
    }

    /// Writes what is buffered, and syncs if asked to.
    fn flush(&mut self, sync: bool) -> Result<(), LogError> {
        if !self.buf.is_empty() {
            let active = &self.active;
            // Room was reserved, but not every file system can. Nothing was said of these bytes yet, and all of them are
            // written again.
            let write =
                || active.file.write_at(&self.buf, self.at).map_err(|e| failed("write", &active.path, e));
            with_room(self.room.as_deref(), "writing the log", write)?;
            self.at += self.buf.len() as u64;
            self.buf.clear();
            self.buf.shrink_to(BUFFER);
        }
        if sync && self.synced < self.at {
            let active = &self.active;
            active.file.sync_data().map_err(|e| failed("sync", &active.path, e))?;
            self.synced = self.at;
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.shared.written(&mut self.marks, self.at, self.entries, bytes);
        Ok(())
    }

    /// Goes on in a new segment, whose header is durable under its name before any record gets there.
    fn roll(&mut self, len: u64) -> Result<(), LogError> {
        if self.does_pool {
            self.pool.work_off()?;
        }
        let spare = with_room(self.room.as_deref(), "a new log segment", || self.pool.take(len))?;
        let number = self.active.number + 1;
        let ledger = Ledger { origin: None, ..self.ledger };
        let header = Header { number, previous_end: self.at, ledger };
        let write = || spare.file.write_at(&header.encode(), 0).map_err(|e| failed("write", &spare.path, e));
        with_room(self.room.as_deref(), "a new log segment", write)?;
        spare.file.sync_data().map_err(|e| failed("sync", &spare.path, e))?;
        let path = path_of(&self.dir, number);
        let rename = || self.disk.rename(&spare.path, &path).map_err(|e| failed("rename", &spare.path, e));
        with_room(self.room.as_deref(), "a new log segment", rename)?;
        self.disk.sync_dir(&self.dir).map_err(|e| failed("sync", &self.dir, e))?;
        self.active = Arc::new(Segment { number, path, file: spare.file, len: spare.len });
        self.at = HEADER_LEN;
        self.synced = HEADER_LEN;
        self.point_at = None;
        let base = self.ledger.last.map(|pos| pos.index);
        self.shared.rolled(Arc::clone(&self.active), base, HEADER_LEN);
        Ok(())
    }
}

/// Waits while there is no room, where there is a place to wait.
fn with_room<T>(
    room: Option<&Room>,
    what: &str,
    mut operation: impl FnMut() -> Result<T, LogError>,
) -> Result<T, LogError> {
    let lacks_room = |error: &LogError| matches!(error, LogError::Io { source, .. } if is_full(source));
    match room {
        Some(room) => room.wait(what, lacks_room, operation),
        None => operation(),
    }
}
