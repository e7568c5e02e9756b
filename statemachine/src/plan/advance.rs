//! Whether the backlog holds work to go on with.

use clawhive_proto::Advance;

use crate::{ReadStore, Table, row};

/// How many steps one command does.
pub const BATCH: u32 = 1_000;

/// The next step of the backlog, if there is one.
pub fn plan(view: &dyn ReadStore) -> Option<Advance> {
    row::first(view, Table::Backlog, &[], None).map(|_| Advance { limit: BATCH })
}
