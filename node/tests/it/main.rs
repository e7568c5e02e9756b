//! Whole nodes in this process, over real sockets, logs and tasks.

mod cluster;
mod definitions;
mod faults;
mod idempotency;
mod logs;
mod one_node;
mod starting;
mod support;
