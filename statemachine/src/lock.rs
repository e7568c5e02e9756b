//! What the commands of locks have in common: leases and their index, the queue, the hand-over to the next in it.
//!
//! A lock is a row while somebody holds it, and none otherwise. Its fencing token is the log index of the acquisition: it
//! grows with each, and is never used again. To keep it so, a lock that was acquired in an entry cannot be given up in
//! the same one.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::{Event, EventKind, LeaseRow, LockRow, LockWaiterRow, RejectionCode};
use core::ops::ControlFlow;

use crate::halt::{Step, broken, rejected};
use crate::work::Work;
use crate::{Table, Touched, key, row};

/// The shortest time to live: below it every election would cost the lock.
pub const MIN_TTL_MS: u64 = 1_000;
/// The longest.
pub const MAX_TTL_MS: u64 = 24 * 60 * 60 * 1_000;
/// How many may wait for one lock.
pub const MAX_WAITERS: u32 = 500;
/// Of the text that says who holds a lock.
pub const MAX_OWNER_BYTES: usize = 256;
/// Of a session.
pub const SESSION_BYTES: usize = 16;

/// A lock by its name.
#[derive(Clone, Copy)]
pub(crate) struct Name<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl<'a> Name<'a> {
    pub fn checked(namespace: &'a str, name: &'a str) -> Step<Name<'a>> {
        super::command::check_name("the namespace", namespace)?;
        super::command::check_name("the lock's name", name)?;
        Ok(Name { namespace, name })
    }

    fn key(self) -> Vec<u8> {
        key::lock(self.namespace, self.name)
    }
}

impl core::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

pub(crate) fn load(work: &Work<'_>, name: Name<'_>) -> Step<Option<LockRow>> {
    work.get(Table::Locks, &name.key())
}

pub(crate) fn put(work: &mut Work<'_>, name: Name<'_>, row: &LockRow) {
    work.put(Table::Locks, &name.key(), row);
    work.touched.add(Touched::LOCKS);
}

pub(crate) fn put_waiter(work: &mut Work<'_>, name: Name<'_>, seq: u64, lease: LeaseRow) {
    let row = LockWaiterRow { lease: Some(lease) };
    work.put(Table::LockWaiters, &key::lock_waiter(name.namespace, name.name, seq), &row);
    work.touched.add(Touched::LOCKS);
}

/// The lease of a row, which always has one.
pub(crate) fn lease(lease: Option<LeaseRow>, name: Name<'_>) -> Step<LeaseRow> {
    lease.ok_or_else(|| broken(format!("lock {name} has no lease")))
}

/// A new lease, in the index.
pub(crate) fn new_lease(
    work: &mut Work<'_>,
    name: Name<'_>,
    seq: u64,
    session: &[u8],
    ttl_ms: u64,
    owner: &str,
) -> LeaseRow {
    let lease = LeaseRow {
        session: session.to_vec(),
        ttl_ms,
        remaining_ms: ttl_ms,
        changed_at: work.log_index,
        owner: owner.to_string(),
        since_ms: work.now,
        renewed_at_ms: work.now,
    };
    work.put_raw(Table::LockLeases, &index_key(name, seq, &lease), &[]);
    lease
}

/// The whole time again.
pub(crate) fn renew(work: &mut Work<'_>, name: Name<'_>, seq: u64, lease: &mut LeaseRow) {
    forget(work, name, seq, lease);
    lease.remaining_ms = lease.ttl_ms;
    lease.changed_at = work.log_index;
    lease.renewed_at_ms = work.now;
    work.put_raw(Table::LockLeases, &index_key(name, seq, lease), &[]);
}

/// Takes a lease out of the index.
fn forget(work: &mut Work<'_>, name: Name<'_>, seq: u64, lease: &LeaseRow) {
    work.delete(Table::LockLeases, &index_key(name, seq, lease));
}

fn index_key(name: Name<'_>, seq: u64, lease: &LeaseRow) -> Vec<u8> {
    key::lock_lease(lease.changed_at, name.namespace, name.name, seq)
}

/// Makes a session the holder. `before` is the row of the holder before it, whose lease is out of the index already.
pub(crate) fn grant(
    work: &mut Work<'_>,
    name: Name<'_>,
    session: &[u8],
    ttl_ms: u64,
    owner: &str,
    before: LockRow,
) -> u64 {
    let lease = new_lease(work, name, 0, session, ttl_ms, owner);
    let token = work.log_index;
    event(work, EventKind::LockAcquired, name, token, owner);
    put(work, name, &LockRow { lease: Some(lease), token, ..before });
    token
}

/// Refuses to end an acquisition in the entry that made it: the next one would have the same token.
pub(crate) fn may_end(work: &Work<'_>, name: Name<'_>, row: &LockRow) -> Step<()> {
    match row.token == work.log_index {
        true => rejected(RejectionCode::Conflict, format!("lock {name} was acquired in this same entry")),
        false => Ok(()),
    }
}

/// Ends the lease of the holder: the lock is the next one's, or nobody's.
pub(crate) fn end(work: &mut Work<'_>, name: Name<'_>, row: LockRow, kind: EventKind) -> Step<()> {
    let LockRow { lease, token, waiters, last_seq } = row;
    let lease = self::lease(lease, name)?;
    forget(work, name, 0, &lease);
    event(work, kind, name, token, &lease.owner);
    work.touched.add(Touched::LOCKS);
    let Some((seq, next)) = first_waiter(work, name)? else {
        work.delete(Table::Locks, &name.key());
        return Ok(());
    };
    forget(work, name, seq, &next);
    work.delete(Table::LockWaiters, &key::lock_waiter(name.namespace, name.name, seq));
    let before = LockRow { lease: None, token: 0, waiters: waiters.saturating_sub(1), last_seq };
    grant(work, name, &next.session, next.ttl_ms, &next.owner, before);
    Ok(())
}

/// Takes somebody out of the queue.
pub(crate) fn leave(work: &mut Work<'_>, name: Name<'_>, mut row: LockRow, seq: u64, waiter: &LeaseRow) {
    forget(work, name, seq, waiter);
    work.delete(Table::LockWaiters, &key::lock_waiter(name.namespace, name.name, seq));
    row.waiters = row.waiters.saturating_sub(1);
    put(work, name, &row);
}

fn first_waiter(work: &Work<'_>, name: Name<'_>) -> Step<Option<(u64, LeaseRow)>> {
    Ok(find_waiter(work, name, |_| true)?.map(|(_, seq, lease)| (seq, lease)))
}

/// The place of a session in the queue, from 1, its number there, and its lease.
pub(crate) fn waiter_of(
    work: &Work<'_>,
    name: Name<'_>,
    session: &[u8],
) -> Step<Option<(u32, u64, LeaseRow)>> {
    find_waiter(work, name, |lease| lease.session == session)
}

fn find_waiter(
    work: &Work<'_>,
    name: Name<'_>,
    wanted: impl Fn(&LeaseRow) -> bool,
) -> Step<Option<(u32, u64, LeaseRow)>> {
    let mut position = 0;
    let mut found = Ok(None);
    let prefix = key::lock_queue(name.namespace, name.name);
    row::scan_prefix(work.view(), Table::LockWaiters, &prefix, &mut |row_key, value| {
        position += 1;
        let row = row::decode::<LockWaiterRow>(Table::LockWaiters, row_key, value.clone());
        let seq = key::parse_lock_waiter(row_key).map(|(_, _, seq)| seq);
        match (row.map(|row| row.lease), seq) {
            (Ok(Some(lease)), Some(_)) if !wanted(&lease) => return ControlFlow::Continue(()),
            (Ok(Some(lease)), Some(seq)) => found = Ok(Some((position, seq, lease))),
            _ => found = Err(row::damaged(Table::LockWaiters, row_key)),
        }
        ControlFlow::Break(())
    });
    Ok(found?)
}

fn event(work: &mut Work<'_>, kind: EventKind, name: Name<'_>, token: u64, owner: &str) {
    let by = if owner.is_empty() { String::new() } else { format!(" by {owner}") };
    work.event(Event {
        kind: kind as i32,
        namespace: name.namespace.to_string(),
        detail: format!("{} token {token}{by}", name.name),
        ..Event::default()
    });
}
