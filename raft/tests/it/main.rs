//! Replicas in one process, over links in memory and directories on disk.

mod cluster;
mod failover;
mod hub;
mod restarts;
mod snapshots;
mod writes;
