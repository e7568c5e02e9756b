//! What this node answers its peers itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clawhive_proto::command::Kind;
use clawhive_proto::{
    AddNode, AttemptLogRequest, ClawBeat, ClawBeatReply, Command, DigestQuery, DigestReply, FetchQuery,
    JoinReply, LogChunk, PeerError, PeerStatus, Proposal, SnapshotChunk, Welcome, join_reply, outcome,
};
use clawhive_statemachine::level;
use futures::stream::BoxStream;
use tonic::Status;

use crate::api;
use crate::context::{Context, VERSION, rejection};
use crate::digests;
use crate::env;
use crate::peer::Desk;

/// How long an admission may take, elections included.
const ADMISSION: Duration = Duration::from_secs(5);

pub(super) struct NodeDesk {
    pub(super) ctx: Arc<Context>,
}

#[async_trait]
impl Desk for NodeDesk {
    async fn beat(&self, beat: ClawBeat) -> ClawBeatReply {
        self.ctx.beats.beat(&self.ctx, beat).await
    }

    async fn admit(&self, request: AddNode) -> JoinReply {
        let level = level::current(&self.ctx.replica.view());
        if request.level.max(1) < level {
            let message = format!(
                "version {} of the joining node knows level {}, this cluster is at level {level}: start it with version \
                 {VERSION}",
                request.version,
                request.level.max(1)
            );
            let error = PeerError { message, may_have_been_applied: false };
            return JoinReply { result: Some(join_reply::Result::Error(error)) };
        }
        let proposal = Proposal {
            request_id: env::request_id().to_vec(),
            actor: self.ctx.actor(),
            commands: vec![Command { kind: Some(Kind::AddNode(request)) }],
        };
        let error = |message: String, may_have_been_applied| {
            join_reply::Result::Error(PeerError { message, may_have_been_applied })
        };
        let result = match self.ctx.replica.propose(proposal, ADMISSION).await {
            Err(refused) => error(refused.to_string(), refused.may_have_been_applied()),
            Ok(committed) => match committed.outcomes.first() {
                Some(outcome) => match (&outcome.kind, rejection(outcome)) {
                    (Some(outcome::Kind::NodeAdded(added)), _) => {
                        let cluster_id = self.ctx.me.cluster_id.to_vec();
                        join_reply::Result::Welcome(Welcome { node: added.node, cluster_id })
                    }
                    (_, Some(rejection)) => error(rejection.message.clone(), false),
                    _ => error("an outcome of another kind".to_owned(), true),
                },
                None => error("no outcome".to_owned(), true),
            },
        };
        JoinReply { result: Some(result) }
    }

    fn status(&self) -> PeerStatus {
        self.ctx.peer_status()
    }

    async fn digest(&self, query: DigestQuery) -> DigestReply {
        digests::answer(&self.ctx, query).await
    }

    fn snapshot(&self, query: FetchQuery) -> BoxStream<'static, Result<SnapshotChunk, Status>> {
        api::snapshot(self.ctx.clone(), Some(query.at_least))
    }

    fn attempt_log(&self, request: AttemptLogRequest) -> BoxStream<'static, Result<LogChunk, Status>> {
        api::attempt_log(self.ctx.clone(), request)
    }
}
