//! The state machine from outside: scripts, a naive model, determinism, golden bytes.

mod cluster;
mod determinism;
mod golden;
mod golden_locks;
mod laws;
mod lease_counting;
mod locks;
mod model;
mod reading;
mod script;
