//! Locks: acquire, wait, renew, release.

use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    AcquireLock, AcquireLockRequest, AcquireLockResponse, Command, ListLocksRequest, ListLocksResponse,
    LockQueued, LockRow, LockView, Proposal, ReleaseLock, ReleaseLockRequest, ReleaseLockResponse, RenewLock,
    RenewLockRequest, RenewLockResponse,
};
use clawhive_statemachine::lock::{MAX_OWNER_BYTES, MAX_TTL_MS, MIN_TTL_MS, SESSION_BYTES};
use clawhive_statemachine::{Touched, read};

use super::error::ApiError;
use super::{check, fresh_view, keys};
use crate::context::Context;

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1_000;

/// Kept back from the deadline, so that an answer "not yet" arrives in time.
const WAY_BACK: Duration = Duration::from_millis(100);

pub(super) async fn acquire(
    ctx: &Context,
    request: AcquireLockRequest,
    timeout: Duration,
) -> Result<AcquireLockResponse, ApiError> {
    let begun = ctx.clock.monotonic();
    let request_id = check::request_id(request.request_id)?;
    let (namespace, name) = names(request.namespace, &request.name)?;
    session(&request.session)?;
    if !(MIN_TTL_MS..=MAX_TTL_MS).contains(&request.ttl_ms) {
        return Err(ApiError::invalid(format!(
            "ttl_ms must be from {MIN_TTL_MS} to {MAX_TTL_MS}, not {}",
            request.ttl_ms
        )));
    }
    if request.owner.len() > MAX_OWNER_BYTES {
        return Err(ApiError::invalid(format!(
            "the owner has {} bytes; at most {MAX_OWNER_BYTES} are allowed",
            request.owner.len()
        )));
    }
    let feed = ctx.replica.feed();
    let acquire = AcquireLock {
        namespace: namespace.clone(),
        name: name.clone(),
        session: request.session.clone(),
        ttl_ms: request.ttl_ms,
        owner: request.owner,
        wait: request.wait_ms > 0,
    };
    let queued = match propose(ctx, request_id, Kind::AcquireLock(acquire), timeout).await? {
        Answer::LockGranted(granted) => {
            return Ok(AcquireLockResponse { token: granted.token, ..Default::default() });
        }
        Answer::LockQueued(queued) => queued,
        _ => return Err(ApiError::internal("the answer to an acquisition makes no sense")),
    };
    let left = timeout.saturating_sub(ctx.clock.monotonic().saturating_sub(begun)).saturating_sub(WAY_BACK);
    let patience = Duration::from_millis(request.wait_ms).min(left);
    let turn = my_turn(ctx, feed, &namespace, &name, &request.session);
    Ok(match tokio::time::timeout(patience, turn).await {
        Ok(Ok(token)) => AcquireLockResponse { token, ..Default::default() },
        Ok(Err(error)) => return Err(error),
        Err(_) => not_yet(ctx, &namespace, &name, queued),
    })
}

/// Waits until a session holds a lock, as far as this node knows.
async fn my_turn(
    ctx: &Context,
    mut feed: clawhive_raft::Feed,
    namespace: &str,
    name: &str,
    session: &[u8],
) -> Result<u64, ApiError> {
    loop {
        let tick = feed.touched(Touched::LOCKS).await;
        tick.map_err(|_| ApiError::unavailable("this node is shutting down"))?;
        let row = read::lock(&ctx.replica.view(), namespace, name).unwrap_or_default();
        if row.lease.is_some_and(|lease| lease.session == session) {
            return Ok(row.token);
        }
    }
}

/// Who holds it now, which need not be who did when the wait began.
fn not_yet(ctx: &Context, namespace: &str, name: &str, queued: LockQueued) -> AcquireLockResponse {
    let now = read::lock(&ctx.replica.view(), namespace, name).filter(|row| row.token > queued.token);
    let (holder_token, holder) = match now {
        Some(LockRow { token, lease: Some(lease), .. }) => (token, lease.owner),
        _ => (queued.token, queued.owner),
    };
    AcquireLockResponse { token: 0, position: queued.position, holder, holder_token }
}

pub(super) async fn renew(
    ctx: &Context,
    request: RenewLockRequest,
    timeout: Duration,
) -> Result<RenewLockResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let (namespace, name) = names(request.namespace, &request.name)?;
    session(&request.session)?;
    let renew = RenewLock { namespace, name, session: request.session, token: request.token };
    propose(ctx, request_id, Kind::RenewLock(renew), timeout).await?;
    Ok(RenewLockResponse {})
}

pub(super) async fn release(
    ctx: &Context,
    request: ReleaseLockRequest,
    timeout: Duration,
) -> Result<ReleaseLockResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let (namespace, name) = names(request.namespace, &request.name)?;
    session(&request.session)?;
    let release = ReleaseLock { namespace, name, session: request.session, token: request.token };
    propose(ctx, request_id, Kind::ReleaseLock(release), timeout).await?;
    Ok(ReleaseLockResponse {})
}

pub(super) async fn list(
    ctx: &Context,
    request: ListLocksRequest,
    timeout: Duration,
) -> Result<ListLocksResponse, ApiError> {
    let namespace = keys::namespace(request.namespace)?;
    check::key("the lock's name", &request.name)?;
    check::key("the cursor", &request.cursor)?;
    let limit = if request.limit == 0 { DEFAULT_LIMIT } else { request.limit.min(MAX_LIMIT) } as usize;
    let (view, freshness) = fresh_view(ctx, request.stale, timeout).await?;
    let mut found = match request.name.as_str() {
        "" => {
            let after = Some(request.cursor.as_str()).filter(|cursor| !cursor.is_empty());
            read::list_locks(&view, &namespace, after, limit + 1)
        }
        name => read::lock(&view, &namespace, name).map(|row| (name.to_owned(), row)).into_iter().collect(),
    };
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|(name, _)| name.clone()).unwrap_or_default();
    let shown = |(name, row): (String, LockRow)| {
        let lease = row.lease.unwrap_or_default();
        LockView {
            name,
            token: row.token,
            owner: lease.owner,
            ttl_ms: lease.ttl_ms,
            acquired_at_ms: lease.since_ms,
            renewed_at_ms: lease.renewed_at_ms,
            waiters: row.waiters,
        }
    };
    let locks = found.into_iter().map(shown).collect();
    Ok(ListLocksResponse { locks, next_cursor, freshness: Some(freshness) })
}

fn names(namespace: String, name: &str) -> Result<(String, String), ApiError> {
    let namespace = keys::namespace(namespace)?;
    if name.is_empty() {
        return Err(ApiError::invalid("the lock's name must not be empty"));
    }
    check::key("the lock's name", name)?;
    Ok((namespace, name.to_owned()))
}

fn session(session: &[u8]) -> Result<(), ApiError> {
    if session.len() == SESSION_BYTES {
        return Ok(());
    }
    Err(ApiError::invalid(format!("session must have {SESSION_BYTES} bytes, not {}", session.len())))
}

async fn propose(
    ctx: &Context,
    request_id: Vec<u8>,
    kind: Kind,
    timeout: Duration,
) -> Result<Answer, ApiError> {
    let commands = vec![Command { kind: Some(kind) }];
    let proposal = Proposal { request_id, actor: super::submit::ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    match committed.outcomes.into_iter().next().and_then(|outcome| outcome.kind) {
        Some(Answer::Rejected(rejection)) => Err(rejection.into()),
        Some(answer) => Ok(answer),
        None => Err(ApiError::internal("a write has no answer")),
    }
}
