//! All rows in one fixed order: the form of digests, snapshots and comparisons. No hash is made here.

use core::ops::ControlFlow;

use crate::{ReadStore, Table};

/// Visits every row of every table, tables by number, rows by key.
pub fn dump(view: &dyn ReadStore, visit: &mut dyn FnMut(Table, &[u8], &[u8])) {
    for table in Table::ALL {
        view.scan(table, &[], None, &mut |key, value| {
            visit(table, key, value);
            ControlFlow::Continue(())
        });
    }
}
