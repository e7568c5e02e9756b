//! The functional core of clawhive: [`apply()`] is a pure function from (state, log index, entry) to (state, outcomes).
//!
//! Owns: the tables and keys, every legal transition, the graph rules, what a leader would decide ([`plan`]), typed
//! reading of the state ([`read`]) and the invariants. Must not: read a clock, draw randomness, touch files, threads,
//! hash maps or logging, or know of Raft, redb or tokio. Time enters with the entry, or as `now_ms` given to a plan.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod apply;
mod command;
mod dump;
mod graph;
mod halt;
pub mod ids;
pub mod invariant;
pub mod key;
pub mod level;
pub mod lock;
mod memory;
pub mod names;
pub mod plan;
pub mod read;
mod restore;
mod row;
pub mod state;
pub mod store;
pub mod table;
pub mod touched;
mod work;

pub use apply::{Applied, ENTRY_VERSION, Limits, apply, apply_with};
pub use clawhive_proto as proto;
pub use dump::{Visitor, dump};
pub use halt::Halt;
pub use memory::MemStore;
pub use store::{ReadStore, Store, Value};
pub use table::Table;
pub use touched::Touched;
