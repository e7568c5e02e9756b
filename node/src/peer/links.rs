//! The sending side: connections to peers, and the raft crate's network seam over them.

use std::collections::{BTreeMap, HashMap};
use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clawhive_proto::peer_client::PeerClient;
use clawhive_proto::prost::Message;
use clawhive_proto::{AttemptLogRequest, FetchQuery, Frame, FrameKind, LogChunk, PeerStatus, SnapshotChunk};
use clawhive_raft::{Peer, Transport, TransportError};
use futures::stream::{BoxStream, StreamExt};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Status, Streaming};

use super::{Identity, MAX_FRAME_BYTES};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Bulk data never queues in front of heartbeats: it has a connection of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    Control,
    Bulk,
}

/// Connections from one node to its peers; cheap to clone.
#[derive(Clone)]
pub struct Links {
    me: Identity,
    channels: Arc<Mutex<Channels>>,
    /// Where nodes say that they are now. Raft learns of a moved node only through that node.
    moved: Arc<RwLock<BTreeMap<u64, String>>>,
}

type Channels = HashMap<(String, Lane), PeerClient<Channel>>;

impl Links {
    /// No connection yet: each is made when it is first needed, and again when it broke.
    pub fn new(me: Identity) -> Links {
        Links { me, channels: Arc::default(), moved: Arc::default() }
    }

    /// From now on a node is looked for where it says it is, whatever address a call names. A frame that reaches
    /// somebody else all the same is refused there.
    pub fn learn(&self, addresses: BTreeMap<u64, String>) {
        *self.moved.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    fn client(&self, to: &Peer, lane: Lane) -> Result<PeerClient<Channel>, TransportError> {
        let moved = self.moved.read().unwrap_or_else(PoisonError::into_inner).get(&to.id).cloned();
        let addr = moved.as_ref().unwrap_or(&to.addr);
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = channels.get(&(addr.clone(), lane)) {
            return Ok(client.clone());
        }
        let client = client(addr).map_err(TransportError::Unreachable)?;
        channels.insert((addr.clone(), lane), client.clone());
        Ok(client)
    }

    /// What a peer says of itself.
    pub async fn status(&self, to: &Peer, timeout: Duration) -> Result<PeerStatus, TransportError> {
        let answer = self.call(to, FrameKind::Status, Bytes::new(), timeout).await?;
        PeerStatus::decode(answer).map_err(|error| TransportError::Refused(error.to_string()))
    }

    /// A snapshot made by a peer for this node, that covers an entry.
    pub async fn fetch(
        &self,
        to: &Peer,
        at_least: u64,
    ) -> Result<BoxStream<'static, Result<SnapshotChunk, TransportError>>, TransportError> {
        let query = FetchQuery { at_least }.encode_to_vec().into();
        let mut client = self.client(to, Lane::Bulk)?;
        let opened = client.fetch(self.me.frame(to.id, FrameKind::Fetch, query)).await;
        let frames = opened.map_err(failure)?.into_inner();
        let chunk = |payload| {
            SnapshotChunk::decode(payload).map_err(|error| TransportError::Refused(error.to_string()))
        };
        Ok(frames.map(move |frame| payload(frame).and_then(chunk)).boxed())
    }

    /// The log of an attempt that ran on a peer.
    pub async fn read_attempt_log(
        &self,
        to: &Peer,
        mut request: AttemptLogRequest,
    ) -> Result<Streaming<LogChunk>, TransportError> {
        request.cluster_id = self.me.cluster_id.to_vec();
        let mut client = self.client(to, Lane::Bulk)?;
        let opened = tokio::time::timeout(CONNECT_TIMEOUT * 2, client.read_attempt_log(request)).await;
        let opened = opened.map_err(|_| TransportError::Lost("no answer in time".to_owned()))?;
        Ok(opened.map_err(failure)?.into_inner())
    }
}

/// A connection that is made when it is first used.
pub(super) fn client(addr: &str) -> Result<PeerClient<Channel>, String> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}"))
        .map_err(|error| format!("`{addr}` is not an address: {error}"))?
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20);
    Ok(PeerClient::new(endpoint.connect_lazy())
        .max_decoding_message_size(MAX_FRAME_BYTES)
        .max_encoding_message_size(MAX_FRAME_BYTES))
}

/// What a failed call means: was the peer not there, did it refuse, or is nothing known?
pub(super) fn failure(status: Status) -> TransportError {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return TransportError::Unreachable(error.to_string());
        }
        source = error.source();
    }
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument | Code::Internal | Code::Unimplemented => {
            TransportError::Refused(status.message().to_owned())
        }
        _ => TransportError::Lost(status.message().to_owned()),
    }
}

#[async_trait]
impl Transport for Links {
    async fn call(
        &self,
        to: &Peer,
        kind: FrameKind,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, TransportError> {
        let mut client = self.client(to, Lane::Control)?;
        let call = client.call(self.me.frame(to.id, kind, payload));
        let answer = tokio::time::timeout(timeout, call).await;
        let answer = answer.map_err(|_| TransportError::Lost("no answer in time".to_owned()))?;
        Ok(answer.map_err(failure)?.into_inner().payload)
    }

    async fn open_append(
        &self,
        to: &Peer,
        frames: BoxStream<'static, Bytes>,
        timeout: Duration,
    ) -> Result<BoxStream<'static, Result<Bytes, TransportError>>, TransportError> {
        let mut client = self.client(to, Lane::Control)?;
        let opening = client.append(framed(self.me, to.id, frames));
        let opened = tokio::time::timeout(timeout, opening).await;
        let opened = opened.map_err(|_| TransportError::Lost("no answer in time".to_owned()))?;
        Ok(opened.map_err(failure)?.into_inner().map(payload).boxed())
    }

    async fn send_snapshot(
        &self,
        to: &Peer,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, TransportError> {
        let mut client = self.client(to, Lane::Bulk)?;
        let (broken, is_broken) = oneshot::channel();
        let frames = until_broken(self.me, to.id, chunks, broken);
        tokio::select! {
            answer = client.snapshot(frames) => Ok(answer.map_err(failure)?.into_inner().payload),
            // Dropping the call resets the stream: the far side sees an error, not an end.
            Ok(error) = is_broken => Err(TransportError::Lost(format!("the snapshot broke off: {error}"))),
        }
    }
}

fn payload(answer: Result<Frame, Status>) -> Result<Bytes, TransportError> {
    answer.map(|frame| frame.payload).map_err(failure)
}

/// The payloads as frames.
fn framed(
    me: Identity,
    to: u64,
    payloads: BoxStream<'static, Bytes>,
) -> impl futures::Stream<Item = Frame> + Send + 'static {
    payloads.map(move |payload| me.frame(to, FrameKind::Append, payload))
}

/// The chunks as frames. An error is told through `broken`; the stream then neither goes on nor ends.
fn until_broken(
    me: Identity,
    to: u64,
    chunks: BoxStream<'static, io::Result<Bytes>>,
    broken: oneshot::Sender<io::Error>,
) -> impl futures::Stream<Item = Frame> + Send + 'static {
    futures::stream::unfold((chunks, Some(broken)), move |(mut chunks, mut broken)| async move {
        match chunks.next().await? {
            Ok(payload) => Some((me.frame(to, FrameKind::Snapshot, payload), (chunks, broken))),
            Err(error) => {
                if let Some(broken) = broken.take() {
                    // Nobody listens any more only when the call has ended already.
                    let _ = broken.send(error);
                }
                futures::future::pending().await
            }
        }
    })
}
