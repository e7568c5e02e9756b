//! Answers to peers.

use bytes::Bytes;
use clawhive_proto::FrameKind;
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::codec::DecodeError;
use crate::error::HandleError;
use crate::replica::Core;
use crate::wire;

pub(crate) fn malformed(error: DecodeError) -> HandleError {
    HandleError::Malformed(error.to_string())
}

pub(crate) fn stopped<E>(_: E) -> HandleError {
    HandleError::Shutdown
}

impl Core {
    pub(crate) async fn handle_call(&self, kind: FrameKind, payload: Bytes) -> Result<Bytes, HandleError> {
        match kind {
            FrameKind::Vote => {
                let request = wire::read_vote_request(payload).map_err(malformed)?;
                self.reach.heard(request.vote.leader_id.node_id);
                Ok(wire::vote_reply(&self.raft.vote(request).await.map_err(stopped)?))
            }
            FrameKind::PreVote => {
                let request = wire::read_vote_request(payload).map_err(malformed)?;
                self.reach.heard(request.vote.leader_id.node_id);
                Ok(wire::vote_reply(&self.raft.pre_vote(request).await.map_err(stopped)?))
            }
            FrameKind::Append => {
                let request = wire::read_append(payload).map_err(malformed)?;
                self.reach.heard(request.vote.leader_id.node_id);
                let previous = request.prev_log_id;
                let last = request.entries.last().map(|entry| entry.log_id).or(previous);
                let reply = self.raft.append_entries(request).await.map_err(stopped)?;
                Ok(wire::append_reply(&reply.into_stream_result(previous, last)))
            }
            FrameKind::TransferLeader => {
                let request = wire::read_transfer(payload).map_err(malformed)?;
                let reply = self.raft.handle_transfer_leader(request).await.map_err(stopped)?;
                Ok(wire::transfer_reply(&reply))
            }
            FrameKind::Propose => self.answer_propose(payload).await.map_err(malformed),
            FrameKind::SnapshotOffer => self.answer_offer(payload).await,
            FrameKind::ReadIndex => Ok(self.answer_read_index(&payload).await),
            other => Err(HandleError::Kind(other.into())),
        }
    }

    pub(crate) fn handle_append(
        &self,
        frames: BoxStream<'static, Bytes>,
    ) -> BoxStream<'static, Result<Bytes, HandleError>> {
        // What openraft spawns for the stream belongs to Raft's runtime, whoever calls.
        let _on_rafts = self.runtime.enter();
        let reach = self.reach.clone();
        // A frame that can't be read ends the stream: what is behind it would not fit.
        let requests = frames.map(wire::read_append).take_while(|request| {
            let good = match request {
                Ok(_) => true,
                Err(error) => {
                    tracing::warn!(%error, "a peer sent a malformed frame of entries");
                    false
                }
            };
            std::future::ready(good)
        });
        let requests =
            requests.filter_map(|request| std::future::ready(request.ok())).inspect(move |request| {
                reach.heard(request.vote.leader_id.node_id);
            });
        let replies = self.raft.stream_append(requests);
        Box::pin(replies.map(|reply| match reply {
            Ok(result) => Ok(wire::append_reply(&result)),
            Err(_) => Err(HandleError::Shutdown),
        }))
    }
}
