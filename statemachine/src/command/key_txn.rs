//! Looks at keys and changes keys of one namespace, all or nothing. Everything is worked out on the side first; only a
//! transaction that is answered changes anything.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use clawhive_proto::key_compare::Is;
use clawhive_proto::key_op::Op;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    KeyCompare, KeyFence, KeyFenceRow, KeyOp, KeyResult, KeyRow, KeyTxn, KeyTxnDone, RejectionCode,
};

use crate::command::check_name;
use crate::halt::{Step, rejected};
use crate::lock::{self, Name};
use crate::work::Work;
use crate::{Table, key};

/// Comparisons, and operations of each branch.
pub const MAX_TXN_OPS: usize = 128;
/// Values that a transaction may answer with, together: the answer is kept with the request id.
pub const MAX_TXN_READ_BYTES: usize = 1 << 20;

pub(crate) fn apply(work: &mut Work<'_>, command: &KeyTxn) -> Step<Answer> {
    check(command)?;
    let mut draft = Draft { namespace: &command.namespace, rows: BTreeMap::new(), read: 0 };
    let mut succeeded = true;
    for compare in &command.compares {
        succeeded &= draft.holds(work, compare)?;
    }
    let ops = if succeeded { &command.then } else { &command.otherwise };
    if let Some(fence) = &command.fence {
        check_fence(work, &command.namespace, fence, ops)?;
    }
    let mut results = Vec::with_capacity(ops.len());
    for op in ops {
        results.push(draft.run(work, op)?);
    }
    if draft.read > MAX_TXN_READ_BYTES {
        return rejected(
            RejectionCode::Invalid,
            format!(
                "the values read have {} bytes; a transaction answers with at most {MAX_TXN_READ_BYTES}",
                draft.read
            ),
        );
    }
    draft.store(work, command.fence.as_ref());
    Ok(Answer::KeyTxnDone(KeyTxnDone { succeeded, results }))
}

fn check(command: &KeyTxn) -> Step<()> {
    check_name("the namespace", &command.namespace)?;
    for (what, count) in [
        ("comparisons", command.compares.len()),
        ("operations", command.then.len()),
        ("operations", command.otherwise.len()),
    ] {
        if count > MAX_TXN_OPS {
            return rejected(RejectionCode::Invalid, format!("{count} {what}; at most {MAX_TXN_OPS}"));
        }
    }
    if command.compares.iter().any(|compare| compare.is.is_none()) {
        return rejected(RejectionCode::Invalid, "a comparison says nothing");
    }
    if command.then.iter().chain(&command.otherwise).any(|op| op.op.is_none()) {
        return rejected(RejectionCode::Invalid, "an operation says nothing");
    }
    let names = command.then.iter().chain(&command.otherwise).map(name);
    for name in names.chain(command.compares.iter().map(|compare| compare.key.as_str())) {
        check_name("the key", name)?;
    }
    Ok(())
}

fn name(op: &KeyOp) -> &str {
    match &op.op {
        Some(Op::Put(put)) => &put.key,
        Some(Op::Delete(name) | Op::Get(name)) => &name.key,
        None => "",
    }
}

/// A token that is older than one that has written, or that is not the named lock's, writes nothing.
fn check_fence(work: &Work<'_>, namespace: &str, fence: &KeyFence, ops: &[KeyOp]) -> Step<()> {
    let token = fence.token;
    if token == 0 {
        return rejected(RejectionCode::Invalid, "a fencing token is never 0");
    }
    if !fence.lock.is_empty() {
        let name = Name { namespace, name: &fence.lock };
        let current = lock::load(work, name)?.map(|row| row.token);
        if current != Some(token) {
            let now = current.map_or("nobody holds it".to_string(), |now| format!("that is {now}"));
            let text = format!("token {token} is not the current one of lock {name}: {now}");
            return rejected(RejectionCode::StaleFence, text);
        }
    }
    for op in ops.iter().filter(|op| !matches!(op.op, Some(Op::Get(_)))) {
        let key = name(op);
        let newest = work.get::<KeyFenceRow>(Table::KeyFences, &key::key(namespace, key))?;
        if let Some(newest) = newest.map(|row| row.token).filter(|newest| *newest > token) {
            let text = format!("key {key:?} was written with token {newest}; token {token} is older");
            return rejected(RejectionCode::StaleFence, text);
        }
    }
    Ok(())
}

/// The keys as they will be.
struct Draft<'a> {
    namespace: &'a str,
    /// What was looked at or changed; `None`: no such key. True: changed.
    rows: BTreeMap<&'a str, (Option<KeyRow>, bool)>,
    read: usize,
}

impl<'a> Draft<'a> {
    fn row(&mut self, work: &Work<'_>, key: &'a str) -> Step<Option<KeyRow>> {
        if let Some((row, _)) = self.rows.get(key) {
            return Ok(row.clone());
        }
        let row: Option<KeyRow> = work.get(Table::Keys, &key::key(self.namespace, key))?;
        self.rows.insert(key, (row.clone(), false));
        Ok(row)
    }

    fn holds(&mut self, work: &Work<'_>, compare: &'a KeyCompare) -> Step<bool> {
        let row = self.row(work, &compare.key)?;
        Ok(match &compare.is {
            Some(Is::Version(version)) => row.as_ref().map_or(0, key_version) == *version,
            Some(Is::ModifiedAt(index)) => row.map_or(0, |row| row.modified_at) == *index,
            Some(Is::Value(value)) => row.is_some_and(|row| row.value == *value),
            Some(Is::Present(present)) => row.is_some() == *present,
            None => false,
        })
    }

    fn run(&mut self, work: &Work<'_>, op: &'a KeyOp) -> Step<KeyResult> {
        let key = name(op);
        let before = self.row(work, key)?;
        let answer = |row: Option<&KeyRow>| KeyResult {
            key: key.to_string(),
            found: row.is_some(),
            version: row.map_or(0, key_version),
            created_at: row.map_or(0, |row| row.created_at),
            modified_at: row.map_or(0, |row| row.modified_at),
            ..KeyResult::default()
        };
        Ok(match &op.op {
            Some(Op::Put(put)) => {
                let row = KeyRow {
                    value: put.value.clone(),
                    created_at: before.as_ref().map_or(work.log_index, |row| row.created_at),
                    modified_at: work.log_index,
                    version: before.as_ref().map_or(0, key_version) + 1,
                };
                let answer = answer(Some(&row));
                self.rows.insert(key, (Some(row), true));
                answer
            }
            Some(Op::Delete(_)) => {
                self.rows.insert(key, (None, true));
                answer(before.as_ref())
            }
            Some(Op::Get(_)) | None => {
                let value = before.as_ref().map(|row| row.value.clone()).unwrap_or_default();
                self.read += value.len();
                KeyResult { value, ..answer(before.as_ref()) }
            }
        })
    }

    fn store(self, work: &mut Work<'_>, fence: Option<&KeyFence>) {
        for (name, (row, changed)) in self.rows {
            if !changed {
                continue;
            }
            let key = key::key(self.namespace, name);
            match row {
                Some(row) => work.put(Table::Keys, &key, &row),
                None => work.delete(Table::Keys, &key),
            }
            if let Some(fence) = fence {
                work.put(Table::KeyFences, &key, &KeyFenceRow { token: fence.token });
            }
        }
    }
}

/// Writes since the key was made. Those of before cluster level 2 were not counted.
pub fn key_version(row: &KeyRow) -> u64 {
    row.version.max(1)
}
