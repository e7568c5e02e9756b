//! The sending side: connections to peers, and the raft crate's network seam over them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use clawhive_proto::peer_client::PeerClient;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    AttemptLogRequest, FetchQuery, Frame, FrameKind, Hello, LogChunk, NodeAddress, PeerStatus, SnapshotChunk,
};
use clawhive_raft::{Peer, Transport, TransportError};
use futures::stream::{BoxStream, StreamExt};
use tokio::sync::{oneshot, watch};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Status, Streaming};

use super::places::Places;
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
    places: Arc<RwLock<Places>>,
    /// What a peer said that told this node that it was removed.
    farewell: Arc<watch::Sender<Option<String>>>,
}

type Channels = HashMap<(String, Lane), PeerClient<Channel>>;

impl Links {
    /// No connection yet: each is made when it is first needed, and again when it broke.
    pub fn new(me: Identity) -> Links {
        let farewell = Arc::new(watch::Sender::new(None));
        Links { me, channels: Arc::default(), places: Arc::default(), farewell }
    }

    fn places(&self) -> RwLockReadGuard<'_, Places> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a node is looked for where the table of nodes says it is, whatever address a call names. A frame that
    /// reaches somebody else all the same is refused there.
    pub fn learn(&self, table: BTreeMap<u64, String>, removed: BTreeSet<u64>) {
        self.places.write().unwrap_or_else(PoisonError::into_inner).learn(table, removed);
    }

    /// A node answered at this address, or said that it is there: until the table knows, it is looked for there.
    pub fn found(&self, node: u64, addr: &str) {
        self.places.write().unwrap_or_else(PoisonError::into_inner).find(node, addr);
    }

    /// Where somebody of this cluster may be, besides what is in the table.
    pub(crate) fn rumours(&self) -> BTreeSet<String> {
        self.places().rumours().clone()
    }

    /// The table of nodes says that the node was removed.
    pub(crate) fn is_removed(&self, node: u64) -> bool {
        self.places().is_removed(node)
    }

    /// What told this node that it was removed.
    pub(crate) fn farewell(&self) -> watch::Receiver<Option<String>> {
        self.farewell.subscribe()
    }

    /// All nodes whose addresses are known, for a hello.
    pub(crate) fn known(&self) -> Vec<NodeAddress> {
        let known = self.places().known();
        known.into_iter().map(|(node, peer_listen)| NodeAddress { node, peer_listen }).collect()
    }

    /// Takes in what a node of this cluster says of itself and of others. What it says of others is only a rumour: who
    /// is there is known when somebody answers there.
    pub(crate) fn hear(&self, from: u64, hello: &Hello) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        for node in &hello.nodes {
            match node.node {
                own if own == self.me.node => {}
                speaker if speaker == from => places.find(speaker, &node.peer_listen),
                _ => places.rumour(&node.peer_listen),
            }
        }
    }

    /// Says hello to whoever of this cluster listens at an address, and notes who that is.
    pub(crate) async fn hello(
        &self,
        addr: &str,
        own_addr: &str,
        timeout: Duration,
    ) -> Result<u64, TransportError> {
        let mut nodes = vec![NodeAddress { node: self.me.node, peer_listen: own_addr.to_owned() }];
        nodes.extend(self.known().into_iter().filter(|known| known.node != self.me.node));
        let payload = Hello { nodes }.encode_to_vec().into();
        let mut client = self.client_at(addr, Lane::Control)?;
        let call = client.call(self.me.frame(0, FrameKind::Hello, payload));
        let answer = tokio::time::timeout(timeout, call).await;
        let answer = answer.map_err(|_| TransportError::Lost("no answer in time".to_owned()))?;
        let answer = answer.map_err(|status| self.failed(status))?.into_inner();
        let hello =
            Hello::decode(answer.payload).map_err(|error| TransportError::Refused(error.to_string()))?;
        self.hear(answer.from, &hello);
        self.found(answer.from, addr);
        Ok(answer.from)
    }

    /// What a failed call means; a farewell is remembered.
    fn failed(&self, status: Status) -> TransportError {
        failed(&self.farewell, status)
    }

    fn client(&self, to: &Peer, lane: Lane) -> Result<PeerClient<Channel>, TransportError> {
        let moved = self.places().of(to.id).cloned();
        self.client_at(moved.as_ref().unwrap_or(&to.addr), lane)
    }

    fn client_at(&self, addr: &str, lane: Lane) -> Result<PeerClient<Channel>, TransportError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = channels.get(&(addr.to_owned(), lane)) {
            return Ok(client.clone());
        }
        let client = client(addr).map_err(TransportError::Unreachable)?;
        channels.insert((addr.to_owned(), lane), client.clone());
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

/// As [`failure`]; the farewell to a node that was removed is remembered.
fn failed(farewell: &watch::Sender<Option<String>>, status: Status) -> TransportError {
    let error = failure(status);
    if let TransportError::Removed(text) = &error {
        farewell.send_if_modified(|told| match told {
            Some(_) => false,
            None => {
                *told = Some(text.clone());
                true
            }
        });
    }
    error
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
        Code::PermissionDenied => TransportError::Removed(status.message().to_owned()),
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
        Ok(answer.map_err(|status| self.failed(status))?.into_inner().payload)
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
