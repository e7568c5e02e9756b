//! Where the log stands: vote, committed, and which entries are in it.
//!
//! Owns: the rules by which records change that. The open log, its writer and recovery all use these, so
//! that what is recovered is what was promised. Must not: hold entries or touch files.

use super::error::Refusal;
use super::record::Record;
use super::types::{Ballot, LogPos};

/// The state that a sequence of records makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ledger {
    pub vote: Option<Ballot>,
    pub purged: Option<LogPos>,
    pub committed: Option<LogPos>,
    /// The last entry, or `purged` if there is none.
    pub last: Option<LogPos>,
    /// The index of the first entry of a log that was never purged.
    pub origin: Option<u64>,
}

impl Ledger {
    /// The index of the first entry that is there or will be, if that is settled.
    pub(crate) fn first(&self) -> Option<u64> {
        self.purged.map(|pos| pos.index + 1).or(self.origin)
    }

    /// The index that must come next; `None`: any.
    pub(crate) fn next(&self) -> Option<u64> {
        self.last.map(|pos| pos.index + 1)
    }

    pub(crate) fn append(&mut self, pos: LogPos) -> Result<(), Refusal> {
        match self.next() {
            Some(expected) if pos.index != expected => {
                return Err(Refusal::Gap { index: pos.index, expected });
            }
            Some(_) => {}
            None => self.origin = Some(pos.index),
        }
        self.last = Some(pos);
        Ok(())
    }

    /// What would be the last entry after truncating; `None` if there is nothing to drop.
    pub(crate) fn truncation(&self, after: Option<LogPos>) -> Result<Option<Option<LogPos>>, Refusal> {
        let target = after.max_by_index(self.purged);
        let keeps_all = match (target, self.last) {
            (_, None) => true,
            (Some(target), Some(last)) => target.index >= last.index,
            (None, Some(_)) => false,
        };
        if keeps_all {
            return Ok(None);
        }
        match self.committed {
            Some(committed) if target.is_none_or(|target| target.index < committed.index) => {
                Err(Refusal::Committed { after: target.map(|pos| pos.index), committed: committed.index })
            }
            _ => Ok(Some(target)),
        }
    }

    pub(crate) fn truncate(&mut self, target: Option<LogPos>) {
        self.last = target;
        if target.is_none() {
            self.origin = None;
        }
    }

    /// Whether purging up to `pos` changes anything.
    pub(crate) fn purges(&self, pos: LogPos) -> bool {
        self.purged.is_none_or(|purged| purged.index < pos.index)
    }

    pub(crate) fn purge(&mut self, pos: LogPos) {
        self.purged = Some(pos);
        self.last = Some(pos).max_by_index(self.last);
    }

    /// Notes that entries up to `pos` are committed; `false` if that is not new, or if the log does not
    /// have them: what it doesn't have it could not apply again after a restart.
    pub(crate) fn commit(&mut self, pos: LogPos) -> bool {
        let has = self.last.is_some_and(|last| last.index >= pos.index);
        let new = self.committed.is_none_or(|committed| committed.index < pos.index);
        if has && new {
            self.committed = Some(pos);
        }
        has && new
    }

    /// Replays one record.
    pub(crate) fn replay(&mut self, record: &Record) -> Result<(), &'static str> {
        match record {
            Record::Entry(entry) => self.append(entry.pos).map_err(|_| "an entry does not follow the last"),
            Record::Vote(vote) => {
                self.vote = Some(*vote);
                Ok(())
            }
            Record::Committed(pos) => {
                self.commit(*pos);
                Ok(())
            }
            Record::Truncate(after) => match self.truncation(*after) {
                Ok(Some(target)) => {
                    self.truncate(target);
                    Ok(())
                }
                Ok(None) => Ok(()),
                Err(_) => Err("a truncation below what is committed"),
            },
            Record::Purge(pos) => {
                if self.purges(*pos) {
                    self.purge(*pos);
                }
                Ok(())
            }
        }
    }
}

trait MaxByIndex {
    fn max_by_index(self, other: Self) -> Self;
}

impl MaxByIndex for Option<LogPos> {
    /// The one with the greater index; `self` if they are equal.
    fn max_by_index(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) if b.index > a.index => Some(b),
            (Some(a), _) => Some(a),
            (None, other) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(term: u64, index: u64) -> LogPos {
        LogPos { term, node: 0, index }
    }

    #[test]
    fn entries_follow_each_other() {
        let mut ledger = Ledger::default();
        ledger.append(at(1, 5)).expect("an empty log begins anywhere");
        assert_eq!(ledger.first(), Some(5));
        assert_eq!(ledger.append(at(1, 7)), Err(Refusal::Gap { index: 7, expected: 6 }));
        assert_eq!(ledger.append(at(1, 5)), Err(Refusal::Gap { index: 5, expected: 6 }));
        ledger.append(at(1, 6)).expect("follows");
        ledger.purge(at(2, 9));
        assert_eq!((ledger.first(), ledger.last), (Some(10), Some(at(2, 9))));
        assert_eq!(ledger.append(at(2, 7)), Err(Refusal::Gap { index: 7, expected: 10 }));
    }

    #[test]
    fn truncation_stops_at_committed_and_purged() {
        let mut ledger = Ledger::default();
        for index in 1..=9 {
            ledger.append(at(1, index)).expect("follows");
        }
        assert!(!ledger.commit(at(1, 10)), "what is not there is not committed here");
        assert!(ledger.commit(at(1, 4)));
        assert_eq!(ledger.truncation(Some(at(1, 12))), Ok(None));
        assert_eq!(ledger.truncation(Some(at(1, 4))), Ok(Some(Some(at(1, 4)))));
        assert_eq!(
            ledger.truncation(Some(at(1, 3))),
            Err(Refusal::Committed { after: Some(3), committed: 4 })
        );
        assert_eq!(ledger.truncation(None), Err(Refusal::Committed { after: None, committed: 4 }));
        ledger.purge(at(1, 6));
        assert_eq!(ledger.truncation(None), Ok(Some(Some(at(1, 6)))), "purged is the floor");
    }
}
