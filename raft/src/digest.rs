//! The digest of a state: the sum of the hashes of its rows.
//!
//! Owns: the sum, and keeping it up to date with each row that changes, so that nobody ever has to read the whole state
//! for it. Equal states have equal digests in whatever order their rows were written. Must not: know when one is taken.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The sum over all rows of the first 16 bytes of SHA-256 of (length of place, place, value), modulo 2^128.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StateDigest(u128);

impl StateDigest {
    pub(crate) fn add(&mut self, place: &[u8], value: &[u8]) {
        self.0 = self.0.wrapping_add(hash(place, value));
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<StateDigest> {
        Some(StateDigest(u128::from_be_bytes(bytes.try_into().ok()?)))
    }
}

impl fmt::Display for StateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for StateDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn hash(place: &[u8], value: &[u8]) -> u128 {
    let mut hash = Sha256::new();
    hash.update((place.len() as u32).to_le_bytes());
    hash.update(place);
    hash.update(value);
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    u128::from_be_bytes(first)
}

/// The digest of what is on disk, and how far the rows were read again to see whether they still add up to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// None in a file of a version that kept none, until all its rows were read once.
    pub(crate) total: Option<StateDigest>,
    pub(crate) reading: Option<Reading>,
}

/// A reading of all rows in steps, while they change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// Everything up to this place was read; none before the first row.
    pub(crate) until: Option<Vec<u8>>,
    /// The digest of that part as it is now.
    pub(crate) sum: StateDigest,
}

impl Tally {
    /// A row changes: none is no row.
    pub(crate) fn change(&mut self, place: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        let of = |value: Option<&[u8]>| value.map_or(0, |value| hash(place, value));
        let step = of(new).wrapping_sub(of(old));
        if let Some(total) = &mut self.total {
            total.0 = total.0.wrapping_add(step);
        }
        if let Some(reading) = &mut self.reading
            && reading.until.as_deref().is_some_and(|until| place <= until)
        {
            reading.sum.0 = reading.sum.0.wrapping_add(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_and_the_past_of_rows_do_not_matter() {
        let mut straight = StateDigest::default();
        straight.add(b"a", b"1");
        straight.add(b"b", b"2");
        let mut tally = Tally { total: Some(StateDigest::default()), reading: None };
        tally.change(b"b", None, Some(b"9"));
        tally.change(b"c", None, Some(b"3"));
        tally.change(b"a", None, Some(b"1"));
        tally.change(b"b", Some(b"9"), Some(b"2"));
        tally.change(b"c", Some(b"3"), None);
        assert_eq!(tally.total, Some(straight));
    }

    #[test]
    fn where_the_place_ends_matters() {
        let of = |place: &[u8], value: &[u8]| {
            let mut digest = StateDigest::default();
            digest.add(place, value);
            digest
        };
        assert_ne!(of(b"ab", b"c"), of(b"a", b"bc"));
        assert_eq!(StateDigest::from_bytes(&of(b"a", b"b").bytes()), Some(of(b"a", b"b")));
        // Fixed for all time: peers of other versions compare theirs with it.
        assert_eq!(of(b"\x19n\0k", b"v").to_string(), "d753ae599c52d3cd49ec78ec59c37bfb");
    }

    #[test]
    fn a_reading_in_steps_follows_what_changes_behind_it() {
        let mut tally = Tally { total: Some(StateDigest::default()), reading: Some(Reading::default()) };
        tally.change(b"a", None, Some(b"1"));
        let reading = tally.reading.as_mut().unwrap();
        reading.sum.add(b"a", b"1");
        reading.until = Some(b"a".to_vec());
        tally.change(b"a", Some(b"1"), Some(b"2"));
        tally.change(b"b", None, Some(b"3"));
        let reading = tally.reading.as_mut().unwrap();
        reading.sum.add(b"b", b"3");
        reading.until = Some(b"b".to_vec());
        assert_eq!(Some(tally.reading.unwrap().sum), tally.total);
    }
}
