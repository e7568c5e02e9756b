//! Linearizable reads: a read index from the leader, then waiting until it is applied here.
//!
//! Reads that queue together share one round. A round counts only for reads that had arrived before it began.

use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::prost::Message;
use clawhive_proto::{FrameKind, NotLeader, PeerError, ReadIndexReply, read_index_reply};
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::ReadError;
use crate::propose::{Hopeless, PAUSE, leader_change};
use crate::replica::Core;
use crate::status_task::{PROBE, Raft};
use crate::transport::TransportError;
use crate::view::View;

/// Reads that wait for a round, at most; more make readers wait.
pub(crate) const QUEUE: usize = 16_384;

/// Why a round gave no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoIndex {
    NotLeader,
    NoQuorum,
    Stopped,
}

/// Who waits for a round on the leader.
pub(crate) type Waiting = oneshot::Sender<Result<u64, NoIndex>>;

/// Runs the leader's rounds until nobody can read any more.
pub(crate) async fn run(raft: Raft, mut queue: mpsc::Receiver<Waiting>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, QUEUE).await > 0 {
        let index = match raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((id, _applied)) => Ok(id.index()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => Err(NoIndex::NotLeader),
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(NoIndex::NoQuorum),
            Err(RaftError::Fatal(_)) => Err(NoIndex::Stopped),
        };
        for reader in waiting.drain(..) {
            let _gone = reader.send(index);
        }
    }
}

impl Core {
    /// A view that includes every write acknowledged anywhere before the call.
    pub(crate) async fn linearizable_view(&self, timeout: Duration) -> Result<View, ReadError> {
        let start = Instant::now();
        let deadline = start + timeout;
        tokio::select! {
            index = self.read_index(deadline) => self.applied_view(index?, start, deadline).await,
            hopeless = self.hopeless(start, deadline) => Err(read_error(hopeless)),
        }
    }

    /// Asks whoever leads, until somebody answers.
    async fn read_index(&self, deadline: Instant) -> Result<u64, ReadError> {
        let mut status = self.status.clone();
        loop {
            let leader = status.borrow_and_update().leader;
            let round = async {
                match leader {
                    Some(leader) if leader == self.node_id => self.local_read_index().await,
                    Some(leader) => self.remote_read_index(leader, deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                index = round => match index {
                    Ok(index) => return Ok(index),
                    Err(NoIndex::Stopped) => return Err(ReadError::Shutdown),
                    Err(NoIndex::NotLeader | NoIndex::NoQuorum) => {}
                },
                () = leader_change(&mut status, leader) => {}
            }
            tokio::select! {
                _ = status.changed() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    async fn local_read_index(&self) -> Result<u64, NoIndex> {
        let (answer, index) = oneshot::channel();
        if self.reads.send(answer).await.is_err() {
            return Err(NoIndex::Stopped);
        }
        index.await.unwrap_or(Err(NoIndex::Stopped))
    }

    async fn remote_read_index(&self, leader: u64, deadline: Instant) -> Result<u64, NoIndex> {
        let Some(peer) = self.status.borrow().members.iter().find(|peer| peer.id == leader).cloned() else {
            return Err(NoIndex::NotLeader);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        match self.transport.call(&peer, FrameKind::ReadIndex, Bytes::new(), left).await {
            Err(TransportError::Refused(_)) => Err(NoIndex::NotLeader),
            Err(_) => {
                self.reach.failed(leader);
                Err(NoIndex::NotLeader)
            }
            Ok(answer) => {
                self.reach.heard(leader);
                match ReadIndexReply::decode(answer).ok().and_then(|reply| reply.result) {
                    Some(read_index_reply::Result::Index(index)) => Ok(index),
                    _ => Err(NoIndex::NotLeader),
                }
            }
        }
    }

    /// A peer asks for a read index, or only whether we are there.
    pub(crate) async fn answer_read_index(&self, payload: &[u8]) -> Bytes {
        let leader = self.status.borrow().leader;
        let index = if payload == PROBE || leader != Some(self.node_id) {
            Err(NoIndex::NotLeader)
        } else {
            self.local_read_index().await
        };
        let error = |message: &str| {
            read_index_reply::Result::Error(PeerError {
                message: message.to_owned(),
                may_have_been_applied: false,
            })
        };
        let result = match index {
            Ok(index) => read_index_reply::Result::Index(index),
            Err(NoIndex::NotLeader) => {
                read_index_reply::Result::NotLeader(NotLeader { leader: leader.unwrap_or(0) })
            }
            Err(NoIndex::NoQuorum) => error("no quorum"),
            Err(NoIndex::Stopped) => error("shutting down"),
        };
        ReadIndexReply { result: Some(result) }.encode_to_vec().into()
    }

    /// A view of at least `index`.
    pub(crate) async fn wait_applied(&self, index: u64, timeout: Duration) -> Result<View, ReadError> {
        let start = Instant::now();
        self.applied_view(index, start, start + timeout).await
    }

    async fn applied_view(&self, index: u64, start: Instant, deadline: Instant) -> Result<View, ReadError> {
        let view = self.state.view();
        if view.applied_index() >= index {
            return Ok(view);
        }
        let mut feed = self.state.subscribe();
        tokio::select! {
            reached = feed.wait_for(index) => match reached {
                Ok(()) => Ok(self.state.view()),
                Err(_) => Err(ReadError::Shutdown),
            },
            hopeless = self.hopeless(start, deadline) => Err(read_error(hopeless)),
        }
    }
}

fn read_error(hopeless: Hopeless) -> ReadError {
    match hopeless {
        Hopeless::NoCluster => ReadError::NoCluster,
        Hopeless::NoQuorum { reachable, voters } => ReadError::NoQuorum { reachable, voters },
        Hopeless::Timeout => ReadError::Timeout,
    }
}
