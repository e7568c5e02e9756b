//! The integration tests of the node.

mod definition;
mod definition_examples;
