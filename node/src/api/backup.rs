//! Snapshots for backup, digests of all nodes, and the end of a restored cluster's rest.

use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{
    CheckDigestsRequest, CheckDigestsResponse, Command, NodeDigest, Proposal, ResumeCluster,
    ResumeClusterRequest, ResumeClusterResponse, SnapshotChunk, TakeDigest,
};
use clawhive_raft::ExportError;
use clawhive_statemachine::read;
use futures::StreamExt;
use futures::stream;
use tonic::Status;

use super::error::ApiError;
use super::{Items, check, submit, view};
use crate::context::{Context, rejection};
use crate::digests;

/// How long a node may take to catch up with what is acknowledged before it makes a snapshot.
const CATCH_UP: Duration = Duration::from_secs(10);

/// Makes a snapshot, then sends it: with `at_least` as far as that, else with everything acknowledged so far. The first
/// chunk says how long it is.
pub(crate) fn snapshot(ctx: Arc<Context>, at_least: Option<u64>) -> Items<SnapshotChunk> {
    let made = async move { ctx.replica.export(at_least, CATCH_UP).await };
    let chunks = stream::once(made).flat_map(|made| match made {
        Err(error) => stream::iter([Err(Status::from(ApiError::from(error)))]).boxed(),
        Ok(export) => {
            let first = SnapshotChunk {
                total_bytes: export.bytes,
                applied_index: export.applied_index,
                data: Default::default(),
            };
            let of = |data| SnapshotChunk { data, ..SnapshotChunk::default() };
            let broken = |error: std::io::Error| Status::from(ApiError::internal(error.to_string()));
            let rest = export.read_from(0).map(move |data| data.map(of).map_err(broken));
            stream::iter([Ok(first)]).chain(rest).boxed()
        }
    });
    chunks.boxed()
}

impl From<ExportError> for ApiError {
    fn from(error: ExportError) -> ApiError {
        match error {
            ExportError::Read(error) => error.into(),
            ExportError::Io(error) => ApiError::unavailable(format!("no snapshot can be made here: {error}")),
        }
    }
}

pub(super) async fn check_digests(
    ctx: &Context,
    request: CheckDigestsRequest,
    timeout: Duration,
) -> Result<CheckDigestsResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let log_index = propose(ctx, request_id, Kind::TakeDigest(TakeDigest {}), timeout).await?;
    let answers = digests::gather(ctx, log_index).await;
    let mut of = answers.values();
    let first = of.next();
    let equal = first.is_some_and(|first| first.is_ok() && of.all(|other| other == first));
    let nodes = answers.into_iter().map(|(node, answer)| match answer {
        Ok(digest) => NodeDigest { node, digest: digest.to_vec(), ..NodeDigest::default() },
        Err(unavailable) => NodeDigest { node, unavailable, ..NodeDigest::default() },
    });
    Ok(CheckDigestsResponse { log_index, equal, nodes: nodes.collect() })
}

pub(super) async fn resume(
    ctx: &Context,
    request: ResumeClusterRequest,
    timeout: Duration,
) -> Result<ResumeClusterResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let suspended = read::cluster(&view(ctx, false, timeout).await?).suspended;
    if suspended {
        propose(ctx, request_id, Kind::ResumeCluster(ResumeCluster {}), timeout).await?;
    }
    Ok(ResumeClusterResponse { resumed: suspended })
}

async fn propose(ctx: &Context, request_id: Vec<u8>, kind: Kind, timeout: Duration) -> Result<u64, ApiError> {
    let commands = vec![Command { kind: Some(kind) }];
    let proposal = Proposal { request_id, actor: submit::ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    match committed.outcomes.iter().find_map(rejection) {
        Some(rejection) => Err(rejection.clone().into()),
        None => Ok(committed.log_index),
    }
}
