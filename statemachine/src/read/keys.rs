//! Lists of keys, in their order.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::{KeyRow, KeyView};
use core::ops::ControlFlow;

pub use crate::command::key_txn::{MAX_TXN_OPS, MAX_TXN_READ_BYTES, key_version};
use crate::read::{sound, sound_key};
use crate::{ReadStore, Table, key};

/// Which keys to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFilter {
    /// Of this namespace.
    pub namespace: String,
    /// That start like this.
    pub prefix: String,
    /// Only keys after this one: where the last page ended. It stays valid whatever is written meanwhile.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// A page ends after so many bytes of values, whatever its limit says.
    pub bytes: usize,
    /// Without the values.
    pub keys_only: bool,
}

/// One page of keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeysPage {
    /// In their order.
    pub keys: Vec<KeyView>,
    /// The `after` of the next page; none at the end.
    pub next: Option<String>,
}

/// Lists keys.
pub fn list_keys(view: &dyn ReadStore, filter: &KeyFilter) -> KeysPage {
    let prefix = key::key(&filter.namespace, &filter.prefix);
    let until = key::after(&prefix);
    let mut from = prefix.clone();
    if let Some(after) = &filter.after {
        let mut next = key::key(&filter.namespace, after);
        // The smallest key above it.
        next.push(0);
        from = from.max(next);
    }
    let mut page = KeysPage::default();
    let mut bytes = 0;
    view.scan(Table::Keys, &from, until.as_deref(), &mut |row_key, value| {
        if page.keys.len() >= filter.limit || bytes >= filter.bytes {
            page.next = page.keys.last().map(|last| last.key.clone());
            return ControlFlow::Break(());
        }
        let (_, name) = sound_key(Table::Keys, row_key, key::parse_two_texts(row_key));
        let row: KeyRow = sound(Table::Keys, row_key, value.clone());
        let size = row.value.len() as u64;
        let version = key_version(&row);
        let value = if filter.keys_only { Default::default() } else { row.value };
        bytes += name.len() + value.len();
        page.keys.push(KeyView {
            key: name.to_string(),
            value,
            size,
            version,
            created_at: row.created_at,
            modified_at: row.modified_at,
        });
        ControlFlow::Continue(())
    });
    page
}
