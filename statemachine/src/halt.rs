//! The two ways in which a command does not go through: a rejection is an answer, a halt ends the process.

use alloc::string::String;
use clawhive_proto::{Rejection, RejectionCode};
use core::fmt;

/// Why the state machine cannot go on: a stopped node can be repaired, a diverged one cannot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The entry holds a command that this binary does not know: it was written by a newer one.
    UnknownCommand {
        /// Where in the log.
        log_index: u64,
        /// Which of the entry's commands, from 0.
        position: usize,
    },
    /// The entry has a format that this binary does not know.
    UnknownVersion {
        /// Where in the log.
        log_index: u64,
        /// The entry's format.
        version: u32,
    },
    /// The cluster was raised to a level that this binary cannot do.
    UnknownLevel {
        /// Where in the log.
        log_index: u64,
        /// The level.
        level: u32,
    },
    /// The state contradicts itself.
    BrokenInvariant {
        /// What was found, for people.
        what: String,
    },
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halt::UnknownCommand { log_index, position } => write!(
                f,
                "log entry {log_index} holds a command (number {position} in it) that this version of clawhive does \
                 not know; upgrade this node"
            ),
            Halt::UnknownVersion { log_index, version } => write!(
                f,
                "log entry {log_index} has format {version}, which this version of clawhive does not know; upgrade \
                 this node"
            ),
            Halt::UnknownLevel { log_index, level } => write!(
                f,
                "log entry {log_index} raises the cluster to level {level}; this version of clawhive knows {} at most; \
                 upgrade this node",
                crate::level::LEVEL
            ),
            Halt::BrokenInvariant { what } => write!(f, "the replicated state contradicts itself: {what}"),
        }
    }
}

impl core::error::Error for Halt {}

/// Why a command stops short.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A business answer; the command has changed nothing.
    Rejected(Rejection),
    Halted(Halt),
}

impl From<Halt> for Refusal {
    fn from(halt: Halt) -> Self {
        Refusal::Halted(halt)
    }
}

/// The result of a step of a command.
pub(crate) type Step<T> = Result<T, Refusal>;

/// A rejection, to be returned with `?` or as is.
pub(crate) fn rejected<T>(code: RejectionCode, message: impl Into<String>) -> Step<T> {
    Err(Refusal::Rejected(Rejection { code: code as i32, message: message.into() }))
}

/// A contradiction in the state.
pub(crate) fn broken(what: impl Into<String>) -> Refusal {
    Refusal::Halted(Halt::BrokenInvariant { what: what.into() })
}
