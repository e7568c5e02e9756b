//! Which leases of locks have run out.
//!
//! Durations travel, never deadlines: the leader counts a lease on its own monotonic clock from when it first saw its last
//! renewal, which is after it was committed, and a new leader counts what the last checkpoint left of it from when it
//! began. So no change of leader and no clock that is wrong shortens a lease, and an abandoned one ends although leaders
//! change. Only how far each lease has come is kept here; it is made anew from the state by each leader.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::{CheckpointLocks, ExpireLocks, LeaseRow, LockLease, LockRow, LockWaiterRow};
use core::ops::ControlFlow;

use crate::read::{sound, sound_key};
use crate::{ReadStore, Table, key};

/// How many leases one command may end, and one checkpoint name.
pub const BATCH: usize = 256;

/// How long until a leader writes down what is left of a lease: half of it, within these bounds. Who renews in time is not
/// written down at all, unless its time is long. What a leader has found and nobody has renewed since is written down at
/// the lower bound: leaders that do not last must make progress all the same.
const CHECKPOINT_MS: (u64, u64) = (500, 5_000);

/// An expiry that was proposed and did not come true is proposed again.
const AGAIN_MS: u64 = 500;

/// A lease by its place: namespace, lock, place in the queue (0: the holder).
type Place = (String, String, u64);

/// The leases of one leader, with how far they have come.
#[derive(Clone, Debug, Default)]
pub struct LockWatch {
    /// The newest change of a lease that was looked at.
    seen: u64,
    /// It has looked once: what it finds from then on is new.
    began: bool,
    leases: BTreeMap<Place, Watched>,
    /// When to look at which lease again.
    agenda: BTreeSet<(u64, Place)>,
}

#[derive(Clone, Debug)]
struct Watched {
    session: Vec<u8>,
    token: u64,
    changed_at: u64,
    ends_ms: u64,
    look_ms: u64,
    /// From an earlier leader, and not renewed since.
    found: bool,
}

/// What to propose now, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocksPlan {
    /// None when nothing has run out.
    pub expire: Option<ExpireLocks>,
    /// None when there is nothing to write down.
    pub checkpoint: Option<CheckpointLocks>,
    /// On the clock of `now_ms`; none when nothing is leased.
    pub next_due_ms: Option<u64>,
}

impl LockWatch {
    /// Looks at what changed since the last look, at most the leases renewed meanwhile, and plans. `now_ms` is a monotonic
    /// clock, the same at each call.
    pub fn plan(&mut self, view: &dyn ReadStore, now_ms: u64) -> LocksPlan {
        self.look(view, now_ms);
        let (mut expire, mut checkpoint) = (Vec::new(), Vec::new());
        while expire.len() < BATCH && checkpoint.len() < BATCH {
            let Some((due_ms, place)) = self.agenda.first().cloned() else { break };
            if due_ms > now_ms {
                break;
            }
            self.agenda.pop_first();
            let Some(watched) = self.leases.get_mut(&place) else { continue };
            let Some(lease) = current(view, &place).filter(|found| watched.is(found)) else {
                self.leases.remove(&place);
                continue;
            };
            let remaining_ms = watched.ends_ms.saturating_sub(now_ms);
            let named = watched.named(&place, remaining_ms);
            if remaining_ms == 0 {
                expire.push(named);
                watched.look_ms = now_ms.saturating_add(AGAIN_MS);
            } else {
                if remaining_ms < lease.1.remaining_ms {
                    checkpoint.push(named);
                }
                watched.look_ms = next_look(now_ms, watched.ends_ms, watched.found);
            }
            self.agenda.insert((watched.look_ms, place));
        }
        LocksPlan {
            expire: (!expire.is_empty()).then_some(ExpireLocks { leases: expire }),
            checkpoint: (!checkpoint.is_empty()).then_some(CheckpointLocks { leases: checkpoint }),
            next_due_ms: self.agenda.first().map(|(due_ms, _)| *due_ms),
        }
    }

    /// Takes up new and renewed leases. What has ended is noticed when its time comes.
    fn look(&mut self, view: &dyn ReadStore, now_ms: u64) {
        let from = self.seen.saturating_add(1).to_be_bytes();
        let mut changed = Vec::new();
        let mut newest = self.seen;
        view.scan(Table::LockLeases, &from, None, &mut |row_key, _| {
            let (index, namespace, name, seq) =
                sound_key(Table::LockLeases, row_key, key::parse_lock_lease(row_key));
            newest = newest.max(index);
            changed.push((namespace.to_string(), name.to_string(), seq));
            ControlFlow::Continue(())
        });
        let found = !core::mem::replace(&mut self.began, true);
        self.seen = newest;
        for place in changed {
            let Some((token, lease)) = current(view, &place) else { continue };
            let ends_ms = now_ms.saturating_add(lease.remaining_ms);
            let look_ms = next_look(now_ms, ends_ms, found);
            let (session, changed_at) = (lease.session, lease.changed_at);
            let watched = Watched { session, token, changed_at, ends_ms, look_ms, found };
            self.agenda.insert((look_ms, place.clone()));
            if let Some(before) = self.leases.insert(place.clone(), watched)
                && before.look_ms != look_ms
            {
                self.agenda.remove(&(before.look_ms, place));
            }
        }
    }
}

impl Watched {
    fn is(&self, (token, lease): &(u64, LeaseRow)) -> bool {
        self.token == *token && self.changed_at == lease.changed_at && self.session == lease.session
    }

    fn named(&self, place: &Place, remaining_ms: u64) -> LockLease {
        LockLease {
            namespace: place.0.clone(),
            name: place.1.clone(),
            seq: place.2,
            session: self.session.clone(),
            token: self.token,
            changed_at: self.changed_at,
            remaining_ms,
        }
    }
}

fn next_look(now_ms: u64, ends_ms: u64, found: bool) -> u64 {
    let (least, most) = CHECKPOINT_MS;
    let most = if found { least } else { most };
    let half = ends_ms.saturating_sub(now_ms) / 2;
    now_ms.saturating_add(half.clamp(least, most)).min(ends_ms)
}

/// Token (0 in the queue) and lease at a place; none when nobody has it.
fn current(view: &dyn ReadStore, (namespace, name, seq): &Place) -> Option<(u64, LeaseRow)> {
    if *seq == 0 {
        let row_key = key::lock(namespace, name);
        let row: LockRow = sound(Table::Locks, &row_key, view.get(Table::Locks, &row_key)?);
        return Some((row.token, row.lease?));
    }
    let row_key = key::lock_waiter(namespace, name, *seq);
    let row: LockWaiterRow = sound(Table::LockWaiters, &row_key, view.get(Table::LockWaiters, &row_key)?);
    Some((0, row.lease?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemStore, apply};
    use clawhive_proto::command::Kind;
    use clawhive_proto::{AcquireLock, Command, Entry, RaiseLevel, ReleaseLock, RenewLock};

    struct Log {
        store: MemStore,
        index: u64,
    }

    impl Log {
        fn new() -> Log {
            let mut log = Log { store: MemStore::new(), index: 0 };
            log.run(Kind::RaiseLevel(RaiseLevel { level: crate::level::LEVEL }));
            log
        }

        fn run(&mut self, kind: Kind) {
            self.index += 1;
            let commands = vec![Command { kind: Some(kind) }];
            let entry = Entry { version: 1, time_ms: 1_000, commands, ..Entry::default() };
            apply(&mut self.store, self.index, &entry).unwrap();
        }

        fn acquire(&mut self, session: u8, ttl_ms: u64) {
            self.run(Kind::AcquireLock(AcquireLock {
                namespace: "n".into(),
                name: "l".into(),
                session: vec![session; 16],
                ttl_ms,
                wait: true,
                ..AcquireLock::default()
            }));
        }

        /// Proposes what is planned.
        fn lead(&mut self, watch: &mut LockWatch, now_ms: u64) -> (usize, usize) {
            let plan = watch.plan(&self.store, now_ms);
            let count = |leases: Option<usize>| leases.unwrap_or(0);
            let done = (
                count(plan.expire.as_ref().map(|it| it.leases.len())),
                count(plan.checkpoint.as_ref().map(|it| it.leases.len())),
            );
            plan.expire.into_iter().for_each(|it| self.run(Kind::ExpireLocks(it)));
            plan.checkpoint.into_iter().for_each(|it| self.run(Kind::CheckpointLocks(it)));
            done
        }

        fn holder(&self) -> Option<u8> {
            crate::read::lock(&self.store, "n", "l")?.lease.map(|lease| lease.session[0])
        }
    }

    #[test]
    fn a_renewed_lease_is_never_written_down_and_never_ends() {
        let mut log = Log::new();
        let mut watch = LockWatch::default();
        log.lead(&mut watch, 0);
        log.acquire(1, 9_000);
        for third in 0..100 {
            for step in 0..30 {
                assert_eq!(log.lead(&mut watch, third * 3_000 + step * 100), (0, 0));
            }
            let (namespace, name) = ("n".into(), "l".into());
            log.run(Kind::RenewLock(RenewLock { namespace, name, session: vec![1; 16], token: 2 }));
        }
        assert_eq!(log.holder(), Some(1));
        assert_eq!((watch.leases.len(), watch.agenda.len()), (1, 1));
    }

    #[test]
    fn an_abandoned_lock_ends_after_its_time_and_goes_to_the_next() {
        let mut log = Log::new();
        let mut watch = LockWatch::default();
        log.acquire(1, 4_000);
        log.lead(&mut watch, 100);
        log.acquire(2, 4_000);
        log.lead(&mut watch, 2_000);
        for now in (2_000..4_100).step_by(50) {
            log.lead(&mut watch, now);
            assert_eq!(log.holder(), Some(1), "at {now}");
        }
        assert_eq!(log.lead(&mut watch, 4_100).0, 1);
        assert_eq!(log.holder(), Some(2));
        assert_eq!(crate::read::lock(&log.store, "n", "l").unwrap().token, log.index);
        // The whole time again, and then nobody.
        log.lead(&mut watch, 4_150);
        assert_eq!(log.lead(&mut watch, 8_100).0, 0);
        assert_eq!(log.lead(&mut watch, 8_150).0, 1);
        assert_eq!(log.holder(), None);
        log.lead(&mut watch, 20_000);
        assert_eq!((watch.leases.len(), watch.agenda.len()), (0, 0));
        assert_eq!(log.store.len(Table::LockLeases), 0);
    }

    #[test]
    fn leaders_that_change_all_the_time_neither_shorten_nor_keep_an_abandoned_lock() {
        let mut log = Log::new();
        log.acquire(1, 10_000);
        let mut led_ms = 0;
        // Each leads for 1.5 s, with a clock that has nothing to do with the others'.
        for leader in 1..100u64 {
            let mut watch = LockWatch::default();
            let base = leader * 777_777 % 1_000_000;
            for step in (0..1_500).step_by(50) {
                log.lead(&mut watch, base + step);
                if log.holder().is_none() {
                    assert!(led_ms + step >= 10_000, "ended after {} ms", led_ms + step);
                    assert!(leader < 40, "leader {leader} at last");
                    return;
                }
            }
            led_ms += 1_500;
        }
        panic!("the lock is held for ever");
    }

    #[test]
    fn many_locks_that_come_and_go_are_forgotten() {
        let mut log = Log::new();
        let mut watch = LockWatch::default();
        for round in 0..1_000u64 {
            log.acquire(1, 1_000);
            log.lead(&mut watch, round * 10);
            let (namespace, name) = ("n".into(), "l".into());
            log.run(Kind::ReleaseLock(ReleaseLock { namespace, name, session: vec![1; 16], token: 0 }));
        }
        assert!(watch.leases.len() <= 1 && watch.agenda.len() <= 1);
    }
}
