//! The claw: watches the assignments of its own node, runs them, reports by proposing with the fencing token. It owns the
//! processes, the attempts' working directories and the attempts' logs of this node. It never touches a table and never
//! talks to the leader loops; an executor never hears of either.

mod attempt;
pub mod bench;
pub mod config;
pub mod deps;
pub mod executor;
mod lease;
pub mod logs;
mod process;
mod reporter;
mod runtime;
mod session;

pub use config::{ClawConfig, TASK_NICE};
pub use deps::{Assignment, BeatError, BeatReply, ClawDeps, ReportError, Work};
pub use logs::{AttemptId, LogError, LogPiece, LogQuery, LogReader, LogStore};
pub use process::{GUARD_ARGUMENT, guard};
pub use runtime::{Claw, ClawError, ClawHandle, ClawStatus};
