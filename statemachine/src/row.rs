//! Encoding and decoding of rows: the one place where bytes become messages.

use alloc::string::String;
use alloc::vec::Vec;
use clawhive_proto::Backoff;
use clawhive_proto::bytes::Bytes;
use clawhive_proto::prost::Message;
use core::ops::ControlFlow;

use crate::ids::{TaskIndex, Version, WorkflowUid};
use crate::{Halt, ReadStore, Table, Value, key};

/// The encoded form of a row. Encoding of prost messages with ordered maps is canonical.
pub(crate) fn encode(row: &impl Message) -> Value {
    Bytes::from(row.encode_to_vec())
}

/// Reads a row; one that does not decode is a damaged store.
pub(crate) fn decode<R: Message + Default>(table: Table, key: &[u8], value: Value) -> Result<R, Halt> {
    R::decode(value).map_err(|_| damaged(table, key))
}

/// Gets and decodes a row.
pub(crate) fn load<R: Message + Default>(
    view: &dyn ReadStore,
    table: Table,
    key: &[u8],
) -> Result<Option<R>, Halt> {
    view.get(table, key).map(|value| decode(table, key, value)).transpose()
}

/// A row or a key that cannot be read.
pub(crate) fn damaged(table: Table, key: &[u8]) -> Halt {
    Halt::BrokenInvariant { what: alloc::format!("the row {key:02x?} of {table:?} does not decode") }
}

/// Visits all rows whose key starts with `prefix`.
pub(crate) fn scan_prefix(
    view: &dyn ReadStore,
    table: Table,
    prefix: &[u8],
    visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
) {
    let until = key::after(prefix);
    view.scan(table, prefix, until.as_deref(), visit);
}

/// The first row at or after `from`, below `until`.
pub(crate) fn first(
    view: &dyn ReadStore,
    table: Table,
    from: &[u8],
    until: Option<&[u8]>,
) -> Option<(Vec<u8>, Value)> {
    let mut found = None;
    view.scan(table, from, until, &mut |key, value| {
        found = Some((key.to_vec(), value.clone()));
        ControlFlow::Break(())
    });
    found
}

/// What `apply` needs of a `SpecRow`: read without touching the texts of the task.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct SlimSpec {
    #[prost(message, optional, tag = "1")]
    pub task: Option<SlimTask>,
    #[prost(uint32, repeated, tag = "2")]
    pub dependents: Vec<u32>,
}

/// The same fields as in `Task`.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct SlimTask {
    #[prost(uint32, repeated, tag = "3")]
    pub needs: Vec<u32>,
    #[prost(message, optional, tag = "8")]
    pub retries: Option<clawhive_proto::Retries>,
    #[prost(message, optional, tag = "9")]
    pub timeout: Option<clawhive_proto::Timeouts>,
    #[prost(enumeration = "clawhive_proto::Delivery", tag = "11")]
    pub delivery: i32,
}

impl SlimSpec {
    /// Of one task of a version.
    pub fn load(
        view: &dyn ReadStore,
        uid: WorkflowUid,
        version: Version,
        task: TaskIndex,
    ) -> Result<SlimSpec, Halt> {
        let key = key::spec(uid, version, task);
        load(view, Table::Specs, &key)?.ok_or_else(|| damaged(Table::Specs, &key))
    }

    /// How long a task may wait in the ready index; 0 is for ever.
    pub fn queue_ms(&self) -> u64 {
        self.task.as_ref().and_then(|task| task.timeout.as_ref()).map_or(0, |timeout| timeout.queue_ms)
    }

    /// How often a task may be tried; at least once.
    pub fn max_attempts(&self) -> u32 {
        self.retries().map_or(1, |retries| retries.max_attempts.max(1))
    }

    /// The retry policy.
    pub fn retries(&self) -> Option<&clawhive_proto::Retries> {
        self.task.as_ref().and_then(|task| task.retries.as_ref())
    }

    /// Whether a lost attempt must not run again.
    pub fn at_most_once(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.delivery() == clawhive_proto::Delivery::AtMostOnce)
    }

    /// Its upstreams.
    pub fn needs(&self) -> &[u32] {
        self.task.as_ref().map_or(&[], |task| &task.needs)
    }
}

/// How long to wait before try `tries + 1`, after `tries` counted tries failed. Whole numbers only; `draw` is any
/// number that all replicas agree on.
pub(crate) fn retry_delay_ms(policy: &clawhive_proto::Retries, tries: u32, draw: u64) -> u64 {
    let step = u128::from(tries.max(1));
    let base = u128::from(policy.delay_ms);
    let mut delay = match policy.backoff() {
        Backoff::Fixed => base,
        Backoff::Linear => base * step,
        // Shifted by at most 63, so that the product stays below 2^127.
        Backoff::Exponential => base << (step - 1).min(63),
    };
    if policy.max_delay_ms > 0 {
        delay = delay.min(u128::from(policy.max_delay_ms));
    }
    let delay = delay.min(u128::from(u64::MAX));
    let jitter = u128::from(policy.jitter_permille.min(1000));
    // From (1000 - jitter) to (1000 + jitter) thousandths.
    let thousandths = 1000 - jitter + u128::from(draw) % (2 * jitter + 1);
    u64::try_from(delay * thousandths / 1000).unwrap_or(u64::MAX)
}

/// Mixes numbers into one that looks random (splitmix64): for the jitter of retries, equal on all replicas.
pub(crate) fn mix(parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(0x9e37_79b9_7f4a_7c15, |state: u64, part| {
        let mut z = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// At most `limit` bytes of a text, cut between characters.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    String::from(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::Retries;

    fn policy(delay_ms: u64, backoff: Backoff, max_delay_ms: u64, jitter_permille: u32) -> Retries {
        Retries { max_attempts: 9, delay_ms, backoff: backoff as i32, max_delay_ms, jitter_permille }
    }

    #[test]
    fn delays_follow_the_policy() {
        let doubling = policy(30_000, Backoff::Exponential, 600_000, 0);
        let delays: Vec<u64> = (1..=7).map(|tries| retry_delay_ms(&doubling, tries, 0)).collect();
        assert_eq!(delays, [30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000]);
        assert_eq!(retry_delay_ms(&policy(5, Backoff::Linear, 0, 0), 3, 0), 15);
        assert_eq!(retry_delay_ms(&policy(5, Backoff::Fixed, 0, 0), 3, 0), 5);
    }

    #[test]
    fn jitter_stays_in_its_band_and_nothing_overflows() {
        let wobbly = policy(1_000, Backoff::Fixed, 0, 200);
        for draw in 0..1_000 {
            let delay = retry_delay_ms(&wobbly, 1, mix([draw, 1, 1]));
            assert!((800..=1_200).contains(&delay), "{delay}");
        }
        assert_eq!(retry_delay_ms(&wobbly, 1, 0), 800);
        assert_eq!(retry_delay_ms(&wobbly, 1, 400), 1_200);
        let huge = policy(u64::MAX, Backoff::Exponential, 0, 1_000);
        assert_eq!(retry_delay_ms(&huge, u32::MAX, 2_000), u64::MAX);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("añb", 2), "a");
        assert_eq!(cut("añb", 3), "añ");
        assert_eq!(cut("ab", 9), "ab");
    }
}
