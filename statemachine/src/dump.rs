//! All rows in one fixed order: the form of digests, snapshots and comparisons. No hash is made here.

use core::ops::ControlFlow;

use crate::{ReadStore, Table};

/// Takes one row: table, key, value.
pub type Visitor<'a> = dyn FnMut(Table, &[u8], &[u8]) + 'a;

/// Visits every row of every table, tables by number, rows by key.
pub fn dump(view: &dyn ReadStore, visit: &mut Visitor<'_>) {
    for table in Table::ALL {
        view.scan(table, &[], None, &mut |key, value| {
            visit(table, key, value);
            ControlFlow::Continue(())
        });
    }
}
