//! The Raft log: vote and entries in one sequence of records, in segment files.
//!
//! Owns: what is durable and when that may be said; reading entries back; recovery.
//! Must not: look into entries, or decide anything about them.
//!
//! * `segmented` is the log as callers see it, `store` fits it to openraft.
//! * `writer` writes, `engine` gets jobs to it, `pool` prepares files.
//! * `tail` and `catalog` find entries in memory and in files, `ledger` is where the log stands.
//! * `record` and `segment` are the format, `recovery` and `damage` read it at the start.
//!
//! Invariants:
//!
//! 1. Records are written in the order of the calls, by one writer.
//! 2. A callback with `Ok` means that everything up to it was synced.
//! 3. A batch begins where the one before was synced, and says so in its records; the file behind it is
//!    zeroes. So a torn write can be told from damage.
//! 4. A segment has its name only when its header is durable, and gets records only when all before it
//!    were synced. Its header carries vote, purged, committed and the last entry.
//! 5. A segment is given up, the oldest first, only after the record that purges its entries was synced.
//! 6. After an error nothing is written, and everything is answered with it.

mod catalog;
mod damage;
mod engine;
mod error;
mod ledger;
mod options;
mod pool;
mod record;
mod recovery;
mod segment;
mod segmented;
mod shared;
pub(crate) mod store;
mod tail;
mod types;
mod writer;

pub use error::{LogError, OpenError, Refusal};
pub use options::{Drive, LogOptions};
pub use segmented::SegmentLog;
pub use shared::FatalHook;
pub use types::{Ballot, LogEntry, LogPos};
pub use writer::OnDurable;
