//! The network seam: what the raft crate needs of a network, in opaque bytes.
//!
//! The node crate implements [`Transport`] over its peer port, tests over channels, the simulator over virtual links.
//! An implementation carries bytes and says honestly whether it reached the peer; it interprets nothing.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clawhive_proto::FrameKind;
use futures::stream::BoxStream;

/// A member of the cluster and where it listens for its peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Node id.
    pub id: u64,
    /// Peer address, `host:port`.
    pub addr: String,
}

/// Why bytes did not get there, or no answer came back.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TransportError {
    /// No connection: the request certainly was not processed. Callers back off.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The connection broke or no answer came in time: the request may have been processed.
    #[error("no answer: {0}")]
    Lost(String),
    /// The peer answered that it does not take this: another cluster, another node, or an error of its own.
    #[error("refused: {0}")]
    Refused(String),
    /// The peer answered that this node was removed from the cluster.
    #[error("{0}")]
    Removed(String),
}

/// The network as seen from one node. Every method is cheap to call concurrently.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// One question, one answer. Must return within about `timeout`.
    async fn call(
        &self,
        to: &Peer,
        kind: FrameKind,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, TransportError>;

    /// A pipelined stream of log entries: one reply for each frame, in order. The far side hands the frames to
    /// [`Replica::handle_append`](crate::Replica::handle_append). Ends when `frames` ends, or with an error. Must not
    /// wait for the first frame before it returns. `timeout` bounds only the opening.
    async fn open_append(
        &self,
        to: &Peer,
        frames: BoxStream<'static, Bytes>,
        timeout: Duration,
    ) -> Result<BoxStream<'static, Result<Bytes, TransportError>>, TransportError>;

    /// A snapshot in chunks, one answer at the end. The far side hands the chunks to
    /// [`Replica::handle_snapshot`](crate::Replica::handle_snapshot). An error item in `chunks` must break the transfer
    /// so that the far side sees an error too, never a clean end.
    async fn send_snapshot(
        &self,
        to: &Peer,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, TransportError>;
}
