//! The bytes of locks and keys; see `golden.rs`.

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::*;

use clawhive_statemachine::{Table, key};

use crate::golden::{fixed, golden};

#[test]
fn commands_of_locks_and_keys() {
    let id = || (0..16).collect::<Vec<u8>>();
    let (namespace, name) = (|| "n".to_string(), || "l".to_string());
    let op = |op| KeyOp { op: Some(op) };
    let compare = |is| KeyCompare { key: "k".into(), is: Some(is) };
    let lease = LockLease {
        namespace: namespace(),
        name: name(),
        seq: 1,
        session: id(),
        token: 2,
        changed_at: 3,
        remaining_ms: 4,
    };
    let txn = KeyTxn {
        namespace: namespace(),
        compares: vec![
            compare(key_compare::Is::Version(1)),
            compare(key_compare::Is::Value(vec![0, 255].into())),
            compare(key_compare::Is::ModifiedAt(2)),
            compare(key_compare::Is::Present(true)),
        ],
        then: vec![op(key_op::Op::Put(KeyPut { key: "k".into(), value: vec![0, 255].into() }))],
        otherwise: vec![
            op(key_op::Op::Delete(KeyName { key: "k".into() })),
            op(key_op::Op::Get(KeyName { key: "k".into() })),
        ],
        fence: Some(KeyFence { token: 7, lock: name() }),
    };
    let kinds = [
        ("key_txn", Kind::KeyTxn(txn)),
        (
            "acquire_lock",
            Kind::AcquireLock(AcquireLock {
                namespace: namespace(),
                name: name(),
                session: id(),
                ttl_ms: 10_000,
                owner: "ann".into(),
                wait: true,
            }),
        ),
        (
            "renew_lock",
            Kind::RenewLock(RenewLock { namespace: namespace(), name: name(), session: id(), token: 3 }),
        ),
        (
            "release_lock",
            Kind::ReleaseLock(ReleaseLock { namespace: namespace(), name: name(), session: id(), token: 3 }),
        ),
        ("expire_locks", Kind::ExpireLocks(ExpireLocks { leases: vec![lease.clone()] })),
        ("checkpoint_locks", Kind::CheckpointLocks(CheckpointLocks { leases: vec![lease] })),
    ];
    for (name, kind) in kinds {
        golden(&format!("command/{name}"), Command { kind: Some(kind) });
    }
    let result = KeyResult {
        key: "k".into(),
        found: true,
        value: vec![1].into(),
        version: 2,
        created_at: 3,
        modified_at: 4,
    };
    golden(
        "command/outcomes_locks",
        Outcomes {
            outcomes: [
                outcome::Kind::KeyTxnDone(KeyTxnDone { succeeded: true, results: vec![result] }),
                outcome::Kind::LockGranted(LockGranted { token: 1 }),
                outcome::Kind::LockQueued(LockQueued { position: 1, token: 2, owner: "o".into() }),
                outcome::Kind::Rejected(Rejection {
                    code: RejectionCode::LockHeld as i32,
                    message: "m".into(),
                }),
                outcome::Kind::Rejected(Rejection {
                    code: RejectionCode::LockLost as i32,
                    message: "m".into(),
                }),
            ]
            .map(|kind| Outcome { kind: Some(kind) })
            .into(),
            ..Outcomes::default()
        },
    );
}

#[test]
fn rows_of_locks_and_keys() {
    let lease = LeaseRow {
        session: vec![1; 16],
        ttl_ms: 10_000,
        remaining_ms: 5_000,
        changed_at: 9,
        owner: "ann".into(),
        since_ms: 3,
        renewed_at_ms: 4,
    };
    golden("row/lock", LockRow { lease: Some(lease.clone()), token: 8, waiters: 1, last_seq: 5 });
    golden("row/lock_waiter", LockWaiterRow { lease: Some(lease) });
    golden("row/key_fence", KeyFenceRow { token: 8 });
    golden("row/key_version", KeyRow { value: vec![1].into(), created_at: 3, modified_at: 4, version: 5 });
    golden("row/meta_compacted", Meta { events_compacted: 9, ..Meta::default() });
    golden(
        "row/event_namespace",
        Event {
            kind: EventKind::LockAcquired as i32,
            detail: "d".into(),
            namespace: "n".into(),
            ..Event::default()
        },
    );
}

#[test]
fn keys_of_locks() {
    let keys = [
        (Table::Locks, 30, key::lock("data", "l")),
        (Table::LockWaiters, 31, key::lock_waiter("data", "l", 3)),
        (Table::LockLeases, 32, key::lock_lease(9, "data", "l", 3)),
        (Table::KeyFences, 33, key::key("data", "k")),
    ];
    for (table, number, key) in keys {
        assert_eq!((table.number(), Table::from_number(number)), (number, Some(table)));
        fixed(&format!("key/{:?}", table).to_lowercase(), &key);
    }
}
