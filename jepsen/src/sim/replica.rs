//! One replica: a store in memory fed by the ordered log, with a digest that follows each row, and a snapshot to fall
//! back to. Owns applying; must not decide anything.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use clawhive_proto::prost::Message as _;
use clawhive_proto::{Entry, Outcome, Outcomes};
use clawhive_statemachine::{
    Halt, Limits, MemStore, ReadStore, Store, Table, Touched, Value, apply_with, dump,
};

use super::trace::digest;

/// A row that an entry changed: what it was before the entry.
pub type Changes = BTreeMap<(Table, Vec<u8>), Option<Value>>;

/// A replica of the state.
#[derive(Clone, Default)]
pub struct Replica {
    /// The rows.
    pub store: MemStore,
    /// Log index of the last entry applied.
    pub applied: u64,
    /// A hash over all rows, whatever the order in which they came.
    pub digest: u64,
}

/// What applying an entry gave.
pub struct Done {
    /// One per command.
    pub outcomes: Vec<Outcome>,
    /// A hash of the encoded outcomes.
    pub outcomes_hash: u64,
    /// The wake-up bits.
    pub touched: Touched,
}

impl Replica {
    /// Applies the next entry; with `changes`, keeps what each changed row was.
    pub fn apply(&mut self, entry: &Entry, steps: u32, changes: Option<&mut Changes>) -> Result<Done, Halt> {
        let index = self.applied + 1;
        let mut store = Following { store: &mut self.store, digest: &mut self.digest, changes };
        let applied = apply_with(&mut store, index, entry, Limits { steps })?;
        self.applied = index;
        let encoded = Outcomes { outcomes: applied.outcomes.clone(), first_index: 0 }.encode_to_vec();
        Ok(Done { outcomes: applied.outcomes, outcomes_hash: digest(0, &encoded), touched: applied.touched })
    }

    /// The digest made anew from an ordered dump of all rows: what [`Replica::digest`] must be.
    pub fn dumped(&self) -> u64 {
        let mut sum = 0u64;
        dump(&self.store, &mut |table, key, value| sum = sum.wrapping_add(row(table, key, value)));
        sum
    }
}

fn row(table: Table, key: &[u8], value: &[u8]) -> u64 {
    digest(digest(u64::from(table.number()), key), value)
}

/// A store that keeps the digest beside each write.
struct Following<'a> {
    store: &'a mut MemStore,
    digest: &'a mut u64,
    changes: Option<&'a mut Changes>,
}

impl Following<'_> {
    fn forget(&mut self, table: Table, key: &[u8]) {
        let old = self.store.get(table, key);
        if let Some(old) = &old {
            *self.digest = self.digest.wrapping_sub(row(table, key, old));
        }
        if let Some(changes) = &mut self.changes {
            changes.entry((table, key.to_vec())).or_insert(old);
        }
    }
}

impl ReadStore for Following<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Option<Value> {
        self.store.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        self.store.scan(table, from, until, visit);
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        self.store.scan_back(table, from, until, visit);
    }
}

impl Store for Following<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: Value) {
        self.forget(table, key);
        *self.digest = self.digest.wrapping_add(row(table, key, &value));
        self.store.put(table, key, value);
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.forget(table, key);
        self.store.delete(table, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_follows_each_write() {
        let mut replica = Replica::default();
        let mut changes = Changes::new();
        let mut store =
            Following { store: &mut replica.store, digest: &mut replica.digest, changes: Some(&mut changes) };
        store.put(Table::Keys, b"a", Value::from_static(b"1"));
        store.put(Table::Keys, b"b", Value::from_static(b"2"));
        store.put(Table::Keys, b"a", Value::from_static(b"3"));
        store.delete(Table::Keys, b"b");
        store.delete(Table::Keys, b"none");
        assert_eq!(replica.digest, replica.dumped());
        assert_ne!(replica.digest, 0);
        assert_eq!(changes[&(Table::Keys, b"a".to_vec())], None);
        store_is(&replica, b"a", b"3");
    }

    fn store_is(replica: &Replica, key: &[u8], value: &[u8]) {
        assert_eq!(replica.store.get(Table::Keys, key).as_deref(), Some(value));
    }
}
