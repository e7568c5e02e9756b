//! What a leader would propose next: pure functions of a view, and of the time where it matters. A plan may be stale
//! when its command is applied; `apply` checks everything again.
//!
//! Must not: propose, sleep, or know who the leader is other than by being told.

pub mod advance;
pub mod assign;
pub mod collect;
pub mod fire;
pub mod handover;
pub mod leases;
pub mod locks;
mod slots;
