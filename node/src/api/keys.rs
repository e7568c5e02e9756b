//! Keys and values.

use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{
    Command, GetKeyRequest, GetKeyResponse, Proposal, PutKey, PutKeyRequest, PutKeyResponse,
};
use clawhive_statemachine::read;
use futures::stream::StreamExt;
use sha2::{Digest, Sha256};
use tonic::{Status, Streaming};

use super::error::ApiError;
use super::{Items, check, view};
use crate::context::{Context, rejection};

/// Puts that wait together travel together: up to so many, and so many bytes.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 1 << 20;

/// How long a batch of a stream may take; a stream has no deadline of its own.
const BATCH_DEADLINE: Duration = Duration::from_secs(10);

const DEFAULT_NAMESPACE: &str = "default";

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
    let view = view(ctx, request.stale, timeout).await?;
    let row = read::key(&view, &namespace, &request.key);
    let found = row.is_some();
    let row = row.unwrap_or_default();
    Ok(GetKeyResponse {
        found,
        value: row.value,
        modified_at: row.modified_at,
        applied_index: view.applied_index(),
    })
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
    let put = PutKey { namespace, key: request.key, value: request.value };
    Ok(Command { kind: Some(Kind::PutKey(put)) })
}

fn namespace(given: String) -> Result<String, ApiError> {
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
