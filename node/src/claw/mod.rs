//! The claw: watches the assignments of its own node, runs them, reports by proposing with the fencing token. It owns the
//! processes, the attempts' working directories and the attempts' logs of this node. It never touches a table and never
//! talks to the leader loops; an executor never hears of either.

pub mod config;
pub mod deps;
pub mod logs;
mod process;

pub use config::ClawConfig;
pub use deps::{Assignment, BeatError, BeatReply, ClawDeps, ReportError, Work};
pub use logs::{AttemptId, LogError, LogPiece, LogQuery, LogReader, LogStore};
