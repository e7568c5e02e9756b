//! The ordered store that the state machine runs over. The raft crate gives it an overlay over redb, tests a map in
//! memory.

use clawhive_proto::bytes::Bytes;
use core::ops::ControlFlow;

use crate::Table;

/// An encoded row.
pub type Value = Bytes;

/// Reading. A store whose medium fails must end the process: there is no error here, because no caller could go on.
pub trait ReadStore {
    /// The row under `key`, or none.
    fn get(&self, table: Table, key: &[u8]) -> Option<Value>;

    /// Visits the rows with `from <= key` and, when `until` is given, `key < until`, in ascending order of key, until
    /// the visitor breaks.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    );

    /// As [`ReadStore::scan`], in descending order of key.
    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    );
}

/// Writing, for `apply` only.
pub trait Store: ReadStore {
    /// Stores the row under `key`, replacing what was there.
    fn put(&mut self, table: Table, key: &[u8], value: Value);

    /// Removes the row under `key`; none there is fine.
    fn delete(&mut self, table: Table, key: &[u8]);
}
