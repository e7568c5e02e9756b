//! Locks that are held.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::LockRow;
use core::ops::ControlFlow;

use crate::read::{one, sound, sound_key};
use crate::{ReadStore, Table, key};

/// A lock; none when nobody holds it.
pub fn lock(view: &dyn ReadStore, namespace: &str, name: &str) -> Option<LockRow> {
    one(view, Table::Locks, &key::lock(namespace, name))
}

/// The locks of a namespace that are held, by name, after `after`: at most `limit`.
pub fn list_locks(
    view: &dyn ReadStore,
    namespace: &str,
    after: Option<&str>,
    limit: usize,
) -> Vec<(String, LockRow)> {
    let prefix = key::lock(namespace, "");
    let until = key::after(&prefix);
    let from = after.map_or(prefix, |after| {
        let mut next = key::lock(namespace, after);
        next.push(0);
        next
    });
    let mut found = Vec::new();
    view.scan(Table::Locks, &from, until.as_deref(), &mut |row_key, value| {
        if found.len() >= limit {
            return ControlFlow::Break(());
        }
        let (_, name) = sound_key(Table::Locks, row_key, key::parse_two_texts(row_key));
        found.push((name.to_string(), sound(Table::Locks, row_key, value.clone())));
        ControlFlow::Continue(())
    });
    found
}
