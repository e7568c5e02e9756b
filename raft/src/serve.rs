//! Answers to peers.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clawhive_proto::FrameKind;
use clawhive_proto::prost::Message;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use openraft::Snapshot;

use crate::codec::{self, DecodeError};
use crate::error::HandleError;
use crate::machine;
use crate::replica::Core;
use crate::snapshot::{Reader, SnapshotError};
use crate::statefile::remove_if_there;
use crate::types::{SnapshotMeta, Vote};
use crate::wire::{self, WireSnapshotStart};

/// Names for snapshots that come in.
static INCOMING: AtomicU64 = AtomicU64::new(0);

fn malformed(error: DecodeError) -> HandleError {
    HandleError::Malformed(error.to_string())
}

fn stopped<E>(_: E) -> HandleError {
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

    pub(crate) async fn handle_snapshot(
        &self,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, HandleError> {
        let path = self.shelf.scratch(&format!("incoming-{}.snap", INCOMING.fetch_add(1, Ordering::Relaxed)));
        let taken = self.take_snapshot(chunks, path.clone()).await;
        let answer = match taken {
            Ok((vote, meta)) => self.install(vote, meta, path.clone()).await,
            Err(error) => Err(error),
        };
        // Once installed it has another name.
        let _cleaned_at_next_start = remove_if_there(&path);
        answer
    }

    async fn install(&self, vote: Vote, meta: SnapshotMeta, path: PathBuf) -> Result<Bytes, HandleError> {
        let snapshot = machine::received(path).map_err(|error| HandleError::Snapshot(error.to_string()))?;
        let reply =
            self.raft.install_full_snapshot(vote, Snapshot { meta, snapshot }).await.map_err(stopped)?;
        Ok(wire::snapshot_reply(&reply.vote))
    }

    /// Writes the chunks to `path` and checks the whole.
    async fn take_snapshot(
        &self,
        mut chunks: BoxStream<'static, io::Result<Bytes>>,
        path: PathBuf,
    ) -> Result<(Vote, SnapshotMeta), HandleError> {
        let refused = |error: &dyn std::fmt::Display| HandleError::Snapshot(error.to_string());
        let first = match chunks.next().await {
            Some(Ok(first)) => first,
            Some(Err(error)) => return Err(refused(&error)),
            None => return Err(HandleError::Malformed("an empty snapshot".to_owned())),
        };
        let start = WireSnapshotStart::decode(first).map_err(|error| malformed(error.into()))?;
        let vote: Vote = start.vote.ok_or_else(|| malformed(codec::missing("vote")))?.into();
        self.reach.heard(vote.leader_id.node_id);
        let mut file = std::fs::File::create(&path).map_err(|error| refused(&error))?;
        let mut left = start.bytes;
        let mut chunks = chunks.chain(stream::empty());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| refused(&error))?;
            left = left
                .checked_sub(chunk.len() as u64)
                .ok_or_else(|| refused(&"it is longer than announced"))?;
            self.reach.heard(vote.leader_id.node_id);
            file = blocking(move || file.write_all(&chunk).map(|()| file)).await?;
        }
        if left > 0 {
            return Err(refused(&"it ends early"));
        }
        let cluster_id = *self.shelf.cluster_id();
        let meta = blocking(move || {
            file.sync_all()?;
            let checked = std::fs::File::open(&path)
                .map_err(SnapshotError::from)
                .and_then(|file| Reader::open(file, &cluster_id)?.verify());
            checked.map_err(io::Error::other)
        })
        .await?;
        Ok((vote, meta))
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, HandleError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(stopped)?;
    done.map_err(|error| HandleError::Snapshot(error.to_string()))
}
