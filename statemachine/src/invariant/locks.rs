//! At most one holder of a lock, a queue that its row counts, and an index that finds every lease.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::{KeyFenceRow, LeaseRow, LockRow, LockWaiterRow};
use core::ops::ControlFlow;

use crate::invariant::Findings;
use crate::read::{sound, sound_key};
use crate::{ReadStore, Table, key};

/// Places in a queue and the sessions that have them.
type Queue = Vec<(u64, Vec<u8>)>;

pub(super) fn check(view: &dyn ReadStore, findings: &mut Findings) {
    let mut leases: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut queues: BTreeMap<(String, String), Queue> = BTreeMap::new();
    view.scan(Table::LockWaiters, &[], None, &mut |row_key, value| {
        let (namespace, name, seq) = sound_key(Table::LockWaiters, row_key, key::parse_lock_waiter(row_key));
        let row: LockWaiterRow = sound(Table::LockWaiters, row_key, value.clone());
        let lease = row.lease.unwrap_or_default();
        sane(&lease, findings);
        leases.insert(key::lock_lease(lease.changed_at, namespace, name, seq));
        queues.entry((namespace.to_string(), name.to_string())).or_default().push((seq, lease.session));
        ControlFlow::Continue(())
    });
    view.scan(Table::Locks, &[], None, &mut |row_key, value| {
        let (namespace, name) = sound_key(Table::Locks, row_key, key::parse_two_texts(row_key));
        let row: LockRow = sound(Table::Locks, row_key, value.clone());
        let lease = row.lease.clone().unwrap_or_default();
        sane(&lease, findings);
        findings.expect(
            row.token > 0 && row.token <= lease.changed_at,
            "a token is no newer than its lease",
            || format!("{name}: {row:?}"),
        );
        leases.insert(key::lock_lease(lease.changed_at, namespace, name, 0));
        let queue = queues.remove(&(namespace.to_string(), name.to_string())).unwrap_or_default();
        findings.expect(queue.len() == row.waiters as usize, "a lock counts its queue", || {
            format!("{name}: {} in the queue, {row:?}", queue.len())
        });
        let sessions: BTreeSet<&Vec<u8>> = queue.iter().map(|(_, session)| session).collect();
        let apart = sessions.len() == queue.len() && !sessions.contains(&lease.session);
        findings
            .expect(apart, "a session holds a lock or waits for it once", || format!("{name}: {queue:02x?}"));
        let numbered = queue.iter().all(|(seq, _)| *seq > 0 && *seq <= row.last_seq);
        findings.expect(numbered, "places in a queue were given out", || format!("{name}: {row:?}"));
        ControlFlow::Continue(())
    });
    findings.expect(queues.is_empty(), "nobody waits for a free lock", || format!("{queues:02x?}"));
    let mut index = BTreeSet::new();
    view.scan(Table::LockLeases, &[], None, &mut |row_key, _| {
        index.insert(row_key.to_vec());
        ControlFlow::Continue(())
    });
    findings.expect(index == leases, "leases of locks and their index agree", || {
        format!("{leases:02x?} and {index:02x?}")
    });
    view.scan(Table::KeyFences, &[], None, &mut |row_key, value| {
        let row: KeyFenceRow = sound(Table::KeyFences, row_key, value.clone());
        findings.expect(row.token > 0, "a guard of a key is a token", || format!("{row_key:02x?}"));
        ControlFlow::Continue(())
    });
}

fn sane(lease: &LeaseRow, findings: &mut Findings) {
    let holds = lease.session.len() == crate::lock::SESSION_BYTES
        && (1..=lease.ttl_ms).contains(&lease.remaining_ms)
        && lease.changed_at > 0;
    findings.expect(holds, "what is left of a lease is part of it", || format!("{lease:?}"));
}
