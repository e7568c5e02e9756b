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
mod logs;
mod runs;
mod schedules;
mod submit;
mod watch;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::clawhive_server::{Clawhive, ClawhiveServer};
use clawhive_proto::{
    CancelRunRequest, CancelRunResponse, CheckDigestsRequest, CheckDigestsResponse, ClusterStatusRequest,
    ClusterStatusResponse, EventView, GetKeyRequest, GetKeyResponse, GetRunRequest, GetScheduleRequest,
    ListEventsRequest, ListNodesRequest, ListNodesResponse, ListRunsRequest, ListRunsResponse,
    ListSchedulesRequest, ListSchedulesResponse, LogChunk, MAX_MESSAGE_BYTES, PauseScheduleRequest,
    PutKeyRequest, PutKeyResponse, PutWorkflowRequest, PutWorkflowResponse, ReadLogsRequest,
    ResumeClusterRequest, ResumeClusterResponse, RunView, SaveSnapshotRequest, ScheduleView, SnapshotChunk,
    SubmitRunRequest, SubmitRunResponse, SubmitRunsRequest, SubmitRunsResponse, TriggerScheduleRequest,
    WatchRunRequest,
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

    async fn list_schedules(&self, request: Request<ListSchedulesRequest>) -> Answer<ListSchedulesResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(schedules::list(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn get_schedule(&self, request: Request<GetScheduleRequest>) -> Answer<ScheduleView> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(schedules::get(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn trigger_schedule(&self, request: Request<TriggerScheduleRequest>) -> Answer<SubmitRunResponse> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(schedules::trigger(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn pause_schedule(&self, request: Request<PauseScheduleRequest>) -> Answer<ScheduleView> {
        let timeout = check::deadline(request.metadata());
        Ok(Response::new(schedules::pause(&self.ctx, request.into_inner(), timeout).await?))
    }

    async fn list_nodes(&self, _: Request<ListNodesRequest>) -> Answer<ListNodesResponse> {
        Ok(Response::new(ListNodesResponse { nodes: cluster::nodes(&self.ctx).await.nodes }))
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
}
