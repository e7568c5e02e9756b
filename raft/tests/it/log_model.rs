//! What a log should be: a map of entries and a few values. Tests run it beside the real one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use clawhive_raft::disk::SimDisk;
use clawhive_raft::log::{
    Ballot, Drive, FatalHook, LogEntry, LogError, LogOptions, LogPos, OpenError, SegmentLog,
};

pub const DIR: &str = "/data/log";

/// splitmix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// A call to the log with everything it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Append(Vec<LogEntry>),
    Vote(Ballot),
    Committed(LogPos),
    Truncate(Option<LogPos>),
    Purge(LogPos),
}

impl Call {
    /// Whether the disk was synced when it is answered.
    pub fn syncs(&self, before: &Model) -> bool {
        match self {
            Call::Committed(_) => false,
            // If there is nothing to drop, nothing is written.
            Call::Truncate(after) => *after != before.last(),
            _ => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    pub entries: BTreeMap<u64, LogEntry>,
    pub vote: Option<Ballot>,
    pub purged: Option<LogPos>,
    pub committed: Option<LogPos>,
    term: u64,
}

impl Model {
    pub fn last(&self) -> Option<LogPos> {
        self.entries.last_key_value().map(|(_, entry)| entry.pos).or(self.purged)
    }

    fn next(&self) -> u64 {
        self.last().map_or(1, |pos| pos.index + 1)
    }

    /// Turns three numbers into a call that a Raft could make in this state.
    pub fn call(&self, kind: u64, a: u64, b: u64) -> Call {
        let index = |pos: Option<LogPos>| pos.map_or(0, |pos| pos.index);
        let floor = index(self.committed).max(index(self.purged));
        let known = |index: u64| self.entries.get(&index).map(|entry| entry.pos).or(self.purged);
        match kind % 16 {
            0 | 1 => Call::Vote(Ballot {
                term: self.term + a % 2,
                node: 1 + b % 3,
                committed: a.is_multiple_of(3),
            }),
            2 | 3 => match self.entries.range(floor + 1..).nth((a % 8) as usize) {
                Some((_, entry)) => Call::Committed(entry.pos),
                None => self.append(a, b),
            },
            4 | 5 if self.next() > floor + 1 => {
                let keep = floor + a % (self.next() - floor);
                Call::Truncate(known(keep).filter(|pos| pos.index == keep))
            }
            6 => match self.entries.iter().nth((a % 20) as usize) {
                Some((_, entry)) => Call::Purge(entry.pos),
                None => self.append(a, b),
            },
            // A snapshot from elsewhere.
            7 if a.is_multiple_of(8) => {
                Call::Purge(LogPos { term: self.term + 1, node: 2, index: self.next() + b % 5 })
            }
            _ => self.append(a, b),
        }
    }

    fn append(&self, a: u64, b: u64) -> Call {
        let entries = (0..=a % 4).map(|i| {
            let pos = LogPos { term: self.term, node: 1 + self.term % 3, index: self.next() + i };
            // Mostly small, sometimes more than a sector, rarely zeroes, which look like what isn't there.
            let size = [10, 200, 700, 1900][((a >> 8) + i) as usize % 4] + b % 100;
            let fill = if b.is_multiple_of(7) { 0 } else { (b + i) as u8 };
            LogEntry { pos, tag: (b % 3) as u8, payload: Bytes::from(vec![fill; size as usize]) }
        });
        Call::Append(entries.collect())
    }

    pub fn apply(&mut self, call: &Call) {
        match call {
            Call::Append(entries) => {
                self.entries.extend(entries.iter().map(|entry| (entry.pos.index, entry.clone())));
            }
            Call::Vote(vote) => {
                self.vote = Some(*vote);
                self.term = self.term.max(vote.term);
            }
            Call::Committed(pos) => self.committed = Some(*pos),
            Call::Truncate(after) => {
                let keep = after.map_or(0, |pos| pos.index);
                self.entries.retain(|index, _| *index <= keep);
                self.term += 1;
            }
            Call::Purge(pos) => {
                self.entries.retain(|index, _| *index > pos.index);
                self.purged = Some(*pos);
                self.term = self.term.max(pos.term);
            }
        }
    }

    /// What the log says it is. Everything is read back.
    pub fn observe(log: &SegmentLog) -> Result<Model, LogError> {
        let entries: BTreeMap<u64, LogEntry> =
            log.read(0..u64::MAX, usize::MAX)?.into_iter().map(|entry| (entry.pos.index, entry)).collect();
        let model = Model {
            entries,
            vote: log.vote(),
            purged: log.purged(),
            committed: log.committed(),
            ..Model::default()
        };
        assert_eq!(model.last(), log.last(), "the last entry is the last that can be read");
        Ok(model)
    }

    /// The same without what the two may differ in.
    pub fn comparable(&self) -> Model {
        Model { committed: None, term: 0, ..self.clone() }
    }
}

/// The states a log may be in after `call` was made but not answered.
pub fn between(acked: &Model, call: Option<&Call>) -> Vec<Model> {
    let mut states = vec![acked.comparable()];
    match call {
        Some(Call::Append(entries)) => {
            for count in 1..=entries.len() {
                let mut state = acked.clone();
                state.apply(&Call::Append(entries[..count].to_vec()));
                states.push(state.comparable());
            }
        }
        Some(call) => {
            let mut state = acked.clone();
            state.apply(call);
            states.push(state.comparable());
        }
        None => {}
    }
    states
}

/// Makes a call and waits for its answer.
pub fn perform(log: &SegmentLog, call: &Call) -> Result<(), LogError> {
    let (tx, rx) = mpsc::channel();
    let done = Box::new(move |result| drop(tx.send(result)));
    match call {
        Call::Append(entries) => log.append(entries.clone(), done)?,
        Call::Vote(vote) => log.save_vote(*vote, done)?,
        Call::Truncate(after) => log.truncate_after(*after, done)?,
        Call::Committed(pos) => {
            log.save_committed(*pos)?;
            return log.fatal().map_or(Ok(()), |error| Err((*error).clone()));
        }
        Call::Purge(pos) => log.purge(*pos, done)?,
    }
    rx.recv().unwrap_or_else(|_| Err((*log.fatal().expect("unanswered only if it failed")).clone()))
}

/// Small segments and little memory, so that short tests roll over and read from files.
pub fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 8192,
        tail_bytes: 1500,
        spare_segments: 1,
        drive: Drive::Inline,
        ..LogOptions::default()
    }
}

pub fn open(disk: &SimDisk, on_fatal: FatalHook) -> Result<SegmentLog, OpenError> {
    SegmentLog::open(Arc::new(disk.clone()), Path::new(DIR), small(), on_fatal)
}

/// A hook that counts, since it must be called once.
pub fn counting() -> (FatalHook, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let hook = move |_: &LogError| {
        counted.fetch_add(1, Ordering::SeqCst);
    };
    (Arc::new(hook), count)
}

pub fn never() -> FatalHook {
    Arc::new(|error| panic!("the log failed: {error}"))
}

/// A run of calls that stops at the first error.
pub struct Run {
    /// Everything answered with `Ok`.
    pub acked: Model,
    /// What was committed when something was last synced.
    pub committed_synced: Option<LogPos>,
    /// The call that failed, and how.
    pub failed: Option<(Call, LogError)>,
}

impl Run {
    pub fn new(acked: Model) -> Run {
        Run { committed_synced: acked.committed, acked, failed: None }
    }

    pub fn go(mut self, log: &SegmentLog, seed: u64, calls: usize) -> Run {
        let mut dice = Dice(seed);
        for _ in 0..calls {
            let call = self.acked.call(dice.roll(), dice.roll(), dice.roll());
            if let Err(error) = perform(log, &call) {
                self.failed = Some((call, error));
                break;
            }
            let syncs = call.syncs(&self.acked);
            self.acked.apply(&call);
            if syncs {
                self.committed_synced = self.acked.committed;
            }
        }
        self
    }

    /// Panics unless a log that was opened again has all that was acknowledged, and nothing that was never
    /// asked for.
    pub fn check(&self, log: &SegmentLog, context: &str) -> Model {
        let found = Model::observe(log).expect("all can be read");
        let call = self.failed.as_ref().map(|(call, _)| call);
        let allowed = between(&self.acked, call);
        assert!(
            allowed.contains(&found.comparable()),
            "{context}: found {:?} to {:?}, purged {:?}, vote {:?}; acknowledged to {:?}, purged {:?}, vote {:?}, \
             then {call:?}",
            found.entries.first_key_value().map(|(index, _)| index),
            found.last(),
            found.purged,
            found.vote,
            self.acked.last(),
            self.acked.purged,
            self.acked.vote,
        );
        let asked = match call {
            Some(Call::Committed(pos)) => Some(*pos),
            _ => self.acked.committed,
        };
        let index = |pos: Option<LogPos>| pos.map_or(0, |pos| pos.index);
        assert!(index(found.committed) >= index(self.committed_synced), "{context}: committed went back");
        assert!(index(found.committed) <= index(asked), "{context}: committed was made up");
        Model { term: self.acked.term + 2, ..found }
    }
}
