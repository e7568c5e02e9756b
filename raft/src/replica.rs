//! The replica: everything that the rest of clawhive uses of consensus.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::{FrameKind, Outcome, Proposal};
use futures::stream::BoxStream;
use tokio::sync::watch;

use crate::error::{HandleError, MemberError, OpenError, ProposeError, ReadError};
use crate::feed::Feed;
use crate::options::Options;
use crate::seams::Seams;
use crate::status::Status;
use crate::view::View;

/// A proposal's answer: it is committed and applied on the node that answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// Its place in the log.
    pub log_index: u64,
    /// One outcome per command, in order. For a repeated request id, those of the first time.
    pub outcomes: Vec<Outcome>,
}

/// One member of the cluster, running. Cheap to clone; all clones are the same replica.
#[derive(Clone)]
pub struct Replica {
    inner: Arc<Inner>,
}

struct Inner {}

impl Replica {
    /// Starts a replica over `options.dir`, or recovers the one that is there. It belongs to no cluster until
    /// [`Replica::bootstrap`], or until a leader adds it.
    pub async fn open(options: Options, seams: Seams) -> Result<Replica, OpenError> {
        let _ = seams;
        options.check()?;
        Ok(Replica { inner: Arc::new(Inner {}) })
    }

    /// Makes this node a cluster of one, reachable at `peer_addr`. Does nothing when it already belongs to a cluster.
    pub async fn bootstrap(&self, peer_addr: &str) -> Result<(), MemberError> {
        let _ = (peer_addr, &self.inner);
        Err(MemberError::Shutdown)
    }

    /// Proposes on any peer: forwards to the leader, waits through elections until the deadline. Same request id, same
    /// outcomes.
    pub async fn propose(&self, proposal: Proposal, timeout: Duration) -> Result<Committed, ProposeError> {
        let _ = (proposal, timeout);
        Err(ProposeError::NoCluster)
    }

    /// As [`Replica::propose`], but only when this node leads; never forwards. For the leader's loops.
    pub async fn propose_local(
        &self,
        proposal: Proposal,
        timeout: Duration,
    ) -> Result<Committed, ProposeError> {
        let _ = (proposal, timeout);
        Err(ProposeError::NoCluster)
    }

    /// The state as applied here so far, possibly behind the cluster. Never waits.
    pub fn view(&self) -> View {
        unreachable!()
    }

    /// A view that includes every write acknowledged anywhere before this call.
    pub async fn linearizable_view(&self, timeout: Duration) -> Result<View, ReadError> {
        let _ = timeout;
        Err(ReadError::NoCluster)
    }

    /// Waits until this node has applied `index`.
    pub async fn wait_applied(&self, index: u64, timeout: Duration) -> Result<View, ReadError> {
        let _ = (index, timeout);
        Err(ReadError::NoCluster)
    }

    /// Waits until this node has caught up with what the cluster had committed before it was opened.
    pub async fn wait_recovered(&self, timeout: Duration) -> Result<(), ReadError> {
        let _ = timeout;
        Err(ReadError::NoCluster)
    }

    /// A fresh reader of the feed.
    pub fn feed(&self) -> Feed {
        unreachable!()
    }

    /// Where this replica stands, now and on every change.
    pub fn status(&self) -> watch::Receiver<Status> {
        unreachable!()
    }

    /// Adds a member without a vote and waits until it has nearly caught up. Leader only.
    pub async fn add_learner(&self, id: u64, addr: &str, timeout: Duration) -> Result<(), MemberError> {
        let _ = (id, addr, timeout);
        Err(MemberError::Shutdown)
    }

    /// Gives a learner a vote. Leader only.
    pub async fn promote(&self, id: u64, timeout: Duration) -> Result<(), MemberError> {
        let _ = (id, timeout);
        Err(MemberError::Shutdown)
    }

    /// Removes a member, with or without a vote. Leader only; a leader may remove itself.
    pub async fn remove(&self, id: u64, timeout: Duration) -> Result<(), MemberError> {
        let _ = (id, timeout);
        Err(MemberError::Shutdown)
    }

    /// Asks `to` to take over. Leader only; returns when it was asked, not when it leads.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), MemberError> {
        let _ = to;
        Err(MemberError::Shutdown)
    }

    /// Answers a peer's frame: VOTE, PRE_VOTE, APPEND, TRANSFER_LEADER, PROPOSE, READ_INDEX.
    pub async fn handle_call(&self, kind: FrameKind, payload: Bytes) -> Result<Bytes, HandleError> {
        let _ = payload;
        Err(HandleError::Kind(kind.into()))
    }

    /// Answers a peer's stream of log entries: one reply for each frame, in order.
    pub fn handle_append(
        &self,
        frames: BoxStream<'static, Bytes>,
    ) -> BoxStream<'static, Result<Bytes, HandleError>> {
        drop(frames);
        Box::pin(futures::stream::empty())
    }

    /// Takes a peer's snapshot and answers once it is installed. An error item, or an end before the whole, installs
    /// nothing.
    pub async fn handle_snapshot(
        &self,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, HandleError> {
        drop(chunks);
        Err(HandleError::Shutdown)
    }

    /// Stops: no more elections, no more answers; what is applied is made durable first.
    pub async fn shutdown(&self) {}
}
