//! What can go wrong with the log, by what the caller can do about it.
//!
//! Owns: the two error types. [`OpenError`] refuses to start and names the place; [`LogError`] ends a
//! running log, except for its refusals.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a log does not open. Nothing was changed on the disk, except that leftovers may be gone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// What the disk said.
        source: Arc<io::Error>,
    },
    /// The file is of another format version: a newer program wrote it, or it needs a migration.
    #[error("{} has log format version {found}, this program reads version {supported}", file.display())]
    Version {
        /// The segment.
        file: PathBuf,
        /// The version in its header.
        found: u32,
        /// The version this program reads.
        supported: u32,
    },
    /// A segment's header is not what was written.
    #[error("{} has a damaged header: {what}", file.display())]
    Header {
        /// The segment.
        file: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record that was made durable is damaged. It is not cut off, since a peer may count on it.
    #[error("{} is damaged at offset {offset}: {what}", file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where the first bad record begins.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// A segment between two others, or at the beginning, is gone.
    #[error("log segment {} is missing", file.display())]
    Missing {
        /// The segment that should be there.
        file: PathBuf,
    },
    /// The torn end of the log lies below what is known to be committed.
    #[error(
        "{} is torn at offset {offset}: entries end at {last}, but up to {committed} are known to be committed",
        file.display()
    )]
    BelowCommitted {
        /// The last segment.
        file: PathBuf,
        /// Where its valid records end.
        offset: u64,
        /// The index of the last entry that is left.
        last: u64,
        /// The index up to which entries are known to be committed.
        committed: u64,
    },
    /// This process has the log open already.
    #[error("the log in {} is open already", dir.display())]
    InUse {
        /// The directory of the log.
        dir: PathBuf,
    },
}

/// Why an operation on an open log fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// The disk failed. The log is dead: nothing is retried.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        file: PathBuf,
        /// What the disk said.
        source: Arc<io::Error>,
    },
    /// An entry read back is not what was written. The log is dead.
    #[error("{} is damaged at offset {offset}: {what}", file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where the record begins.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// An earlier error ended this log.
    #[error("the log failed before: {0}")]
    Poisoned(Arc<LogError>),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// The caller asked for something that would break the log. Nothing happened, and the log lives on.
    #[error("refused: {0}")]
    Refused(Refusal),
}

/// What an open log refuses to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The entry does not follow the last one.
    #[error("entry {index} does not follow, {expected} does")]
    Gap {
        /// The index of the entry given.
        index: u64,
        /// The index that would follow.
        expected: u64,
    },
    /// The truncation would drop entries that are known to be committed.
    #[error("truncating after {after:?} would drop entries up to {committed}, which are committed")]
    Committed {
        /// The last index to keep.
        after: Option<u64>,
        /// The index known to be committed.
        committed: u64,
    },
    /// The entry is larger than a segment can ever be.
    #[error("an entry of {bytes} bytes is too large")]
    TooLarge {
        /// The size of its payload.
        bytes: usize,
    },
}

impl LogError {
    /// Whether the log is dead by this error, so that the process must end.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, LogError::Refused(_) | LogError::Closed)
    }
}

impl From<LogError> for io::Error {
    fn from(error: LogError) -> Self {
        let kind = match &error {
            LogError::Io { source, .. } => source.kind(),
            LogError::Damaged { .. } => io::ErrorKind::InvalidData,
            LogError::Poisoned(_) => io::ErrorKind::Other,
            LogError::Closed => io::ErrorKind::BrokenPipe,
            LogError::Refused(_) => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
