//! The state machine from outside: scripts, a naive model, determinism, golden bytes.

mod cluster;
mod determinism;
mod golden;
mod golden_leases;
mod golden_locks;
mod laws;
mod lease_counting;
mod locks;
mod members;
mod model;
mod reading;
mod script;
