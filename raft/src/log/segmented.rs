//! The log as its callers see it.
//!
//! Owns: the checks before anything is queued, and opening and closing. Must not: know openraft.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::disk::Disk;

use super::catalog::Catalog;
use super::engine::Engine;
use super::error::{LogError, OpenError, Refusal};
use super::ledger::Ledger;
use super::options::{Drive, LogOptions};
use super::pool::Pool;
use super::record;
use super::recovery::{Recovered, failed, recover, survey};
use super::segment::{HEADER_LEN, Header, Segment, free_number, free_path_of, path_of};
use super::shared::{FatalHook, ReadPlan, Shared};
use super::tail::Tail;
use super::types::{Ballot, LogEntry, LogPos};
use super::writer::{Job, OnDurable, Op, Start, Writer};

/// A Raft log in segment files. Dropping it waits until what is queued is written.
pub struct SegmentLog {
    shared: Arc<Shared>,
    engine: Option<Engine>,
    options: LogOptions,
    _claim: Claim,
}

impl SegmentLog {
    /// Opens the log in `dir`, or makes one. `on_fatal` is called once if the log fails later.
    ///
    /// # Errors
    /// See [`OpenError`]: the disk failed, or the log is not what was made durable.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        on_fatal: FatalHook,
    ) -> Result<SegmentLog, OpenError> {
        let claim = Claim::new(disk.id(), dir)?;
        let segment_bytes = options.segment_bytes.clamp(2 * HEADER_LEN, 1 << 31);
        let threads = options.drive == Drive::Threads;
        let found = find_or_create(&*disk, dir, &options, segment_bytes)?;
        let Recovered { ledger, catalog, tail, entries, active, end, free } = found;
        let next = free.iter().map(|number| (number & !(1 << 63)) + 1).max().unwrap_or(0);
        let keep = options.spare_segments;
        let pool = Arc::new(Pool::new(Arc::clone(&disk), dir, segment_bytes, keep, &free, next));
        let shared = Arc::new(Shared::new(ledger, catalog, tail, options.tail_bytes, on_fatal));
        let room = options.room.clone().filter(|_| threads);
        let start = Start { active, end, ledger, entries, room };
        let (for_writer, for_files) = (Arc::clone(&shared), Arc::clone(&pool));
        let writer = Writer::new(disk, dir.to_owned(), for_writer, for_files, !threads, start);
        let engine = if threads {
            let shared = Arc::clone(&shared);
            Engine::threads(writer, pool, shared, options.batch_bytes, options.linger)
                .map_err(|error| failed("start the threads for", dir, error))?
        } else {
            Engine::inline(writer)
        };
        Ok(SegmentLog { shared, engine: Some(engine), options, _claim: claim })
    }

    /// Appends entries. They are readable when this returns; `done` is called when they are durable.
    ///
    /// # Errors
    /// A refusal if an entry does not follow the last, or the error that ended the log; then `done` is not
    /// called.
    pub fn append(&self, entries: Vec<LogEntry>, done: OnDurable) -> Result<(), LogError> {
        if let Some(bytes) =
            entries.iter().map(|entry| entry.payload.len()).find(|len| *len > LARGEST_PAYLOAD)
        {
            return Err(LogError::Refused(Refusal::TooLarge { bytes }));
        }
        let mut state = self.shared.alive()?;
        let mut ledger = state.ledger;
        for entry in &entries {
            ledger.append(entry.pos).map_err(LogError::Refused)?;
        }
        state.ledger = ledger;
        let mut bytes = 0;
        let mut next_serial = 0;
        for entry in &entries {
            bytes += record::size_of(entry.payload.len());
            next_serial = state.tail.push(entry.clone()) + 1;
        }
        if entries.is_empty() {
            next_serial = state.tail.next_serial();
        }
        state.queued += bytes;
        let op = Op::Append { entries, bytes, next_serial };
        self.submit(Job { op, done: Some(done) }, state);
        Ok(())
    }

    /// Remembers a vote; `done` is called when it is durable.
    ///
    /// # Errors
    /// The error that ended the log; then `done` is not called.
    pub fn save_vote(&self, vote: Ballot, done: OnDurable) -> Result<(), LogError> {
        let mut state = self.shared.alive()?;
        state.ledger.vote = Some(vote);
        self.submit(Job { op: Op::Vote(vote), done: Some(done) }, state);
        Ok(())
    }

    /// Remembers that entries up to `pos` are committed. Durable with the next thing that is: losing it
    /// costs nothing but applying those entries later. What the log doesn't have is not remembered.
    ///
    /// # Errors
    /// The error that ended the log.
    pub fn save_committed(&self, pos: LogPos) -> Result<(), LogError> {
        let mut state = self.shared.alive()?;
        if state.ledger.commit(pos) {
            self.submit(Job { op: Op::Committed(pos), done: None }, state);
        }
        Ok(())
    }

    /// Drops the entries after `after`, exclusive; `None`: all that are not purged. `done` is called when that
    /// is durable.
    ///
    /// # Errors
    /// A refusal to drop committed entries, or the error that ended the log; then `done` is not called.
    pub fn truncate_after(&self, after: Option<LogPos>, done: OnDurable) -> Result<(), LogError> {
        let mut state = self.shared.alive()?;
        let Some(target) = state.ledger.truncation(after).map_err(LogError::Refused)? else {
            drop(state);
            done(Ok(()));
            return Ok(());
        };
        state.ledger.truncate(target);
        state.tail.truncate(target.map(|pos| pos.index));
        self.submit(Job { op: Op::Truncate(target), done: Some(done) }, state);
        Ok(())
    }

    /// Gives up the entries up to `pos`, inclusive. If the log ends before, it goes on after `pos`. `done` is
    /// called when that is durable; files are used again only then.
    ///
    /// # Errors
    /// The error that ended the log; then `done` is not called.
    pub fn purge(&self, pos: LogPos, done: OnDurable) -> Result<(), LogError> {
        let mut state = self.shared.alive()?;
        if !state.ledger.purges(pos) {
            drop(state);
            done(Ok(()));
            return Ok(());
        }
        state.ledger.purge(pos);
        state.tail.purge(pos.index);
        self.submit(Job { op: Op::Purge(pos), done: Some(done) }, state);
        Ok(())
    }

    /// Calls `done` when everything before this call is durable. Who makes something durable that was made
    /// from entries, such as a state they were applied to, waits for it first: entries may be committed, and
    /// so applied, before this disk has them. A closed log still answers.
    ///
    /// # Errors
    /// The error that ended the log; then `done` is not called.
    pub fn sync(&self, done: OnDurable) -> Result<(), LogError> {
        let state = match self.shared.alive() {
            Err(LogError::Closed) => self.shared.lock(),
            other => other?,
        };
        self.submit(Job { op: Op::Sync, done: Some(done) }, state);
        Ok(())
    }

    fn submit<G>(&self, job: Job, lock: G) {
        // The engine is there until the log is dropped.
        if let Some(engine) = &self.engine {
            engine.submit(job, lock);
        }
    }

    /// The entries of a range that are there, as one piece; not more than about `max_bytes`, but one at least.
    ///
    /// # Errors
    /// The disk failed or an entry is damaged, which ends the log; or the error that ended it before.
    pub fn read(&self, range: Range<u64>, max_bytes: usize) -> Result<Vec<LogEntry>, LogError> {
        let plan = self.plan_read(range, max_bytes)?;
        self.run_read(plan)
    }

    pub(crate) fn plan_read(&self, range: Range<u64>, max_bytes: usize) -> Result<ReadPlan, LogError> {
        self.shared.plan_read(range.start, range.end, max_bytes).inspect_err(|error| self.note(error))
    }

    pub(crate) fn run_read(&self, plan: ReadPlan) -> Result<Vec<LogEntry>, LogError> {
        plan.run().inspect_err(|error| self.note(error))
    }

    fn note(&self, error: &LogError) {
        if matches!(error, LogError::Io { .. } | LogError::Damaged { .. }) {
            self.shared.poison(error);
        }
    }

    /// The last saved vote.
    pub fn vote(&self) -> Option<Ballot> {
        self.shared.lock().ledger.vote
    }

    /// The last saved committed position.
    pub fn committed(&self) -> Option<LogPos> {
        self.shared.lock().ledger.committed
    }

    /// Up to where the log is purged.
    pub fn purged(&self) -> Option<LogPos> {
        self.shared.lock().ledger.purged
    }

    /// The last entry, or what [`SegmentLog::purged`] says if there is none.
    pub fn last(&self) -> Option<LogPos> {
        self.shared.lock().ledger.last
    }

    /// The index of the first entry that is there or, in a purged log, will be.
    pub fn first_index(&self) -> Option<u64> {
        self.shared.lock().ledger.first()
    }

    /// The error that ended the log, if one did.
    pub fn fatal(&self) -> Option<Arc<LogError>> {
        self.shared.fatal()
    }

    /// Bytes of entries in memory, and the number of segments.
    pub fn usage(&self) -> (usize, usize) {
        let state = self.shared.lock();
        (state.tail.bytes(), state.catalog.len())
    }

    /// Waits until the disk has caught up so far that more may be queued.
    pub async fn room(&self) {
        loop {
            let mut progress = std::pin::pin!(self.shared.progress.notified());
            progress.as_mut().enable();
            if self.shared.fatal().is_some() || self.shared.lock().queued < self.options.queue_bytes {
                return;
            }
            progress.await;
        }
    }

    /// For how long the batch that is being written has been; none while nothing is. A disk that does not answer shows
    /// here, since no error ever comes of it.
    pub fn busy_for(&self) -> Option<Duration> {
        self.shared.busy_for()
    }

    pub(crate) fn options(&self) -> &LogOptions {
        &self.options
    }

    /// Refuses everything from now on, and writes a last record behind what is queued, so that all of it is
    /// known to have been synced. `done` is called when that is durable.
    pub fn close(&self, done: OnDurable) {
        let state = self.shared.alive();
        match state {
            Ok(mut state) => {
                state.closed = true;
                self.submit(Job { op: Op::Guard, done: Some(done) }, state);
            }
            Err(LogError::Closed) => done(Ok(())),
            Err(error) => done(Err(error)),
        }
    }

    /// [`SegmentLog::close`] for callers that can wait.
    ///
    /// # Errors
    /// The error that ended the log.
    pub fn close_and_wait(&self) -> Result<(), LogError> {
        let (tx, rx) = mpsc::sync_channel(1);
        self.close(Box::new(move |result| drop(tx.send(result))));
        rx.recv().unwrap_or(Err(LogError::Closed))
    }
}

impl Drop for SegmentLog {
    fn drop(&mut self) {
        if self.busy_for().is_some_and(|busy| busy > GIVE_UP) {
            tracing::error!("the disk does not answer: its threads are left behind");
            return;
        }
        if let Some(engine) = self.engine.take() {
            engine.join();
        }
    }
}

/// Whoever drops a log does not wait for a disk that has not answered for so long.
const GIVE_UP: Duration = Duration::from_secs(5);

/// A record must fit in a segment, and its offset in 32 bits.
const LARGEST_PAYLOAD: usize = 1 << 30;

fn find_or_create(
    disk: &dyn Disk,
    dir: &Path,
    options: &LogOptions,
    segment_bytes: u64,
) -> Result<Recovered, OpenError> {
    disk.create_dir(dir).map_err(|error| failed("create", dir, error))?;
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent).map_err(|error| failed("sync", parent, error))?;
    }
    let (segments, free) = survey(disk, dir)?;
    if !segments.is_empty() {
        return recover(disk, dir, &segments, free, options);
    }
    let active = create_first(disk, dir, segment_bytes)?;
    let mut catalog = Catalog::default();
    catalog.add(Arc::clone(&active), None, HEADER_LEN);
    // What the file was called before is no longer there.
    let free = free.into_iter().filter(|number| *number != FIRST).collect();
    let (ledger, tail) = (Ledger::default(), Tail::default());
    Ok(Recovered { ledger, catalog, tail, entries: 0, active, end: HEADER_LEN, free })
}

const FIRST: u64 = 1;

/// Makes segment 1, zeroed at once: this happens once in the life of a log.
fn create_first(disk: &dyn Disk, dir: &Path, len: u64) -> Result<Arc<Segment>, OpenError> {
    let (draft, path) = (free_path_of(dir, FIRST), path_of(dir, FIRST));
    // An earlier attempt may have left its draft.
    let names = disk.list(dir).map_err(|error| failed("list", dir, error))?;
    let left = names.iter().any(|name| free_number(name) == Some(FIRST));
    let file = if left { disk.open(&draft) } else { disk.create(&draft) };
    let file = file.map_err(|error| failed("create", &draft, error))?;
    let wrote = file.set_len(len).and_then(|()| {
        let header = Header { number: FIRST, previous_end: 0, ledger: Ledger::default() };
        file.write_at(&header.encode(), 0)?;
        let zeroes = vec![0; 1 << 20];
        let mut at = HEADER_LEN;
        while at < len {
            let step = (len - at).min(zeroes.len() as u64);
            file.write_at(&zeroes[..step as usize], at)?;
            at += step;
        }
        file.sync_data()
    });
    wrote.map_err(|error| failed("write", &draft, error))?;
    disk.rename(&draft, &path).map_err(|error| failed("rename", &draft, error))?;
    disk.sync_dir(dir).map_err(|error| failed("sync", dir, error))?;
    Ok(Arc::new(Segment { number: FIRST, path, file, len }))
}

/// The logs this process has open.
static OPEN: Mutex<BTreeSet<(u64, PathBuf)>> = Mutex::new(BTreeSet::new());

/// Keeps a directory from being opened twice.
struct Claim(u64, PathBuf);

impl Claim {
    fn new(disk: u64, dir: &Path) -> Result<Claim, OpenError> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if open.insert((disk, dir.to_owned())) {
            Ok(Claim(disk, dir.to_owned()))
        } else {
            Err(OpenError::InUse { dir: dir.to_owned() })
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&(self.0, self.1.clone()));
    }
}
