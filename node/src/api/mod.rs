//! The service for clients: checks shape and limits, builds commands, proposes; reads views. Any node answers any call.
//!
//! Must not: take a business decision (that is `apply`), or keep state between calls.

mod backup;
mod check;
mod clocks;
mod cluster;
mod error;
mod events;
mod keys;
mod locks;
mod logs;
mod runs;
mod submit;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::clawhive_server::{Clawhive, ClawhiveServer};
use clawhive_proto::{
    AcquireLockRequest, AcquireLockResponse, CancelRunRequest, CancelRunResponse, CheckDigestsRequest,
    CheckDigestsResponse, ClusterStatusRequest, ClusterStatusResponse, EventView, Freshness, GetKeyRequest,
    GetKeyResponse, GetRunRequest, ListEventsRequest, ListKeysRequest, ListKeysResponse, ListLocksRequest,
    ListLocksResponse, ListNodesRequest, ListNodesResponse, ListRunsRequest, ListRunsResponse, LogChunk,
    MAX_MESSAGE_BYTES, PutKeyRequest, PutKeyResponse, PutWorkflowRequest, PutWorkflowResponse,
    ReadLogsRequest, ReleaseLockRequest, ReleaseLockResponse, RenewLockRequest, RenewLockResponse,
    ResumeClusterRequest, ResumeClusterResponse, RunView, SaveSnapshotRequest, SnapshotChunk,
    SubmitRunRequest, SubmitRunResponse, SubmitRunsRequest, SubmitRunsResponse, TxnKeysRequest,
    TxnKeysResponse, WatchRunRequest,
};
use clawhive_raft::View;
use futures::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::context::Context;
use error::ApiError;

pub(crate) use backup::snapshot;
pub(crate) use logs::attempt_log;

type Answer<T> = Result<Response<T>, Status>;
type Items<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

/// Room for the message around a definition of the allowed size. What is above the limit itself is refused with a text;
/// what is far above it, by the gRPC library.
const DECODE_BYTES: usize = MAX_MESSAGE_BYTES + 64 * 1024;

/// The service behind the client port.
pub(crate) struct Api {
    ctx: Arc<Context>,
}

impl Api {
    /// The service, ready to be added to a server.
    pub(crate) fn server(ctx: Arc<Context>) -> ClawhiveServer<Api> {
        ClawhiveServer::new(Api { ctx })
            .max_decoding_message_size(DECODE_BYTES)
            .max_encoding_message_size(usize::MAX)
    }
}

/// A view for a read: linearizable, unless the caller takes what is here.
async fn view(ctx: &Context, stale: bool, timeout: Duration) -> Result<View, ApiError> {
    if stale { Ok(ctx.replica.view()) } else { Ok(ctx.replica.linearizable_view(timeout).await?) }
}

/// As [`view`], with how new it is.
async fn fresh_view(ctx: &Context, stale: bool, timeout: Duration) -> Result<(View, Freshness), ApiError> {
    let (view, age) = match stale {
        true => ctx.replica.stale_view(),
        false => (ctx.replica.linearizable_view(timeout).await?, None),
    };
    let freshness = freshness(view.applied_index(), stale, age);
    Ok((view, freshness))
}

/// A read that looks at many rows: beside the runtime, a few at a time, so that readers of long lists hold up neither each
/// other's short calls nor writes. The view is taken when its turn comes: none is held while it waits.
async fn scan<T: Send + 'static>(
    ctx: &Context,
    stale: bool,
    timeout: Duration,
    read: impl FnOnce(&View) -> T + Send + 'static,
) -> Result<(T, Freshness), ApiError> {
    if !stale {
        ctx.replica.linearizable_view(timeout).await?;
    }
    let turn = tokio::time::timeout(timeout, ctx.scans.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        return Err(ApiError::unavailable("too many readers of long lists at once"));
    };
    let (view, age) = ctx.replica.stale_view();
    let applied_index = view.applied_index();
    let found = tokio::task::spawn_blocking(move || read(&view)).await;
    let found = found.map_err(|error| ApiError::internal(format!("a read failed: {error}")))?;
    Ok((found, freshness(applied_index, stale, age)))
}

fn freshness(applied_index: u64, stale: bool, age: Option<Duration>) -> Freshness {
    let age_ms = age.filter(|_| stale).map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    Freshness { applied_index, stale, age_ms }
}

#[tonic::async_trait]
impl Clawhive for Api {
    async fn put_workflow(&self, request: Request<PutWorkflowRequest>) -> Answer<PutWorkflowResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(submit::put_workflow(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn submit_run(&self, request: Request<SubmitRunRequest>) -> Answer<SubmitRunResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(submit::submit_run(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn submit_runs(&self, request: Request<SubmitRunsRequest>) -> Answer<SubmitRunsResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(submit::submit_runs(&self.ctx, request.into_inner(), timeout).await))
    }

    async fn get_run(&self, request: Request<GetRunRequest>) -> Answer<RunView> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(runs::get(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn list_runs(&self, request: Request<ListRunsRequest>) -> Answer<ListRunsResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(runs::list(&self.ctx, request.into_inner(), timeout).await?))
    }

    type WatchRunStream = Items<RunView>;

    async fn watch_run(&self, request: Request<WatchRunRequest>) -> Answer<Items<RunView>> {
        Ok(Response::new(watch::run(self.ctx.clone(), request.into_inner()).await?))
    }

    async fn cancel_run(&self, request: Request<CancelRunRequest>) -> Answer<CancelRunResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(runs::cancel(&self.ctx, request.into_inner(), timeout).await?))
    }

    type ListEventsStream = Items<EventView>;

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Answer<Items<EventView>> {
        Ok(Response::new(events::list(self.ctx.clone(), request.into_inner()).await?))
    }

    type ReadLogsStream = Items<LogChunk>;

    async fn read_logs(&self, request: Request<ReadLogsRequest>) -> Answer<Items<LogChunk>> {
        Ok(Response::new(logs::read(self.ctx.clone(), request.into_inner()).await?))
    }

    async fn list_nodes(&self, request: Request<ListNodesRequest>) -> Answer<ListNodesResponse> {
        let timeout = check::deadline(request.metadata());
        let (_, freshness) = fresh_view(&self.ctx, request.into_inner().stale, timeout).await?;
        let nodes = cluster::nodes(&self.ctx).await.nodes;
        Ok(Response::new(ListNodesResponse { nodes, freshness: Some(freshness) }))
    }

    async fn cluster_status(&self, _: Request<ClusterStatusRequest>) -> Answer<ClusterStatusResponse> {
        Ok(Response::new(cluster::nodes(&self.ctx).await))
    }

    async fn put_key(&self, request: Request<PutKeyRequest>) -> Answer<PutKeyResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(keys::put(&self.ctx, request.into_inner(), timeout).await?))
    }

    type PutKeysStream = Items<PutKeyResponse>;

    async fn put_keys(&self, request: Request<Streaming<PutKeyRequest>>) -> Answer<Items<PutKeyResponse>> {
        Ok(Response::new(keys::put_all(self.ctx.clone(), request.into_inner())))
    }

    async fn get_key(&self, request: Request<GetKeyRequest>) -> Answer<GetKeyResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(keys::get(&self.ctx, request.into_inner(), timeout).await?))
    }

    type SaveSnapshotStream = Items<SnapshotChunk>;

    async fn save_snapshot(&self, _: Request<SaveSnapshotRequest>) -> Answer<Items<SnapshotChunk>> {
        Ok(Response::new(backup::snapshot(self.ctx.clone(), None)))
    }

    async fn check_digests(&self, request: Request<CheckDigestsRequest>) -> Answer<CheckDigestsResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(backup::check_digests(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn resume_cluster(&self, request: Request<ResumeClusterRequest>) -> Answer<ResumeClusterResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(backup::resume(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn list_keys(&self, request: Request<ListKeysRequest>) -> Answer<ListKeysResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(keys::list(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn txn_keys(&self, request: Request<TxnKeysRequest>) -> Answer<TxnKeysResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(keys::txn(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn acquire_lock(&self, request: Request<AcquireLockRequest>) -> Answer<AcquireLockResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(locks::acquire(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn renew_lock(&self, request: Request<RenewLockRequest>) -> Answer<RenewLockResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(locks::renew(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn release_lock(&self, request: Request<ReleaseLockRequest>) -> Answer<ReleaseLockResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(locks::release(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn list_locks(&self, request: Request<ListLocksRequest>) -> Answer<ListLocksResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(locks::list(&self.ctx, request.into_inner(), timeout).await?))
    }
}
