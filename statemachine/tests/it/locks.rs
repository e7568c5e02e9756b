//! Random locks and keys against a model that knows nothing of rows: at most one holder, tokens that only grow, queues in
//! order, guards that let no older token write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clawhive_statemachine::plan::locks::LockWatch;
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::read;
use proptest::prelude::*;

use crate::cluster::Cluster;

#[derive(Clone, Debug)]
enum Op {
    Acquire {
        lock: u8,
        session: u8,
        ttl: u8,
        wait: bool,
    },
    Renew {
        lock: u8,
        session: u8,
        lie: bool,
    },
    Release {
        lock: u8,
        session: u8,
        token: Option<bool>,
    },
    /// Time passes, and the leader looks.
    Lead(u16),
    /// Another leader, with another clock.
    NewLeader,
    /// A leader that stood still proposes what it saw long ago.
    OldExpiry,
    Put {
        key: u8,
        fence: u8,
        lock: Option<u8>,
        version: Option<u8>,
    },
    Delete {
        key: u8,
        fence: u8,
    },
    PlainPut {
        key: u8,
    },
}

fn ops() -> impl Strategy<Value = Op> {
    let lock = 0u8..2;
    let session = 1u8..5;
    prop_oneof![
        6 => (lock.clone(), session.clone(), 1u8..6, any::<bool>())
            .prop_map(|(lock, session, ttl, wait)| Op::Acquire { lock, session, ttl, wait }),
        3 => (lock.clone(), session.clone(), prop::bool::weighted(0.2))
            .prop_map(|(lock, session, lie)| Op::Renew { lock, session, lie }),
        3 => (lock.clone(), session, prop::option::of(any::<bool>()))
            .prop_map(|(lock, session, token)| Op::Release { lock, session, token }),
        6 => (0u16..2_500).prop_map(Op::Lead),
        1 => Just(Op::NewLeader),
        1 => Just(Op::OldExpiry),
        4 => (0u8..3, any::<u8>(), prop::option::of(lock), prop::option::of(0u8..4))
            .prop_map(|(key, fence, lock, version)| Op::Put { key, fence, lock, version }),
        2 => (0u8..3, any::<u8>()).prop_map(|(key, fence)| Op::Delete { key, fence }),
        1 => (0u8..3).prop_map(|key| Op::PlainPut { key }),
    ]
}

#[derive(Default)]
struct Lock {
    /// Session, token, the earliest time at which its lease may end, ttl.
    holder: Option<(u8, u64, u64, u64)>,
    queue: VecDeque<(u8, u64)>,
    newest_token: u64,
}

struct World {
    cluster: Cluster,
    locks: BTreeMap<u8, Lock>,
    /// Key to (version, modified at).
    keys: BTreeMap<u8, (u64, u64)>,
    guards: BTreeMap<u8, u64>,
    watch: LockWatch,
    /// Of the leader that leads now; nothing that entries tell.
    clock: u64,
    old_expiries: Vec<ExpireLocks>,
    /// Locks that have been given out by an expiry.
    expired: usize,
}

fn name(lock: u8) -> String {
    format!("l{lock}")
}

fn session_id(session: u8) -> Vec<u8> {
    vec![session; 16]
}

impl World {
    fn run(&mut self, kind: Kind) -> (u64, Answer) {
        let answer = self.cluster.run(kind);
        (self.cluster.log.len() as u64, answer)
    }

    fn grant(&mut self, lock: u8, session: u8, ttl: u64, token: u64) {
        let clock = self.clock;
        let entry = self.locks.entry(lock).or_default();
        assert!(token > entry.newest_token, "token {token} after {}", entry.newest_token);
        entry.newest_token = token;
        entry.holder = Some((session, token, clock + ttl, ttl));
    }

    /// The holder is gone: the next has it now.
    fn hand_over(&mut self, lock: u8, index: u64) {
        let entry = self.locks.entry(lock).or_default();
        entry.holder = None;
        if let Some((session, ttl)) = entry.queue.pop_front() {
            self.grant(lock, session, ttl, index);
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Acquire { lock, session, ttl, wait } => {
                self.acquire(lock, session, u64::from(ttl) * 1_000, wait)
            }
            Op::Renew { lock, session, lie } => {
                let clock = self.clock;
                let held = self.locks.entry(lock).or_default().holder;
                let token = held.map_or(7, |held| held.1) + u64::from(lie);
                let (namespace, name, session_id) = ("n".into(), name(lock), session_id(session));
                let renew = RenewLock { namespace, name, session: session_id, token };
                let (_, answer) = self.run(Kind::RenewLock(renew));
                let mine = held.is_some_and(|held| held.0 == session) && !lie;
                assert_eq!(matches!(answer, Answer::Done(_)), mine, "{answer:?}");
                if let Some(held) = self.locks.entry(lock).or_default().holder.as_mut().filter(|_| mine) {
                    held.2 = clock + held.3;
                }
            }
            Op::Release { lock, session, token } => self.release(lock, session, token),
            Op::Lead(ms) => {
                self.clock += u64::from(ms);
                self.cluster.now += u64::from(ms);
                self.lead();
            }
            Op::NewLeader => {
                self.clock += 1_000_000;
                self.watch = LockWatch::default();
                // What is left is counted from now on, so nothing may end before that.
                for lock in self.locks.values_mut() {
                    if let Some(holder) = &mut lock.holder {
                        holder.2 += 1_000_000;
                    }
                }
                self.lead();
            }
            Op::OldExpiry => {
                for expiry in self.old_expiries.clone() {
                    let (_, answer) = self.run(Kind::ExpireLocks(expiry));
                    assert_eq!(
                        answer,
                        Answer::Progress(Progress { done: 0, more: false }),
                        "it is long over"
                    );
                }
            }
            Op::Put { key, fence, lock, version } => self.put(key, fence, lock, version),
            Op::Delete { key, fence } => {
                let fence = u64::from(fence) + 1;
                let delete = KeyOp { op: Some(key_op::Op::Delete(KeyName { key: name(key) })) };
                let txn = KeyTxn {
                    namespace: "n".into(),
                    then: vec![delete],
                    fence: Some(KeyFence { token: fence, lock: String::new() }),
                    ..KeyTxn::default()
                };
                let (_, answer) = self.run(Kind::KeyTxn(txn));
                let fresh = self.guards.get(&key).is_none_or(|guard| *guard <= fence);
                let Answer::KeyTxnDone(done) = answer else { return assert!(!fresh, "{answer:?}") };
                assert!(fresh);
                assert_eq!(done.results[0].found, self.keys.remove(&key).is_some());
                self.guards.insert(key, fence);
            }
            Op::PlainPut { key } => {
                let put = PutKey { namespace: "n".into(), key: name(key), value: vec![0].into() };
                let (index, _) = self.run(Kind::PutKey(put));
                let version = self.keys.get(&key).map_or(0, |key| key.0) + 1;
                self.keys.insert(key, (version, index));
            }
        }
        self.compare();
    }

    fn acquire(&mut self, lock: u8, session: u8, ttl: u64, wait: bool) {
        let clock = self.clock;
        let (index, answer) = self.run(Kind::AcquireLock(AcquireLock {
            namespace: "n".into(),
            name: name(lock),
            session: session_id(session),
            ttl_ms: ttl,
            owner: format!("s{session}"),
            wait,
        }));
        let entry = self.locks.entry(lock).or_default();
        match &mut entry.holder {
            None => {
                assert_eq!(answer, Answer::LockGranted(LockGranted { token: index }));
                self.grant(lock, session, ttl, index);
            }
            Some(holder) if holder.0 == session => {
                assert_eq!(answer, Answer::LockGranted(LockGranted { token: holder.1 }));
                holder.2 = clock + holder.3;
            }
            Some(holder) if wait => {
                let (token, owner) = (holder.1, format!("s{}", holder.0));
                let place = entry.queue.iter().position(|waiter| waiter.0 == session);
                let place = place.unwrap_or_else(|| {
                    entry.queue.push_back((session, ttl));
                    entry.queue.len() - 1
                });
                let position = place as u32 + 1;
                assert_eq!(answer, Answer::LockQueued(LockQueued { position, token, owner }));
            }
            Some(_) => {
                assert!(matches!(answer, Answer::Rejected(it) if it.code() == RejectionCode::LockHeld))
            }
        }
    }

    fn release(&mut self, lock: u8, session: u8, token: Option<bool>) {
        let holder = self.locks.entry(lock).or_default().holder;
        let current = holder.map_or(7, |holder| holder.1);
        let token = token.map_or(0, |honest| current + u64::from(!honest));
        let (index, answer) = self.run(Kind::ReleaseLock(ReleaseLock {
            namespace: "n".into(),
            name: name(lock),
            session: session_id(session),
            token,
        }));
        let mine = holder.is_some_and(|holder| holder.0 == session && (token == 0 || token == holder.1));
        assert_eq!(matches!(answer, Answer::Done(_)), mine || token == 0, "{answer:?}");
        if mine {
            self.hand_over(lock, index);
        } else if token == 0 {
            self.locks.entry(lock).or_default().queue.retain(|waiter| waiter.0 != session);
        }
    }

    /// The leader looks; what it proposes is applied. Nothing may end before its time.
    fn lead(&mut self) {
        let plan = self.watch.plan(&self.cluster.store, self.clock);
        if let Some(expire) = plan.expire {
            self.old_expiries.push(expire.clone());
            let leases = expire.leases.clone();
            let (index, answer) = self.run(Kind::ExpireLocks(expire));
            let mut done = 0;
            for lease in leases {
                let lock: u8 = lease.name[1..].parse().unwrap();
                let entry = self.locks.entry(lock).or_default();
                let session = lease.session[0];
                if lease.seq > 0 {
                    // The holder may have gone earlier in this entry, and this one have been next.
                    let before = entry.queue.len();
                    entry.queue.retain(|waiter| waiter.0 != session);
                    done += u32::from(entry.queue.len() < before);
                    continue;
                }
                let holder = entry.holder.unwrap();
                assert_eq!((holder.0, holder.1), (session, lease.token));
                assert!(self.clock >= holder.2, "at {} ended before {}", self.clock, holder.2);
                self.expired += 1;
                done += 1;
                self.hand_over(lock, index);
            }
            assert_eq!(answer, Answer::Progress(Progress { done, more: false }));
        }
        if let Some(checkpoint) = plan.checkpoint {
            self.run(Kind::CheckpointLocks(checkpoint));
        }
    }

    fn put(&mut self, key: u8, fence: u8, lock: Option<u8>, version: Option<u8>) {
        let current = lock.map(|lock| self.locks.entry(lock).or_default().holder.map_or(0, |held| held.1));
        // Under a lock the token is that of the holder, or an old one.
        let token = match current {
            Some(current) => current.saturating_sub(u64::from(fence % 2)).max(1),
            None => u64::from(fence) + 1,
        };
        let version = version.map(u64::from);
        let is =
            version.map(|version| KeyCompare { key: name(key), is: Some(key_compare::Is::Version(version)) });
        let put = key_op::Op::Put(KeyPut { key: name(key), value: vec![fence].into() });
        let (index, answer) = self.run(Kind::KeyTxn(KeyTxn {
            namespace: "n".into(),
            compares: is.into_iter().collect(),
            then: vec![KeyOp { op: Some(put) }],
            otherwise: vec![KeyOp { op: Some(key_op::Op::Get(KeyName { key: name(key) })) }],
            fence: Some(KeyFence { token, lock: lock.map(name).unwrap_or_default() }),
        }));
        let has = self.keys.get(&key).map_or(0, |key| key.0);
        let equal = version.is_none_or(|version| version == has);
        let held = current.is_none_or(|current| current == token);
        let fresh = self.guards.get(&key).is_none_or(|guard| *guard <= token);
        match answer {
            Answer::Rejected(it) => {
                assert_eq!(it.code(), RejectionCode::StaleFence);
                assert!(!held || (equal && !fresh), "{}", it.message);
            }
            Answer::KeyTxnDone(done) => {
                assert!(held && (fresh || !equal));
                assert_eq!(done.succeeded, equal);
                if equal {
                    self.keys.insert(key, (has + 1, index));
                    self.guards.insert(key, token);
                }
                assert_eq!(done.results[0].version, self.keys.get(&key).map_or(0, |key| key.0));
            }
            other => panic!("{other:?}"),
        }
    }

    fn compare(&self) {
        for (lock, expected) in &self.locks {
            let row = read::lock(&self.cluster.store, "n", &name(*lock));
            let found = row.as_ref().map(|row| (row.lease.as_ref().unwrap().session[0], row.token));
            assert_eq!(found, expected.holder.map(|holder| (holder.0, holder.1)));
            assert_eq!(row.map_or(0, |row| row.waiters as usize), expected.queue.len());
            let sessions: BTreeSet<u8> = expected.queue.iter().map(|waiter| waiter.0).collect();
            assert_eq!(sessions.len(), expected.queue.len());
        }
        for key in 0..3 {
            let row = read::key(&self.cluster.store, "n", &name(key));
            let found = row.map(|row| (read::key_version(&row), row.modified_at));
            assert_eq!(found.as_ref(), self.keys.get(&key));
        }
    }
}

fn world() -> World {
    World {
        cluster: Cluster::new(),
        locks: BTreeMap::new(),
        keys: BTreeMap::new(),
        guards: BTreeMap::new(),
        watch: LockWatch::default(),
        clock: 0,
        old_expiries: Vec::new(),
        expired: 0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn locks_and_keys_agree_with_the_model(ops in prop::collection::vec(ops(), 1..150)) {
        let mut world = world();
        for op in &ops {
            world.step(op);
        }
        // Nobody renews any more: every lock comes free, also under leaders that change.
        for round in 0..400 {
            world.step(&Op::Lead(400));
            if round % 7 == 6 {
                world.step(&Op::NewLeader);
            }
        }
        for lock in world.locks.values() {
            prop_assert!(lock.holder.is_none() && lock.queue.is_empty());
        }
    }
}

#[test]
fn an_acquisition_does_not_end_in_its_own_entry() {
    let mut cluster = Cluster::new();
    let acquire = |session: u8| {
        Kind::AcquireLock(AcquireLock {
            namespace: "n".into(),
            name: "l".into(),
            session: session_id(session),
            ttl_ms: 5_000,
            wait: true,
            ..AcquireLock::default()
        })
    };
    let release = |session: u8| {
        let (namespace, name, session) = ("n".into(), "l".into(), session_id(session));
        Kind::ReleaseLock(ReleaseLock { namespace, name, session, token: 0 })
    };
    let kinds = [acquire(1), release(1), acquire(2)];
    let applied = cluster.entry(&[], kinds.map(|kind| Command { kind: Some(kind) }).into());
    let short: Vec<bool> =
        applied.outcomes.iter().map(|it| matches!(it.kind, Some(Answer::Rejected(_)))).collect();
    assert_eq!(short, [false, true, false], "otherwise two sessions would have one token");
    let kinds = [release(1), release(2)];
    cluster.entry(&[], kinds.map(|kind| Command { kind: Some(kind) }).into());
    let row = read::lock(&cluster.store, "n", "l").unwrap();
    assert_eq!((row.token, row.lease.unwrap().session), (cluster.log.len() as u64, session_id(2)));
}
