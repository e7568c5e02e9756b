//! The words of the log: positions, votes and entries, free of openraft.

use bytes::Bytes;

/// The identity of an entry: who proposed it, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPos {
    /// The term of the leader that proposed it.
    pub term: u64,
    /// The node of that leader, or 0 where the term alone names it.
    pub node: u64,
    /// The index in the log.
    pub index: u64,
}

/// A vote as it must be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ballot {
    /// The term voted in.
    pub term: u64,
    /// The node voted for.
    pub node: u64,
    /// Whether a quorum has granted it, so that the node is the leader of the term.
    pub committed: bool,
}

/// An entry. The log does not look into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its identity.
    pub pos: LogPos,
    /// What kind of payload it has, in the words of the caller.
    pub tag: u8,
    /// The payload.
    pub payload: Bytes,
}

impl LogEntry {
    /// The bytes it counts for in memory, with its bookkeeping.
    pub(crate) fn weight(&self) -> usize {
        self.payload.len() + 96
    }
}
