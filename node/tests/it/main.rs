//! The integration tests of the node.

mod definition;
