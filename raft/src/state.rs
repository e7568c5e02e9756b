//! The applied state: overlay over the state file, published as views.
//!
//! Owns: the order of things. A batch is applied to the overlay, becomes visible at once, and only then is answered and
//! fed; the flusher moves it to disk later. Must not: wait for a commit while applying, except when the overlay is full.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{Entry, Outcomes};
use clawhive_statemachine::Touched;
use openraft::EntryPayload;
use tokio::sync::watch;

use crate::audit::{Audit, DivergeHook};
use crate::digest::{Reading, StateDigest, Tally};
use crate::error::OpenError;
use crate::fatal::Fatal;
use crate::feed::{Feed, FeedSender};
use crate::log::store::LogStore;
use crate::options::Options;
use crate::overlay::{Batch, Layer, merge};
use crate::statefile::{Backend, Facts, Opening, Owner, RawRow, Rows, StateFile};
use crate::types::{LogEntry, LogId, OutcomeBytes, StoredMembership};
use crate::view::{Moment, View};
use digests::{Mark, take_digests};

/// The state file's name in the replica's directory.
pub(crate) const STATE_FILE: &str = "state.redb";

/// Bounds of the overlay, and when the flusher moves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) bytes: usize,
    pub(crate) entries: u64,
    pub(crate) flush_entries: u64,
}

/// What apply and the flusher share.
pub(crate) struct State {
    path: PathBuf,
    opening: Opening,
    pub(crate) bounds: Bounds,
    pub(crate) fatal: Arc<Fatal>,
    /// Durable before the state that was made from it; absent where entries come from elsewhere.
    log: OnceLock<LogStore>,
    live: Mutex<Live>,
    /// Held for the length of a commit, and while a snapshot's file takes the place of the old one.
    file: Mutex<Held>,
    pub(crate) audit: Audit,
    /// Who is told that this state is wrong; nobody: the replica dies of it.
    diverge: OnceLock<DivergeHook>,
    view: ArcSwap<View>,
    feed: FeedSender,
    durable: watch::Sender<Option<LogId>>,
    /// The flusher waits here for work, apply for room.
    pub(crate) orders: Mutex<Orders>,
    pub(crate) ordered: Condvar,
    room: Condvar,
}

/// What is asked of the flusher.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) flush: bool,
    pub(crate) stop: bool,
}

/// The file, and what its rows add up to.
struct Held {
    file: StateFile,
    tally: Tally,
}

/// The newest state, in parts.
struct Live {
    active: Layer,
    active_entries: u64,
    frozen: Option<Layer>,
    frozen_entries: u64,
    disk: Rows,
    facts: Facts,
    /// The facts that `disk` was committed with.
    disk_facts: Facts,
    /// Digests that the next flush is to take.
    marks: Vec<Mark>,
}

impl Live {
    fn view(&self) -> Arc<View> {
        Arc::new(View::new(Moment {
            active: self.active.clone(),
            frozen: self.frozen.clone(),
            disk: self.disk.clone(),
            applied: self.facts.applied,
        }))
    }

    fn bytes(&self) -> usize {
        self.active.bytes + self.frozen.as_ref().map_or(0, |layer| layer.bytes)
    }
}

/// What a batch came to so far.
#[derive(Default)]
struct Seen {
    outcomes: Vec<OutcomeBytes>,
    touched: Touched,
    membership: Option<StoredMembership>,
    /// The entry that asked for a digest.
    mark: Option<u64>,
    /// Digests that the cluster agreed on.
    expected: Vec<(u64, StateDigest)>,
}

/// What applying a batch gave.
pub(crate) struct AppliedBatch {
    /// One per entry.
    outcomes: Vec<OutcomeBytes>,
    /// For the feed, once the outcomes are sent.
    tick: (u64, Touched),
}

/// A consistent state on disk: what a snapshot is made of.
pub(crate) struct DurableState {
    pub(crate) rows: Rows,
    pub(crate) facts: Facts,
}

/// Nothing a panicking thread leaves in a lock is used: its panic ends the replica.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Opens the state in `options.dir`, at its last durable commit.
    pub(crate) fn open(
        options: &Options,
        backend: Option<Backend>,
        fatal: Arc<Fatal>,
    ) -> Result<State, OpenError> {
        let owner = Owner { cluster_id: options.cluster_id, node_id: options.node_id };
        let path = options.dir.join(STATE_FILE);
        let opening = Opening { owner, cache_bytes: options.cache_bytes, backend, fatal: fatal.clone() };
        let file = StateFile::open(&path, &opening)?;
        let facts = file.facts()?;
        let disk = file.rows().map_err(|error| OpenError::State(error.to_string()))?;
        let live = Live {
            active: Layer::default(),
            active_entries: 0,
            frozen: None,
            frozen_entries: 0,
            disk,
            facts: facts.clone(),
            disk_facts: facts.clone(),
            marks: Vec::new(),
        };
        let tally = Tally { total: facts.digest, reading: Some(Reading::default()) };
        Ok(State {
            path,
            opening,
            bounds: Bounds {
                bytes: options.overlay_bytes,
                entries: options.overlay_entries,
                flush_entries: options.flush_entries,
            },
            fatal,
            log: OnceLock::new(),
            view: ArcSwap::new(live.view()),
            live: Mutex::new(live),
            file: Mutex::new(Held { file, tally }),
            audit: Audit::new(),
            diverge: OnceLock::new(),
            feed: FeedSender::new(facts.applied.map_or(0, |id| id.index)),
            durable: watch::Sender::new(facts.applied),
            orders: Mutex::default(),
            ordered: Condvar::new(),
            room: Condvar::new(),
        })
    }

    /// The newest published state.
    pub(crate) fn view(&self) -> View {
        View::clone(&self.view.load())
    }

    pub(crate) fn subscribe(&self) -> Feed {
        self.feed.subscribe()
    }

    /// The newest entry that survives a crash without the log.
    pub(crate) fn durable(&self) -> watch::Receiver<Option<LogId>> {
        self.durable.subscribe()
    }

    /// The newest applied entry and membership, in memory.
    pub(crate) fn applied(&self) -> (Option<LogId>, StoredMembership) {
        let live = lock(&self.live);
        (live.facts.applied, live.facts.membership.clone())
    }

    /// True when a batch may be applied without waiting for the flusher.
    pub(crate) fn has_room(&self) -> bool {
        self.fits(&lock(&self.live))
    }

    fn fits(&self, live: &Live) -> bool {
        live.bytes() < self.bounds.bytes && live.active_entries + live.frozen_entries < self.bounds.entries
    }

    /// Applies committed entries in order and makes them visible together. Waits only when the overlay is full.
    pub(crate) fn apply(&self, entries: &[LogEntry]) -> io::Result<AppliedBatch> {
        self.fatal.check()?;
        let mut live = lock(&self.live);
        while !self.fits(&live) {
            self.order_flush();
            live = self.room.wait(live).unwrap_or_else(PoisonError::into_inner);
            self.fatal.check()?;
        }
        let mut seen = Seen { outcomes: Vec::with_capacity(entries.len()), ..Seen::default() };
        let mut rest = entries;
        while !rest.is_empty() {
            let Live { active, frozen, disk, .. } = &mut *live;
            let mut batch = Batch::new(active, frozen.as_ref(), disk);
            let part = self.apply_part(&mut batch, rest, &mut seen)?;
            let written = batch.finish();
            merge(written, active, frozen.as_ref(), disk);
            // A failed read gave "nothing there" above: what was computed from it must not be seen.
            self.fatal.check()?;
            if let Some(index) = seen.mark.take() {
                let layer = live.active.clone();
                live.marks.push(Mark { index, layer });
            }
            rest = &rest[part..];
        }
        if let Some(last) = entries.last() {
            live.facts.applied = Some(last.log_id);
        }
        if let Some(membership) = seen.membership {
            live.facts.membership = membership;
        }
        live.active_entries += entries.len() as u64;
        let due = live.active_entries >= self.bounds.flush_entries
            || live.active.bytes >= self.bounds.bytes / 2
            || !live.marks.is_empty();
        let Seen { outcomes, touched, expected, .. } = seen;
        let tick = (live.facts.applied.map_or(0, |id| id.index), touched);
        self.view.store(live.view());
        drop(live);
        if due {
            self.order_flush();
        }
        for (index, digest) in expected {
            if let Some(found) = self.audit.expect(index, digest) {
                self.diverged(&found);
            }
        }
        self.fatal.check()?;
        Ok(AppliedBatch { outcomes, tick })
    }

    /// Applies entries up to the first that asks for a digest of the state right after it, and says how many.
    fn apply_part(&self, batch: &mut Batch<'_>, entries: &[LogEntry], seen: &mut Seen) -> io::Result<usize> {
        for (position, entry) in entries.iter().enumerate() {
            let outcome = match &entry.payload {
                EntryPayload::Blank => OutcomeBytes::default(),
                EntryPayload::Membership(change) => {
                    seen.membership = Some(StoredMembership::new(Some(entry.log_id), change.clone()));
                    seen.touched.add(Touched::NODES);
                    OutcomeBytes::default()
                }
                EntryPayload::Normal(data) => self.apply_one(batch, entry.log_id.index, &data.0, seen)?,
            };
            seen.outcomes.push(outcome);
            if seen.mark.is_some() {
                return Ok(position + 1);
            }
        }
        Ok(entries.len())
    }

    fn apply_one(
        &self,
        batch: &mut Batch<'_>,
        index: u64,
        bytes: &Bytes,
        seen: &mut Seen,
    ) -> io::Result<OutcomeBytes> {
        let halt = |reason: String| {
            self.fatal.raise(format!("entry {index}: {reason}"));
            io::Error::other(reason)
        };
        let entry =
            Entry::decode(bytes.clone()).map_err(|error| halt(format!("can't be decoded: {error}")))?;
        let applied =
            clawhive_statemachine::apply(batch, index, &entry).map_err(|reason| halt(reason.to_string()))?;
        for command in &entry.commands {
            match &command.kind {
                Some(Kind::TakeDigest(_)) => seen.mark = Some(index),
                Some(Kind::StateDigest(it)) => {
                    let digest = StateDigest::from_bytes(&it.digest);
                    seen.expected.extend(digest.map(|digest| (it.at_index, digest)));
                }
                _ => {}
            }
        }
        seen.touched.add(applied.touched);
        let first_index = applied.first_index.unwrap_or(0);
        let outcomes = Outcomes { outcomes: applied.outcomes, first_index }.encode_to_vec();
        Ok(OutcomeBytes(outcomes.into()))
    }

    /// Answers a visible batch, then wakes the feed's readers.
    pub(crate) fn answered(&self, batch: AppliedBatch, answer: impl FnOnce(Vec<OutcomeBytes>)) {
        answer(batch.outcomes);
        self.feed.publish(batch.tick.0, batch.tick.1);
    }

    /// Asks the flusher to move what is in the overlay.
    pub(crate) fn order_flush(&self) {
        lock(&self.orders).flush = true;
        self.ordered.notify_all();
    }

    /// Names the log that must be durable before the state that was made from it. Called once, at start.
    pub(crate) fn follows(&self, log: LogStore) {
        // A second call would change nothing.
        let _ = self.log.set(log);
    }

    /// Names who is told when this state is found to be wrong. Called once, at start.
    pub(crate) fn on_divergence(&self, hook: DivergeHook) {
        // A second call would change nothing.
        let _ = self.diverge.set(hook);
    }

    /// Moves everything applied so far to disk in one commit. Called by the flusher, and by whoever can't wait for it.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let mut held = lock(&self.file);
        let Held { file, tally } = &mut *held;
        self.fatal.check()?;
        let (rows, mut facts, marks, before) = {
            let mut live = lock(&self.live);
            if live.active_entries == 0 {
                return Ok(());
            }
            let marks = std::mem::take(&mut live.marks);
            let before = live.disk.clone();
            let active = std::mem::take(&mut live.active);
            let rows = active.rows.clone();
            live.frozen = Some(active);
            live.frozen_entries = std::mem::take(&mut live.active_entries);
            self.view.store(live.view());
            (rows, live.facts.clone(), marks, before)
        };
        let digests = take_digests(tally, &before, marks);
        drop(before);
        // openraft applies what is committed, which this node's own log may have accepted but not yet synced. State on
        // disk must not be ahead of the log on disk.
        if let Some(log) = self.log.get()
            && let Err(error) = log.sync()
        {
            self.fatal.raise(format!("the log could not be synced before the state: {error}"));
            self.room.notify_all();
            return self.fatal.check();
        }
        let disk = file.commit(rows.iter(), &mut facts, tally).and_then(|()| file.rows());
        let disk = match disk {
            Ok(disk) => disk,
            Err(error) => {
                // Never retried: after a failed sync nobody knows what is on the disk.
                self.fatal.raise(format!("writing the state failed: {error}"));
                self.room.notify_all();
                return self.fatal.check();
            }
        };
        {
            let mut live = lock(&self.live);
            live.frozen = None;
            live.frozen_entries = 0;
            live.disk = disk;
            live.disk_facts = facts.clone();
            self.view.store(live.view());
        }
        self.room.notify_all();
        self.durable.send_replace(facts.applied);
        for (index, digest) in digests {
            if let Some(found) = self.audit.note(index, digest) {
                self.diverged(&found);
            }
        }
        Ok(())
    }

    /// The newest state on disk, including everything applied before the call.
    pub(crate) fn flushed(&self) -> io::Result<DurableState> {
        self.flush()?;
        let live = lock(&self.live);
        Ok(DurableState { rows: live.disk.clone(), facts: live.disk_facts.clone() })
    }

    /// Replaces the whole state: `fill` writes a complete new file beside the old one, which then takes its name. Until
    /// then nothing has changed; afterwards everything has.
    pub(crate) fn replace(
        &self,
        mut facts: Facts,
        next: impl FnMut() -> io::Result<Option<RawRow>>,
    ) -> io::Result<()> {
        let mut held = lock(&self.file);
        self.fatal.check()?;
        let new = StateFile::scratch(&self.path, &self.opening).map_err(io::Error::other)?;
        new.fill(&mut facts, next).map_err(|error| match error {
            redb::Error::Io(error) => error,
            other => io::Error::other(other),
        })?;
        let disk = new.rows().map_err(io::Error::other)?;
        new.adopt(&self.path)?;
        *held = Held { file: new, tally: Tally { total: facts.digest, reading: None } };
        self.audit.forget();
        {
            let mut live = lock(&self.live);
            *live = Live {
                active: Layer::default(),
                active_entries: 0,
                frozen: None,
                frozen_entries: 0,
                disk,
                facts: facts.clone(),
                disk_facts: facts.clone(),
                marks: Vec::new(),
            };
            self.view.store(live.view());
        }
        self.room.notify_all();
        self.durable.send_replace(facts.applied);
        self.feed.publish(facts.applied.map_or(0, |id| id.index), Touched::ALL);
        Ok(())
    }
}

mod digests;
#[cfg(test)]
mod power;
#[cfg(test)]
pub(crate) mod tests;
