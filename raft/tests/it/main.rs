//! Integration tests: the log over simulated and real disks, and replicas in one process over links in memory.

mod cluster;
mod damage;
mod failover;
mod hub;
mod log_crash;
mod log_faults;
mod log_model;
mod log_property;
mod log_refuse;
mod log_segments;
mod members;
mod restarts;
mod snapshots;
mod writes;
