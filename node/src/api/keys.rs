//! Keys and values.

use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::key_op::Op;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    Command, GetKeyRequest, GetKeyResponse, KeyOp, KeyTxn, ListKeysRequest, ListKeysResponse, Proposal,
    PutKey, PutKeyRequest, PutKeyResponse, TxnKeysRequest, TxnKeysResponse,
};
use clawhive_raft::View;
use clawhive_statemachine::read::{self, MAX_TXN_OPS};
use futures::stream::StreamExt;
use sha2::{Digest, Sha256};
use tonic::{Status, Streaming};

use super::error::ApiError;
use super::{Items, check, fresh_view, scan};
use crate::context::{Context, rejection};

/// Puts that wait together travel together: up to so many, and so many bytes.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// How long a batch of a stream may take; a stream has no deadline of its own.
const BATCH_DEADLINE: Duration = Duration::from_secs(10);

const DEFAULT_NAMESPACE: &str = "default";

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1_000;
/// A page of a list ends after so many bytes of keys and values.
const PAGE_BYTES: usize = 1 << 20;

/// One value, and all values and keys of a transaction.
const MAX_VALUE_BYTES: usize = 1 << 20;
const MAX_TXN_BYTES: usize = 2 << 20;

pub(super) async fn put(
    ctx: &Context,
    request: PutKeyRequest,
    timeout: Duration,
) -> Result<PutKeyResponse, ApiError> {
    let request_id = check::request_id(request.request_id.clone())?;
    let log_index = propose(ctx, request_id, vec![command(request)?], timeout).await?;
    Ok(PutKeyResponse { log_index })
}

pub(super) async fn get(
    ctx: &Context,
    request: GetKeyRequest,
    timeout: Duration,
) -> Result<GetKeyResponse, ApiError> {
    let namespace = namespace(request.namespace)?;
    check::key("the key", &request.key)?;
    let (view, freshness) = fresh_view(ctx, request.stale, timeout).await?;
    let row = read::key(&view, &namespace, &request.key);
    let found = row.is_some();
    let version = row.as_ref().map_or(0, read::key_version);
    let row = row.unwrap_or_default();
    Ok(GetKeyResponse {
        found,
        value: row.value,
        modified_at: row.modified_at,
        applied_index: view.applied_index(),
        created_at: row.created_at,
        version,
        freshness: Some(freshness),
    })
}

pub(super) async fn list(
    ctx: &Context,
    request: ListKeysRequest,
    timeout: Duration,
) -> Result<ListKeysResponse, ApiError> {
    let namespace = namespace(request.namespace)?;
    check::key("the prefix", &request.prefix)?;
    check::key("the cursor", &request.cursor)?;
    let limit = if request.limit == 0 { DEFAULT_LIMIT } else { request.limit.min(MAX_LIMIT) };
    let filter = read::KeyFilter {
        namespace,
        prefix: request.prefix,
        after: Some(request.cursor).filter(|cursor| !cursor.is_empty()),
        limit: limit as usize,
        bytes: PAGE_BYTES,
        keys_only: request.keys_only,
    };
    let list = move |view: &View| read::list_keys(view, &filter);
    let (page, freshness) = scan(ctx, request.stale, timeout, list).await?;
    Ok(ListKeysResponse {
        keys: page.keys,
        next_cursor: page.next.unwrap_or_default(),
        freshness: Some(freshness),
    })
}

pub(super) async fn txn(
    ctx: &Context,
    request: TxnKeysRequest,
    timeout: Duration,
) -> Result<TxnKeysResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let mut txn = request.txn.unwrap_or_default();
    txn.namespace = namespace(txn.namespace)?;
    check_txn(&txn)?;
    let commands = vec![Command { kind: Some(Kind::KeyTxn(txn)) }];
    let proposal = Proposal { request_id, actor: super::submit::ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    match committed.outcomes.into_iter().next().and_then(|outcome| outcome.kind) {
        Some(Answer::KeyTxnDone(done)) => Ok(TxnKeysResponse {
            log_index: committed.log_index,
            succeeded: done.succeeded,
            results: done.results,
        }),
        Some(Answer::Rejected(rejection)) => Err(rejection.into()),
        _ => Err(ApiError::internal("the answer to a transaction makes no sense")),
    }
}

/// Names, counts and sizes; the limits stand in the texts.
fn check_txn(txn: &KeyTxn) -> Result<(), ApiError> {
    let counts = [
        ("comparisons", txn.compares.len()),
        ("operations", txn.then.len()),
        ("operations", txn.otherwise.len()),
    ];
    for (what, count) in counts {
        if count > MAX_TXN_OPS {
            return Err(ApiError::invalid(format!("{count} {what}; at most {MAX_TXN_OPS} are allowed")));
        }
    }
    if txn.compares.iter().any(|compare| compare.is.is_none()) {
        return Err(ApiError::invalid("a comparison names nothing to compare with"));
    }
    let mut bytes = 0;
    let compared = txn.compares.iter().map(|compare| compare.key.as_str());
    for key in compared.chain(txn.then.iter().chain(&txn.otherwise).map(op_key)) {
        if key.is_empty() {
            return Err(ApiError::invalid("the key must not be empty"));
        }
        check::key("the key", key)?;
        bytes += key.len();
    }
    for op in txn.then.iter().chain(&txn.otherwise) {
        let Some(Op::Put(put)) = &op.op else { continue };
        check_value(&put.key, put.value.len())?;
        bytes += put.value.len();
    }
    if bytes > MAX_TXN_BYTES {
        let text = format!("the transaction has {bytes} bytes; the limit is {MAX_TXN_BYTES} bytes");
        return Err(ApiError::invalid(text));
    }
    if let Some(fence) = &txn.fence {
        check::key("the lock's name", &fence.lock)?;
        if fence.token == 0 {
            return Err(ApiError::invalid("a fencing token is never 0"));
        }
    }
    Ok(())
}

fn op_key(op: &KeyOp) -> &str {
    match &op.op {
        Some(Op::Put(put)) => &put.key,
        Some(Op::Delete(name) | Op::Get(name)) => &name.key,
        None => "",
    }
}

fn check_value(key: &str, bytes: usize) -> Result<(), ApiError> {
    if bytes <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let key = &key[..key.floor_char_boundary(80)];
    Err(ApiError::invalid(format!(
        "the value of {key:?} has {bytes} bytes; the limit is {MAX_VALUE_BYTES} bytes"
    )))
}

/// Answers the puts of a stream in their order. Those that have arrived already travel in one entry: all of it is
/// applied, or nothing. A batch is repeatable as it is, not in other portions.
pub(super) fn put_all(ctx: Arc<Context>, requests: Streaming<PutKeyRequest>) -> Items<PutKeyResponse> {
    let answers = requests.ready_chunks(BATCH).then(move |batch| {
        let ctx = ctx.clone();
        async move {
            let mut answers = Vec::with_capacity(batch.len());
            let mut portion = Portion::default();
            for request in batch {
                let added = request.and_then(|request| portion.add(request).map_err(Status::from));
                if added.is_err() || portion.bytes >= BATCH_BYTES {
                    portion.flush(&ctx, &mut answers).await;
                }
                if let Err(status) = added {
                    answers.push(Err(status));
                }
            }
            portion.flush(&ctx, &mut answers).await;
            futures::stream::iter(answers)
        }
    });
    // After an error nothing more: the client knows exactly which puts were answered.
    let answers = answers.flatten().scan(false, |failed, answer| {
        let goes_on = !*failed;
        *failed |= answer.is_err();
        std::future::ready(goes_on.then_some(answer))
    });
    answers.boxed()
}

#[derive(Default)]
struct Portion {
    commands: Vec<Command>,
    ids: Option<Sha256>,
    first_id: Vec<u8>,
    bytes: usize,
}

impl Portion {
    fn add(&mut self, request: PutKeyRequest) -> Result<(), ApiError> {
        let id = check::request_id(request.request_id.clone())?;
        self.bytes += request.key.len() + request.value.len() + 64;
        self.commands.push(command(request)?);
        self.ids.get_or_insert_with(Sha256::new).update(&id);
        if self.first_id.is_empty() {
            self.first_id = id;
        }
        Ok(())
    }

    async fn flush(&mut self, ctx: &Context, answers: &mut Vec<Result<PutKeyResponse, Status>>) {
        let Portion { commands, ids, first_id, .. } = std::mem::take(self);
        let count = commands.len();
        if count == 0 {
            return;
        }
        let id = match (count, ids) {
            (1, _) | (_, None) => first_id,
            (_, Some(ids)) => ids.finalize()[..16].to_vec(),
        };
        match propose(ctx, id, commands, BATCH_DEADLINE).await {
            Ok(log_index) => answers.extend((0..count).map(|_| Ok(PutKeyResponse { log_index }))),
            Err(error) => answers.push(Err(error.into())),
        }
    }
}

fn command(request: PutKeyRequest) -> Result<Command, ApiError> {
    let namespace = namespace(request.namespace)?;
    if request.key.is_empty() {
        return Err(ApiError::invalid("the key must not be empty"));
    }
    check::key("the key", &request.key)?;
    check_value(&request.key, request.value.len())?;
    let put = PutKey { namespace, key: request.key, value: request.value };
    Ok(Command { kind: Some(Kind::PutKey(put)) })
}

/// The namespace asked for, or the usual one.
pub(super) fn namespace(given: String) -> Result<String, ApiError> {
    if given.is_empty() {
        return Ok(DEFAULT_NAMESPACE.to_owned());
    }
    check::name_of("namespace", &given)?;
    Ok(given)
}

async fn propose(
    ctx: &Context,
    request_id: Vec<u8>,
    commands: Vec<Command>,
    timeout: Duration,
) -> Result<u64, ApiError> {
    let proposal = Proposal { request_id, actor: super::submit::ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    match committed.outcomes.iter().find_map(rejection) {
        Some(rejection) => Err(rejection.clone().into()),
        None => Ok(committed.log_index),
    }
}
