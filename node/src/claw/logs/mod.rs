//! The logs of this node's attempts, as bytes, one file per attempt: `logs/<run>/<task>-<attempt>.log`. Names never
//! reach the file system. A log is written by one writer in one process life and read by any number of readers. Nothing
//! here is fsynced and no error here ends a task: what cannot be written is counted and marked.

mod reader;
mod record;
mod store;
mod tail;
mod writer;

pub use reader::{LogPiece, LogQuery, LogReader};
pub(crate) use record::Kind;
pub use store::LogStore;
pub(crate) use writer::LogWriter;
pub(crate) use writer::PipeBuffer;

use std::sync::Arc;

/// Which attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId {
    /// The run.
    pub run: u64,
    /// Position of the task in its workflow.
    pub task: u32,
    /// From 1.
    pub attempt: u32,
}

impl std::fmt::Display for AttemptId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.run, self.task, self.attempt)
    }
}

/// Milliseconds since the Unix epoch.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system said no.
    #[error("cannot read the log of attempt {id}: {source}")]
    Io {
        /// Whose log.
        id: AttemptId,
        /// What it said.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests;
