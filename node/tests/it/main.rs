//! The integration tests of the node.

mod definition;
mod definition_examples;
mod definition_hostile;
mod definition_import;
mod definition_meaning;
mod definition_template;
