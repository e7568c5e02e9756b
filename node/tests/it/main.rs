//! Integration tests of the node: definitions, the claw against a cluster in memory, and whole nodes in this process.
// Tests measure real time, and start real processes.
#![allow(clippy::disallowed_methods)]

mod claw_cases;
mod claw_output;
mod claw_runtime;
mod claw_support;
mod cli;
mod cluster;
mod definition;
mod definition_examples;
mod definition_hostile;
mod definition_import;
mod definition_meaning;
mod definition_template;
mod faults;
mod idempotency;
mod locks;
mod logs;
mod one_node;
mod request_ids;
mod starting;
mod submits;
mod support;
