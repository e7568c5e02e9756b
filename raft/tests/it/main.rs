//! Integration tests of the raft crate.

mod log_crash;
mod log_faults;
mod log_model;
mod log_property;
mod log_refuse;
mod log_segments;
