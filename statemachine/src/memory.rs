//! A store in memory: for tests, benchmarks, simulation and tools. The raft crate has its own.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Bound, ControlFlow};

use crate::{ReadStore, Store, Table, Value};

/// Above the number of every table.
const NUMBERS: usize = 64;

/// One ordered map per table. Two are equal when they hold the same rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemStore {
    /// By number; some numbers are nobody's.
    tables: [BTreeMap<Vec<u8>, Value>; NUMBERS],
}

impl Default for MemStore {
    fn default() -> Self {
        MemStore { tables: core::array::from_fn(|_| BTreeMap::new()) }
    }
}

impl MemStore {
    /// An empty store.
    pub fn new() -> MemStore {
        MemStore::default()
    }

    /// How many rows a table holds.
    pub fn len(&self, table: Table) -> usize {
        self.rows(table).len()
    }

    /// True when no table holds a row.
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    fn rows(&self, table: Table) -> &BTreeMap<Vec<u8>, Value> {
        &self.tables[usize::from(table.number())]
    }

    fn rows_mut(&mut self, table: Table) -> &mut BTreeMap<Vec<u8>, Value> {
        &mut self.tables[usize::from(table.number())]
    }

    fn range(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Value)> {
        // An inverted range is empty here; BTreeMap would panic.
        let until = until.map(|until| until.max(from));
        let end = until.map_or(Bound::Unbounded, Bound::Excluded);
        self.rows(table).range::<[u8], _>((Bound::Included(from), end))
    }
}

impl ReadStore for MemStore {
    fn get(&self, table: Table, key: &[u8]) -> Option<Value> {
        self.rows(table).get(key).cloned()
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        for (key, value) in self.range(table, from, until) {
            if visit(key, value).is_break() {
                return;
            }
        }
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        for (key, value) in self.range(table, from, until).rev() {
            if visit(key, value).is_break() {
                return;
            }
        }
    }
}

impl Store for MemStore {
    fn put(&mut self, table: Table, key: &[u8], value: Value) {
        let rows = self.rows_mut(table);
        // Most puts replace a row: its key need not be allocated again.
        match rows.get_mut(key) {
            Some(row) => *row = value,
            None => {
                rows.insert(key.to_vec(), value);
            }
        }
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.rows_mut(table).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn keys(store: &MemStore, from: &[u8], until: Option<&[u8]>, back: bool) -> Vec<Vec<u8>> {
        let mut found = vec![];
        let mut visit = |key: &[u8], _: &Value| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        };
        match back {
            false => store.scan(Table::Keys, from, until, &mut visit),
            true => store.scan_back(Table::Keys, from, until, &mut visit),
        }
        found
    }

    #[test]
    fn ranges_are_half_open_and_ordered() {
        let mut store = MemStore::new();
        for key in [3u8, 1, 2] {
            store.put(Table::Keys, &[key], Value::from(vec![key]));
        }
        assert_eq!(keys(&store, &[1], Some(&[3]), false), vec![vec![1], vec![2]]);
        assert_eq!(keys(&store, &[2], None, true), vec![vec![3], vec![2]]);
        assert_eq!(keys(&store, &[3], Some(&[1]), false), Vec::<Vec<u8>>::new());
        store.delete(Table::Keys, &[2]);
        assert_eq!(store.get(Table::Keys, &[2]), None);
        assert_eq!(store.len(Table::Keys), 2);
    }
}
