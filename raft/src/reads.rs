//! Linearizable reads: a read index from the leader, then waiting until it is applied here.
//!
//! Reads that queue together share one round. A round counts only for reads that had arrived before it began.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::prost::Message;
use clawhive_proto::{FrameKind, NotLeader, PeerError, ReadIndexReply, read_index_reply};
use openraft::ReadPolicy;
use openraft::errors::{LinearizableReadError, RaftError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::error::ReadError;
use crate::fresh::Confirmations;
use crate::propose::{Hopeless, PAUSE, deadline_after, leader_change};
use crate::reach::Reach;
use crate::replica::Core;
use crate::status::Status;
use crate::status_task::{PROBE, Raft};
use crate::transport::{Transport, TransportError};
use crate::view::View;

/// Reads that wait for a round, at most; more make readers wait.
pub(crate) const QUEUE: usize = 16_384;

/// When nobody reads, a round is made so often all the same: so that a stale read can say how old it is.
const IDLE: Duration = Duration::from_secs(1);

/// Why a round gave no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoIndex {
    NotLeader,
    NoQuorum,
    Stopped,
}

/// Who waits for a round.
pub(crate) type Waiting = oneshot::Sender<Result<u64, NoIndex>>;

/// What rounds are made with.
pub(crate) struct Rounds {
    pub(crate) node_id: u64,
    pub(crate) raft: Raft,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) reach: Arc<Reach>,
    /// Longer than this no round takes; then the leader is somebody else, or nobody.
    pub(crate) timeout: Duration,
    /// Where each index is noted.
    pub(crate) confirmed: Arc<Confirmations>,
}

impl Rounds {
    /// One round after the other, until nobody can read any more.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Waiting>) {
        let mut waiting: Vec<Waiting> = Vec::new();
        loop {
            let arrived = tokio::select! {
                biased;
                arrived = queue.recv_many(&mut waiting, QUEUE) => arrived,
                // Given up as soon as somebody reads.
                () = self.idle() => continue,
            };
            if arrived == 0 {
                return;
            }
            waiting.retain(|reader| !reader.is_closed());
            if waiting.is_empty() {
                continue;
            }
            let index = self.round().await;
            for reader in waiting.drain(..) {
                let _gone = reader.send(index);
            }
        }
    }

    async fn idle(&mut self) {
        tokio::time::sleep(IDLE).await;
        // Without an index the state only grows older.
        let _none = self.round().await;
    }

    async fn round(&mut self) -> Result<u64, NoIndex> {
        let asked = Instant::now();
        let index = self.ask().await?;
        self.confirmed.note(asked, index, self.status.borrow().applied);
        Ok(index)
    }

    async fn ask(&mut self) -> Result<u64, NoIndex> {
        let leader = self.status.borrow_and_update().leader;
        let mut status = self.status.clone();
        let index = async {
            match leader {
                Some(leader) if leader == self.node_id => self.here().await,
                Some(leader) => self.there(leader).await,
                None => Err(NoIndex::NotLeader),
            }
        };
        tokio::select! {
            index = index => index,
            () = leader_change(&mut status, leader) => Err(NoIndex::NotLeader),
        }
    }

    async fn here(&self) -> Result<u64, NoIndex> {
        match self.raft.get_read_log_id(ReadPolicy::ReadIndex).await {
            Ok((id, _applied)) => Ok(id.index()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(_))) => Err(NoIndex::NotLeader),
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(NoIndex::NoQuorum),
            Err(RaftError::Fatal(_)) => Err(NoIndex::Stopped),
        }
    }

    async fn there(&self, leader: u64) -> Result<u64, NoIndex> {
        let Some(peer) = self.status.borrow().members.iter().find(|peer| peer.id == leader).cloned() else {
            return Err(NoIndex::NotLeader);
        };
        match self.transport.call(&peer, FrameKind::ReadIndex, Bytes::new(), self.timeout).await {
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
}

impl Core {
    /// A view that includes every write acknowledged anywhere before the call.
    pub(crate) async fn linearizable_view(&self, timeout: Duration) -> Result<View, ReadError> {
        let start = Instant::now();
        let deadline = deadline_after(start, timeout);
        tokio::select! {
            index = self.read_index() => self.applied_view(index?, start, deadline).await,
            hopeless = self.hopeless(start, deadline) => Err(read_error(hopeless)),
        }
    }

    /// Joins rounds until one gives an index.
    async fn read_index(&self) -> Result<u64, ReadError> {
        let mut status = self.status.clone();
        loop {
            status.mark_unchanged();
            match self.join_round().await {
                Ok(index) => return Ok(index),
                Err(NoIndex::Stopped) => return Err(ReadError::Shutdown),
                Err(NoIndex::NotLeader | NoIndex::NoQuorum) => {}
            }
            tokio::select! {
                _ = status.changed() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    async fn join_round(&self) -> Result<u64, NoIndex> {
        let (answer, index) = oneshot::channel();
        if self.reads.send(answer).await.is_err() {
            return Err(NoIndex::Stopped);
        }
        index.await.unwrap_or(Err(NoIndex::Stopped))
    }

    /// A peer asks for a read index, or only whether we are there.
    pub(crate) async fn answer_read_index(&self, payload: &[u8]) -> Bytes {
        let leader = self.status.borrow().leader;
        let index = if payload == PROBE || leader != Some(self.node_id) {
            Err(NoIndex::NotLeader)
        } else {
            self.join_round().await
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
        self.applied_view(index, start, deadline_after(start, timeout)).await
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
