//! Locks and keys in scripts; all of namespace `n`.
//!
//! ```text
//! lock acquire NAME session=N [ttl=D] [owner=X] [wait]
//! lock renew|release NAME session=N [token=N]
//! lock lead [new]            what the leader would propose; `new`: it has just become leader
//! lock expire NAME [session=N] [token=N] [changed=N] [seq=N]      the holder's lease, or a lie about it
//! kv put KEY VALUE | kv delete KEY | kv get KEY   [fence=N] [lock=NAME] [version=N | absent]
//! kv txn [fence=N] [lock=NAME]
//!   if KEY version|value|present|absent [X]
//!   then|else put KEY VALUE | delete KEY | get KEY
//! ```

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::{
    AcquireLock, ExpireLocks, KeyCompare, KeyFence, KeyName, KeyOp, KeyPut, KeyResult, KeyTxn, LockLease,
    ReleaseLock, RenewLock, key_compare, key_op,
};
use clawhive_statemachine::{MemStore, read};

use super::play::{Play, Words};

const NAMESPACE: &str = "n";

pub fn commands(play: &mut Play, words: &Words<'_>, below: &[&str]) -> Vec<Kind> {
    let namespace = NAMESPACE.to_string();
    let name = words.bare.get(2).copied().unwrap_or_default().to_string();
    let session = vec![words.number("session").unwrap_or(1) as u8; 16];
    let held = read::lock(&play.cluster.store, NAMESPACE, &name).unwrap_or_default();
    let current = held.token;
    let changed = held.lease.map_or(0, |lease| lease.changed_at);
    let token = words.number("token").unwrap_or(current);
    match (words.bare[0], words.bare[1]) {
        ("lock", "acquire") => vec![Kind::AcquireLock(AcquireLock {
            namespace,
            name,
            session,
            ttl_ms: words.duration("ttl").unwrap_or(10_000),
            owner: words.get("owner").unwrap_or_default().into(),
            wait: words.bare.contains(&"wait"),
        })],
        ("lock", "renew") => vec![Kind::RenewLock(RenewLock { namespace, name, session, token })],
        ("lock", "release") => {
            let token = words.number("token").unwrap_or(0);
            vec![Kind::ReleaseLock(ReleaseLock { namespace, name, session, token })]
        }
        ("lock", "expire") => vec![Kind::ExpireLocks(ExpireLocks {
            leases: vec![LockLease {
                namespace,
                name,
                seq: words.number("seq").unwrap_or(0),
                session,
                token,
                changed_at: words.number("changed").unwrap_or(changed),
                remaining_ms: 0,
            }],
        })],
        ("lock", "lead") => {
            if words.bare.contains(&"new") {
                play.watch = Default::default();
            }
            let plan = play.watch.plan(&play.cluster.store, play.cluster.now);
            let expire = plan.expire.map(Kind::ExpireLocks);
            expire.into_iter().chain(plan.checkpoint.map(Kind::CheckpointLocks)).collect()
        }
        ("kv", "txn") => {
            let mut txn = KeyTxn { namespace, fence: fence(words), ..KeyTxn::default() };
            for line in below {
                let words = Words::new(line);
                match words.bare[0] {
                    "if" => txn.compares.push(compare(&words.bare[1..])),
                    "then" => txn.then.push(op(&words.bare[1..])),
                    _ => txn.otherwise.push(op(&words.bare[1..])),
                }
            }
            vec![Kind::KeyTxn(txn)]
        }
        ("kv", _) => {
            let is = match words.number("version") {
                Some(version) => Some(key_compare::Is::Version(version)),
                None => words.bare.contains(&"absent").then_some(key_compare::Is::Present(false)),
            };
            let compares = is.map(|is| KeyCompare { key: name.clone(), is: Some(is) }).into_iter().collect();
            let then = vec![op(&words.bare[1..])];
            let otherwise = vec![op(&["get", &name])];
            vec![Kind::KeyTxn(KeyTxn { namespace, compares, then, otherwise, fence: fence(words) })]
        }
        (what, other) => panic!("no {what} {other}"),
    }
}

fn fence(words: &Words<'_>) -> Option<KeyFence> {
    let token = words.number("fence")?;
    Some(KeyFence { token, lock: words.get("lock").unwrap_or_default().into() })
}

fn compare(words: &[&str]) -> KeyCompare {
    let is = match words[1] {
        "version" => key_compare::Is::Version(words[2].parse().unwrap()),
        "value" => key_compare::Is::Value(words[2].as_bytes().to_vec().into()),
        "present" => key_compare::Is::Present(true),
        _ => key_compare::Is::Present(false),
    };
    KeyCompare { key: words[0].into(), is: Some(is) }
}

fn op(words: &[&str]) -> KeyOp {
    let key = words[1].to_string();
    let op = match words[0] {
        "put" => key_op::Op::Put(KeyPut { key, value: words[2].as_bytes().to_vec().into() }),
        "delete" => key_op::Op::Delete(KeyName { key }),
        _ => key_op::Op::Get(KeyName { key }),
    };
    KeyOp { op: Some(op) }
}

pub fn answer(answer: &Answer) -> String {
    match answer {
        Answer::KeyTxnDone(it) => {
            let results: Vec<String> = it.results.iter().map(result).collect();
            format!("{}: {}", if it.succeeded { "yes" } else { "no" }, results.join(", "))
        }
        Answer::LockGranted(it) => format!("granted, token {}", it.token),
        Answer::LockQueued(it) => {
            format!("waits at place {}; {:?} holds token {}", it.position, it.owner, it.token)
        }
        other => panic!("no answer of locks or keys: {other:?}"),
    }
}

fn result(it: &KeyResult) -> String {
    if !it.found {
        return format!("{} absent", it.key);
    }
    let value = if it.value.is_empty() { "" } else { std::str::from_utf8(&it.value).unwrap() };
    let text = format!("{} {value} version {} of {}..{}", it.key, it.version, it.created_at, it.modified_at);
    text.replace("  ", " ")
}

pub fn show_locks(store: &MemStore) -> Vec<String> {
    read::list_locks(store, NAMESPACE, None, 100)
        .into_iter()
        .map(|(name, row)| {
            let lease = row.lease.unwrap_or_default();
            format!(
                "{name} token {} session {} renewed at {}, of {} ms left {}, {} wait",
                row.token, lease.session[0], lease.changed_at, lease.ttl_ms, lease.remaining_ms, row.waiters
            )
        })
        .collect()
}

pub fn show_keys(store: &MemStore) -> Vec<String> {
    let filter =
        read::KeyFilter { namespace: NAMESPACE.into(), limit: 100, bytes: 10_000, ..Default::default() };
    read::list_keys(store, &filter)
        .keys
        .iter()
        .map(|key| format!("{} = {} version {}", key.key, String::from_utf8_lossy(&key.value), key.version))
        .collect()
}
