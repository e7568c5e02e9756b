//! Integration tests of the node.

mod claw_cases;
mod claw_output;
mod claw_runtime;
mod claw_support;
