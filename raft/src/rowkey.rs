//! A row's place among all rows: the table's number, then its key. Short ones live inside the tree's nodes, so that a
//! lookup follows no pointer for each comparison.

use std::cmp::Ordering;
use std::ops::{Bound, Deref};
use std::sync::Arc;

use clawhive_statemachine::Table;

/// The longest place that is stored inline; keeps [`RowKey`] at 32 bytes.
const SHORT: usize = 30;

/// Table number and key.
#[derive(Clone)]
pub(crate) enum RowKey {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Arc<[u8]>),
}

impl RowKey {
    pub(crate) fn new(table: Table, key: &[u8]) -> RowKey {
        let len = key.len() + 1;
        if len <= SHORT {
            let mut bytes = [0; SHORT];
            bytes[0] = table.number();
            bytes[1..len].copy_from_slice(key);
            RowKey::Short { len: len as u8, bytes }
        } else {
            let mut place = Vec::with_capacity(len);
            place.push(table.number());
            place.extend_from_slice(key);
            RowKey::Long(place.into())
        }
    }

    /// The bounds of a scan; none when it is empty.
    pub(crate) fn bounds(
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> Option<(Bound<RowKey>, Bound<RowKey>)> {
        let lower = RowKey::new(table, from);
        let upper = match until {
            Some(until) if until <= from => return None,
            Some(until) => RowKey::new(table, until),
            // Just behind the table: the next number alone is before all its rows.
            None => RowKey::Long(Arc::from([table.number() + 1])),
        };
        Some((Bound::Included(lower), Bound::Excluded(upper)))
    }
}

impl Deref for RowKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            RowKey::Short { len, bytes } => &bytes[..usize::from(*len)],
            RowKey::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &RowKey) -> bool {
        **self == **other
    }
}

impl Eq for RowKey {}

impl PartialOrd for RowKey {
    fn partial_cmp(&self, other: &RowKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RowKey {
    fn cmp(&self, other: &RowKey) -> Ordering {
        (**self).cmp(&**other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_small_and_orders_across_the_two_forms() {
        assert_eq!(size_of::<RowKey>(), 32);
        let short = RowKey::new(Table::Keys, &[7; 29]);
        let long = RowKey::new(Table::Keys, &[7; 30]);
        assert!(matches!(short, RowKey::Short { .. }) && matches!(long, RowKey::Long(_)));
        assert!(short < long && RowKey::new(Table::Active, &[255; 40]) < short);
        assert_eq!(long[1..], [7; 30]);
    }
}
