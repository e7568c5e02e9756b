//! Whether this replica's state is what it must be.
//!
//! Owns: the newest digests of this replica by entry, and those that the cluster agreed on; says so once when two differ.
//! Must not: compute a digest, or decide what becomes of a replica that differs.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::digest::StateDigest;
use crate::transport::Peer;

/// Digests kept: rounds are seconds apart, and nobody waits for long.
const KEPT: usize = 16;

/// The digest of a state right after an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The entry.
    pub index: u64,
    /// The digest.
    pub bytes: [u8; 16],
}

/// How the state of this replica is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// It is another one than that of the cluster.
    Cluster {
        /// After this entry.
        index: u64,
        /// The digest here.
        ours: String,
        /// The digest that the cluster agreed on.
        theirs: String,
    },
    /// Rows are on disk that nobody wrote like this, or are missing.
    Disk {
        /// The newest entry that the rows should include.
        index: u64,
        /// What the rows add up to.
        found: String,
        /// What was written adds up to this.
        written: String,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Divergence::Cluster { index, ours, theirs } => {
                write!(
                    f,
                    "the state after log entry {index} has digest {ours} here and {theirs} in the cluster"
                )
            }
            Divergence::Disk { index, found, written } => write!(
                f,
                "the state on disk was changed behind our back: at log entry {index} its rows have digest {found}, \
                 what was written has {written}"
            ),
        }
    }
}

/// A replica that was found to differ, and what is needed to rebuild it.
#[derive(Clone, Debug)]
pub struct TakenOut {
    /// How it differs.
    pub divergence: Divergence,
    /// The newest entry that it had applied.
    pub applied: u64,
    /// The members of the cluster as it knows them.
    pub members: Vec<Peer>,
}

/// Called once, from any thread, when this replica was found to differ. It applies and answers nothing more.
pub type DivergeHook = Arc<dyn Fn(&TakenOut) + Send + Sync>;

/// See the module.
pub(crate) struct Audit {
    notes: watch::Sender<VecDeque<(u64, StateDigest)>>,
    expected: Mutex<VecDeque<(u64, StateDigest)>>,
}

impl Audit {
    pub(crate) fn new() -> Audit {
        Audit { notes: watch::Sender::new(VecDeque::new()), expected: Mutex::default() }
    }

    /// The digests taken here, oldest first.
    pub(crate) fn notes(&self) -> watch::Receiver<VecDeque<(u64, StateDigest)>> {
        self.notes.subscribe()
    }

    pub(crate) fn newest(&self) -> Option<Digest> {
        self.notes.borrow().back().map(|(index, digest)| Digest { index: *index, bytes: digest.bytes() })
    }

    /// The digest of the state here, right after `index`.
    pub(crate) fn note(&self, index: u64, digest: StateDigest) -> Option<Divergence> {
        self.notes.send_modify(|notes| push(notes, index, digest));
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = expected.iter().find(|(at, _)| *at == index).map(|(_, theirs)| *theirs)?;
        compare(index, digest, theirs)
    }

    /// What the cluster says it must be. When it is not known here yet, the comparison is made when it is.
    pub(crate) fn expect(&self, index: u64, theirs: StateDigest) -> Option<Divergence> {
        push(&mut self.expected.lock().unwrap_or_else(PoisonError::into_inner), index, theirs);
        let ours = self.notes.borrow().iter().find(|(at, _)| *at == index).map(|(_, ours)| *ours)?;
        compare(index, ours, theirs)
    }

    /// Another state takes the place of the one that was audited so far.
    pub(crate) fn forget(&self) {
        self.notes.send_modify(VecDeque::clear);
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn push(to: &mut VecDeque<(u64, StateDigest)>, index: u64, digest: StateDigest) {
    if to.len() == KEPT {
        to.pop_front();
    }
    to.push_back((index, digest));
}

fn compare(index: u64, ours: StateDigest, theirs: StateDigest) -> Option<Divergence> {
    (ours != theirs).then(|| Divergence::Cluster {
        index,
        ours: ours.to_string(),
        theirs: theirs.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(of: &[u8]) -> StateDigest {
        let mut digest = StateDigest::default();
        digest.add(of, of);
        digest
    }

    #[test]
    fn a_difference_is_found_whichever_is_known_first() {
        let audit = Audit::new();
        assert_eq!(audit.note(5, digest(b"a")), None);
        assert_eq!(audit.expect(5, digest(b"a")), None);
        assert_eq!(audit.expect(9, digest(b"b")), None);
        let found = audit.note(9, digest(b"c")).unwrap().to_string();
        let (ours, theirs) = (digest(b"c"), digest(b"b"));
        let text = format!("the state after log entry 9 has digest {ours} here and {theirs} in the cluster");
        assert_eq!(found, text);
        audit.note(11, digest(b"d"));
        assert!(audit.expect(11, digest(b"e")).is_some());
        assert_eq!(audit.newest().map(|digest| digest.index), Some(11));
    }

    #[test]
    fn what_was_before_another_state_came_is_not_compared_with_it() {
        let audit = Audit::new();
        audit.note(5, digest(b"a"));
        audit.expect(6, digest(b"b"));
        audit.forget();
        assert_eq!(audit.expect(5, digest(b"x")), None);
        assert_eq!(audit.note(6, digest(b"y")), None);
    }
}
