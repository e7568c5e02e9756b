//! Integration tests of the node: the claw against a cluster in memory, and whole nodes in this process.

mod claw_cases;
mod claw_output;
mod claw_runtime;
mod claw_support;
mod cluster;
mod definitions;
mod faults;
mod idempotency;
mod logs;
mod one_node;
mod starting;
mod support;
