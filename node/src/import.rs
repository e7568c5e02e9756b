//! Workflows from files of other tools. Each importer answers with the text of a workflow file, for a person to read
//! and keep; none stores anything.

pub mod wfcommons;
