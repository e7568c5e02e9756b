//! Leases of locks that nobody renewed. Each names what the leader saw; whatever was renewed, released or granted
//! meanwhile is left alone, so that a stalled old leader cannot revoke a renewed lock.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{EventKind, ExpireLocks, LeaseRow, LockLease, LockRow, LockWaiterRow, Progress};

use crate::halt::Step;
use crate::lock::{self, Name};
use crate::work::Work;
use crate::{Table, key};

pub(crate) fn apply(work: &mut Work<'_>, command: &ExpireLocks) -> Step<Answer> {
    let mut done = 0;
    for lease in &command.leases {
        let name = Name { namespace: &lease.namespace, name: &lease.name };
        match current(work, lease)? {
            // Acquired in this very entry: nothing can have run out.
            Some(Current::Holder(row, _)) if lock::may_end(work, name, &row).is_err() => continue,
            Some(Current::Holder(row, _)) => lock::end(work, name, row, EventKind::LockExpired)?,
            Some(Current::Waiter(row, waiter)) => lock::leave(work, name, row, lease.seq, &waiter),
            None => continue,
        }
        done += 1;
    }
    Ok(Answer::Progress(Progress { done, more: false }))
}

/// What a lease names, while it is as it names it.
pub(super) enum Current {
    Holder(LockRow, LeaseRow),
    /// With the row of the lock.
    Waiter(LockRow, LeaseRow),
}

pub(super) fn current(work: &Work<'_>, named: &LockLease) -> Step<Option<Current>> {
    let name = Name { namespace: &named.namespace, name: &named.name };
    let Some(row) = lock::load(work, name)? else { return Ok(None) };
    let same = |lease: &LeaseRow| lease.session == named.session && lease.changed_at == named.changed_at;
    if named.seq == 0 {
        let lease = lock::lease(row.lease.clone(), name)?;
        return Ok((row.token == named.token && same(&lease)).then_some(Current::Holder(row, lease)));
    }
    let key = key::lock_waiter(name.namespace, name.name, named.seq);
    let waiter = work.get::<LockWaiterRow>(Table::LockWaiters, &key)?.and_then(|row| row.lease);
    Ok(waiter.filter(same).map(|lease| Current::Waiter(row, lease)))
}
