//! openraft's network over a [`Transport`].
//!
//! Owns: which error means what to openraft (backing off when nobody is there, retrying at once when an answer was
//! lost), deadlines, the size of frames. Must not: know what a frame is carried by.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::FrameKind;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkV2};

use crate::codec::DecodeError;
use crate::machine::RaftSnapshot;
use crate::reach::Reach;
use crate::snapshot::SnapshotFile;
use crate::transport::{Peer, Transport, TransportError};
use crate::types::{LogEntry, Node, TypeConfig, Vote};
use crate::wire;

/// A frame of entries grows to about this; one entry may be larger.
const FRAME_BYTES: usize = 1 << 20;

type RpcError = RPCError<TypeConfig>;

/// Makes a client for each peer and purpose.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) reach: Arc<Reach>,
    /// A stream of entries whose oldest frame waits this long for its answer is broken.
    pub(crate) stall: Duration,
}

/// The way to one peer.
pub(crate) struct Link {
    network: Network,
    peer: Peer,
    /// Sends entries as a stream; heartbeats go one by one, so that nothing queues before them.
    pipelined: bool,
}

impl Network {
    fn link(&self, target: u64, node: &Node, pipelined: bool) -> Link {
        Link { network: self.clone(), peer: Peer { id: target, addr: node.addr.clone() }, pipelined }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &Node) -> Link {
        self.link(target, node, true)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Node) -> Link {
        self.link(target, node, false)
    }
}

fn undecodable(error: DecodeError) -> RpcError {
    Unreachable::from_string(format!("answer: {error}")).into()
}

/// Refusals back off too: another cluster's node doesn't become ours by asking again at once.
fn rpc_error(error: TransportError) -> RpcError {
    match error {
        TransportError::Lost(reason) => NetworkError::from_string(reason).into(),
        TransportError::Unreachable(reason) | TransportError::Refused(reason) => {
            Unreachable::from_string(reason).into()
        }
    }
}

impl Link {
    async fn call(&self, kind: FrameKind, payload: Bytes, option: &RPCOption) -> Result<Bytes, RpcError> {
        let answer = self.network.transport.call(&self.peer, kind, payload, option.soft_ttl());
        // The transport was told the deadline; this is for one that does not keep it.
        let answer = match tokio::time::timeout(option.hard_ttl(), answer).await {
            Ok(answer) => answer,
            Err(_) => Err(TransportError::Lost("no answer in time".to_owned())),
        };
        self.noted(answer)
    }

    fn noted<T>(&self, answer: Result<T, TransportError>) -> Result<T, RpcError> {
        match &answer {
            Ok(_) => self.network.reach.heard(self.peer.id),
            Err(_) => self.network.reach.failed(self.peer.id),
        }
        answer.map_err(rpc_error)
    }

    async fn pipeline<S>(
        &self,
        input: S,
        option: RPCOption,
    ) -> Result<BoxStream<'_, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        let sent = Arc::new(Outstanding::default());
        let counter = sent.clone();
        let frames = input.flat_map(|request| stream::iter(split(request))).inspect(move |_| counter.sent());
        let opening = self.network.transport.open_append(&self.peer, Box::pin(frames), self.network.stall);
        let opened = match tokio::time::timeout(self.network.stall + option.soft_ttl(), opening).await {
            Ok(opened) => opened,
            Err(_) => Err(TransportError::Unreachable("a stream does not open".to_owned())),
        };
        let replies = match self.noted(opened) {
            Ok(replies) => replies,
            Err(error) => {
                // openraft opens the next stream at once, without its own back-off: a dead peer would cost a core.
                tokio::time::sleep(REOPEN).await;
                return Err(error);
            }
        };
        Ok(Box::pin(stream::unfold(Some(replies), move |replies| {
            let sent = sent.clone();
            async move {
                let mut replies = replies?;
                let reply = loop {
                    match tokio::time::timeout(self.network.stall / 4, replies.next()).await {
                        Ok(reply) => break reply?,
                        Err(_) if sent.oldest().is_some_and(|age| age > self.network.stall) => {
                            break Err(TransportError::Lost("the stream stalls".to_owned()));
                        }
                        Err(_) => {}
                    }
                };
                sent.answered();
                let result =
                    self.noted(reply).and_then(|bytes| wire::read_append_reply(bytes).map_err(undecodable));
                // After anything but an acknowledgement nothing sensible follows.
                let more = matches!(result, Ok(Ok(_))).then_some(replies);
                Some((result, more))
            }
        })))
    }
}

/// Pause before a stream that did not open is tried again: short beside an election, long beside a refused connection.
const REOPEN: Duration = Duration::from_millis(50);

/// Frames without an answer yet, with the time each was sent.
#[derive(Default)]
struct Outstanding(std::sync::Mutex<VecDeque<tokio::time::Instant>>);

impl Outstanding {
    fn with<T>(&self, update: impl FnOnce(&mut VecDeque<tokio::time::Instant>) -> T) -> T {
        update(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn sent(&self) {
        self.with(|queue| queue.push_back(tokio::time::Instant::now()));
    }

    fn answered(&self) {
        self.with(|queue| queue.pop_front());
    }

    fn oldest(&self) -> Option<Duration> {
        self.with(|queue| queue.front().map(tokio::time::Instant::elapsed))
    }
}

/// One request as frames of bearable size. Each is a complete request of its own, answered on its own: openraft takes
/// the answers as progress in steps.
fn split(request: AppendEntriesRequest<TypeConfig>) -> Vec<Bytes> {
    let mut frames = Vec::with_capacity(1);
    let mut previous = request.prev_log_id;
    let mut rest = request.entries.as_slice();
    loop {
        let mut bytes = 0;
        let fits = rest.iter().position(|entry| {
            let before = bytes;
            bytes += size(entry);
            before > 0 && bytes > FRAME_BYTES
        });
        let (now, later) = rest.split_at(fits.unwrap_or(rest.len()));
        frames.push(wire::append(&request.vote, &previous, &request.leader_commit, now));
        if later.is_empty() {
            return frames;
        }
        previous = now.last().map(|entry| entry.log_id);
        rest = later;
    }
}

fn size(entry: &LogEntry) -> usize {
    match &entry.payload {
        openraft::EntryPayload::Normal(data) => data.0.len() + 32,
        _ => 256,
    }
}

impl RaftNetworkV2<TypeConfig> for Link {
    type SnapshotData = SnapshotFile;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RpcError> {
        let payload = wire::append(&rpc.vote, &rpc.prev_log_id, &rpc.leader_commit, &rpc.entries);
        let answer = self.call(FrameKind::Append, payload, &option).await?;
        Ok(match wire::read_append_reply(answer).map_err(undecodable)? {
            Ok(matching) => AppendEntriesResponse::PartialSuccess(matching),
            Err(StreamAppendError::Conflict(_)) => AppendEntriesResponse::Conflict,
            Err(StreamAppendError::HigherVote(vote)) => AppendEntriesResponse::HigherVote(vote),
        })
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, Result<StreamAppendResult<TypeConfig>, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        if self.pipelined {
            Box::pin(self.pipeline(input, option))
        } else {
            stream_append_sequential(self, input, option)
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let answer = self.call(FrameKind::Vote, wire::vote_request(&rpc), &option).await?;
        wire::read_vote_reply(answer).map_err(undecodable)
    }

    /// openraft's default would grant without asking anybody.
    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RpcError> {
        let answer = self.call(FrameKind::PreVote, wire::vote_request(&rpc), &option).await?;
        wire::read_vote_reply(answer).map_err(undecodable)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let link = crate::send::Sending { network: &self.network, peer: &self.peer };
        let answer = tokio::select! {
            answer = link.send(&vote, snapshot.snapshot) => answer,
            closed = cancel => return Err(StreamingError::Closed(closed)),
        };
        let answer = self.noted(answer)?;
        Ok(SnapshotResponse::new(wire::read_snapshot_reply(answer).map_err(undecodable)?))
    }

    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RpcError> {
        let answer = self.call(FrameKind::TransferLeader, wire::transfer(&req), &option).await?;
        wire::read_transfer_reply(answer, &req).map_err(undecodable)
    }
}
