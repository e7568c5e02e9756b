//! Every key of every table, in one place: big endian numbers, so that the order of keys is the order of ids; a text
//! that is not last ends with NUL (names hold none, `apply` refuses them), a text that is last has no end mark.
//!
//! Must not: know what the rows mean.

use alloc::vec::Vec;
use clawhive_proto::TimerKind;

use crate::ids::{AttemptNumber, ClawId, Fence, NodeId, RunId, TaskIndex, Version, WorkflowUid};

/// The one key of [`crate::Table::Meta`].
pub const META: [u8; 0] = [];

/// The one key of [`crate::Table::Cluster`].
pub const CLUSTER: [u8; 0] = [];

/// The highest priority of a run; the ready index holds `TOP_PRIORITY - priority`, so that the best come first.
pub const TOP_PRIORITY: u32 = 9;

/// Joins parts of fixed length into an array.
fn fixed<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    let mut at = 0;
    for part in parts {
        key[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    key
}

fn two_texts(head: &[u8], first: &str, last: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(head.len() + first.len() + 1 + last.len());
    key.extend_from_slice(head);
    key.extend_from_slice(first.as_bytes());
    key.push(0);
    key.extend_from_slice(last.as_bytes());
    key
}

/// Of `Workflows`.
pub fn workflow(namespace: &str, name: &str) -> Vec<u8> {
    two_texts(&[], namespace, name)
}

/// Of `Versions`.
pub fn version(uid: WorkflowUid, version: Version) -> [u8; 16] {
    fixed(&[&uid.0.to_be_bytes(), &version.0.to_be_bytes()])
}

/// Of `Specs`; without the last four bytes ([`version`]) the prefix of all tasks of a version.
pub fn spec(uid: WorkflowUid, version: Version, task: TaskIndex) -> [u8; 20] {
    fixed(&[&uid.0.to_be_bytes(), &version.0.to_be_bytes(), &task.0.to_be_bytes()])
}

/// Of `Runs` and `Active`; the prefix of all that belongs to a run in `Tasks`, `Attempts`, `Held`, `Outputs`,
/// `RunEvents`.
pub fn run(run: RunId) -> [u8; 8] {
    run.0.to_be_bytes()
}

/// Of `Tasks` and `Outputs`, and the value in `Ready`; the prefix of the attempts of a task.
pub fn task(run: RunId, task: TaskIndex) -> [u8; 12] {
    fixed(&[&run.0.to_be_bytes(), &task.0.to_be_bytes()])
}

/// Of `Attempts`.
pub fn attempt(run: RunId, task: TaskIndex, attempt: AttemptNumber) -> [u8; 16] {
    fixed(&[&run.0.to_be_bytes(), &task.0.to_be_bytes(), &attempt.0.to_be_bytes()])
}

/// Of `Ready`.
pub fn ready(priority: u32, seq: u64) -> [u8; 9] {
    let rank = TOP_PRIORITY.saturating_sub(priority) as u8;
    fixed(&[&[rank], &seq.to_be_bytes()])
}

/// Of `Held`; the value is [`held_value`].
pub fn held(run: RunId, seq: u64) -> [u8; 16] {
    fixed(&[&run.0.to_be_bytes(), &seq.to_be_bytes()])
}

/// What a row of `Held` holds.
pub fn held_value(task: TaskIndex) -> [u8; 4] {
    task.0.to_be_bytes()
}

/// Of `Assignments`.
pub fn assignment(claw: ClawId, fence: Fence, run: RunId, task: TaskIndex) -> [u8; 28] {
    fixed(&[&claw.0.to_be_bytes(), &fence.0.to_be_bytes(), &run.0.to_be_bytes(), &task.0.to_be_bytes()])
}

/// Of `Timers`.
pub fn timer(due_ms: u64, kind: TimerKind, run: RunId, task: TaskIndex) -> [u8; 21] {
    fixed(&[&due_ms.to_be_bytes(), &[kind as u8], &run.0.to_be_bytes(), &task.0.to_be_bytes()])
}

/// Of `Backlog`.
pub fn backlog(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

/// Of `Claws`; the prefix of its assignments.
pub fn claw(claw: ClawId) -> [u8; 8] {
    claw.0.to_be_bytes()
}

/// Of `Nodes`, and the value in `Joins` (whose key is the join id itself).
pub fn node(node: NodeId) -> [u8; 8] {
    node.0.to_be_bytes()
}

/// Of `RequestExpiry` (the key of `Requests` is the request id itself).
pub fn request_expiry(expires_ms: u64, request_id: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + request_id.len());
    key.extend_from_slice(&expires_ms.to_be_bytes());
    key.extend_from_slice(request_id);
    key
}

/// Of `Idempotency`.
pub fn idempotency(namespace: &str, idempotency_key: &str) -> Vec<u8> {
    two_texts(&[], namespace, idempotency_key)
}

/// Of `IdempotencyExpiry`: the expiry before the key of `Idempotency`.
pub fn idempotency_expiry(expires_ms: u64, namespace: &str, idempotency_key: &str) -> Vec<u8> {
    two_texts(&expires_ms.to_be_bytes(), namespace, idempotency_key)
}

/// Of `Events`.
pub fn event(log_index: u64) -> [u8; 8] {
    log_index.to_be_bytes()
}

/// Of `RunEvents`.
pub fn run_event(run: RunId, log_index: u64) -> [u8; 16] {
    fixed(&[&run.0.to_be_bytes(), &log_index.to_be_bytes()])
}

/// Of `Finished`.
pub fn finished(ended_ms: u64, run: RunId) -> [u8; 16] {
    fixed(&[&ended_ms.to_be_bytes(), &run.0.to_be_bytes()])
}

/// Of `Keys`.
pub fn key(namespace: &str, key: &str) -> Vec<u8> {
    two_texts(&[], namespace, key)
}

/// Of `Locks`.
pub fn lock(namespace: &str, name: &str) -> Vec<u8> {
    two_texts(&[], namespace, name)
}

/// Of `LockWaiters`: the place `seq` in the queue of a lock.
pub fn lock_waiter(namespace: &str, name: &str, seq: u64) -> Vec<u8> {
    let mut key = lock_queue(namespace, name);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// The prefix of the queue of a lock in `LockWaiters`.
pub fn lock_queue(namespace: &str, name: &str) -> Vec<u8> {
    let mut key = two_texts(&[], namespace, name);
    key.push(0);
    key
}

/// Of `LockLeases`: where the lease of a holder (`seq` is 0) or a waiter was last renewed.
pub fn lock_lease(changed_at: u64, namespace: &str, name: &str, seq: u64) -> Vec<u8> {
    let mut key = changed_at.to_be_bytes().to_vec();
    key.extend_from_slice(&lock_waiter(namespace, name, seq));
    key
}

/// The first key after all that start with `prefix`; none when there is no such key.
pub fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The number of eight bytes at `at`.
pub fn u64_at(key: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(at..at + 8)?.try_into().ok()?))
}

/// The number of four bytes at `at`.
pub fn u32_at(key: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a key of `Tasks` or `Outputs`, or a value of `Ready`.
pub fn parse_task(key: &[u8]) -> Option<(RunId, TaskIndex)> {
    Some((RunId(u64_at(key, 0)?), TaskIndex(u32_at(key, 8)?)))
}

/// Reads a key of `Attempts`.
pub fn parse_attempt(key: &[u8]) -> Option<(RunId, TaskIndex, AttemptNumber)> {
    let (run, task) = parse_task(key)?;
    Some((run, task, AttemptNumber(u32_at(key, 12)?)))
}

/// Reads a key of `Ready`: rank (best is 0) and sequence.
pub fn parse_ready(key: &[u8]) -> Option<(u32, u64)> {
    Some((u32::from(*key.first()?), u64_at(key, 1)?))
}

/// Reads a key of `Assignments`.
pub fn parse_assignment(key: &[u8]) -> Option<(ClawId, Fence, RunId, TaskIndex)> {
    let run = RunId(u64_at(key, 16)?);
    Some((ClawId(u64_at(key, 0)?), Fence(u64_at(key, 8)?), run, TaskIndex(u32_at(key, 24)?)))
}

/// Reads a key of `Timers`.
pub fn parse_timer(key: &[u8]) -> Option<(u64, TimerKind, RunId, TaskIndex)> {
    let kind = TimerKind::try_from(i32::from(*key.get(8)?)).ok()?;
    Some((u64_at(key, 0)?, kind, RunId(u64_at(key, 9)?), TaskIndex(u32_at(key, 17)?)))
}

/// Reads a key of two texts: of `Locks`, `Keys`, `KeyFences`, `Workflows`.
pub fn parse_two_texts(key: &[u8]) -> Option<(&str, &str)> {
    let end = key.iter().position(|byte| *byte == 0)?;
    let text = |part| core::str::from_utf8(part).ok();
    Some((text(&key[..end])?, text(&key[end + 1..])?))
}

/// Reads a key of `LockWaiters`: namespace, lock, place.
pub fn parse_lock_waiter(key: &[u8]) -> Option<(&str, &str, u64)> {
    let end = key.len().checked_sub(8)?;
    let (namespace, name) = parse_two_texts(key.get(..end.checked_sub(1)?)?)?;
    Some((namespace, name, u64_at(key, end)?))
}

/// Reads a key of `LockLeases`: log index, namespace, lock, place.
pub fn parse_lock_lease(key: &[u8]) -> Option<(u64, &str, &str, u64)> {
    let (namespace, name, seq) = parse_lock_waiter(key.get(8..)?)?;
    Some((u64_at(key, 0)?, namespace, name, seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_ordered_by_priority_then_sequence() {
        assert!(ready(9, 500) < ready(5, 1));
        assert!(ready(5, 1) < ready(5, 256));
        assert_eq!(parse_ready(&ready(3, 77)), Some((6, 77)));
    }

    #[test]
    fn keys_read_back() {
        let key = assignment(ClawId(1), Fence(2), RunId(3), TaskIndex(4));
        assert_eq!(parse_assignment(&key), Some((ClawId(1), Fence(2), RunId(3), TaskIndex(4))));
        let key = timer(9, TimerKind::Retry, RunId(3), TaskIndex(4));
        assert_eq!(parse_timer(&key), Some((9, TimerKind::Retry, RunId(3), TaskIndex(4))));
        let key = attempt(RunId(3), TaskIndex(4), AttemptNumber(5));
        assert_eq!(parse_attempt(&key), Some((RunId(3), TaskIndex(4), AttemptNumber(5))));
        assert_eq!(parse_two_texts(&lock("a", "b/c")), Some(("a", "b/c")));
        assert_eq!(parse_lock_lease(&lock_lease(7, "a", "b", 256)), Some((7, "a", "b", 256)));
        assert_eq!(parse_lock_lease(&lock_lease(7, "a", "b", 0)), Some((7, "a", "b", 0)));
        assert_eq!(parse_lock_waiter(b"short"), None);
    }

    #[test]
    fn a_short_name_is_no_prefix_of_another_pair() {
        assert_ne!(workflow("a", "bc"), workflow("ab", "c"));
        assert!(workflow("a", "z") < workflow("ab", "a"));
    }

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after(&[1, 2]), Some(alloc::vec![1, 3]));
        assert_eq!(after(&[1, 0xff]), Some(alloc::vec![2]));
        assert_eq!(after(&[0xff, 0xff]), None);
    }
}
