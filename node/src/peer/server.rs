//! The receiving side: checks each frame, and gives it to whom it concerns.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use clawhive_proto::peer_server::{Peer, PeerServer};
use clawhive_proto::prost::Message;
use clawhive_proto::{
    AddNode, AttemptLogRequest, ClawBeat, ClawBeatReply, DigestQuery, DigestReply, FetchQuery, Frame,
    FrameKind, JoinReply, LogChunk, PeerStatus, SnapshotChunk,
};
use clawhive_raft::{HandleError, Replica};
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use super::{Identity, MAX_FRAME_BYTES};

/// What the node answers itself, beside Raft.
#[async_trait]
pub trait Desk: Send + Sync + 'static {
    /// A claw's beat.
    async fn beat(&self, beat: ClawBeat) -> ClawBeatReply;
    /// A request for admission.
    async fn admit(&self, request: AddNode) -> JoinReply;
    /// This node, as it is now.
    fn status(&self) -> PeerStatus;
    /// The digest of the state here.
    async fn digest(&self, query: DigestQuery) -> DigestReply;
    /// A snapshot made for a peer.
    fn snapshot(&self, query: FetchQuery) -> BoxStream<'static, Result<SnapshotChunk, Status>>;
    /// The log of an attempt that ran here.
    fn attempt_log(&self, request: AttemptLogRequest) -> BoxStream<'static, Result<LogChunk, Status>>;
}

/// The service behind the peer port.
pub struct PeerService {
    me: Identity,
    replica: Replica,
    desk: Arc<dyn Desk>,
}

impl PeerService {
    /// The service, ready to be added to a server.
    pub fn server(me: Identity, replica: Replica, desk: Arc<dyn Desk>) -> PeerServer<PeerService> {
        PeerServer::new(PeerService { me, replica, desk })
            .max_decoding_message_size(MAX_FRAME_BYTES)
            .max_encoding_message_size(MAX_FRAME_BYTES)
    }

    async fn answer(&self, kind: FrameKind, payload: Bytes) -> Result<Bytes, Status> {
        match kind {
            FrameKind::ClawBeat => Ok(encode(&self.desk.beat(decode::<ClawBeat>(payload)?).await)),
            FrameKind::Join => Ok(encode(&self.desk.admit(decode::<AddNode>(payload)?).await)),
            FrameKind::Status => Ok(encode(&self.desk.status())),
            FrameKind::Digest => Ok(encode(&self.desk.digest(decode::<DigestQuery>(payload)?).await)),
            _ => self.replica.handle_call(kind, payload).await.map_err(|error| refusal(&error)),
        }
    }
}

fn decode<M: Message + Default>(payload: Bytes) -> Result<M, Status> {
    M::decode(payload).map_err(|error| Status::invalid_argument(format!("malformed frame: {error}")))
}

fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

fn refusal(error: &HandleError) -> Status {
    match error {
        HandleError::Malformed(_) | HandleError::Kind(_) | HandleError::Snapshot(_) => {
            Status::invalid_argument(error.to_string())
        }
        HandleError::Shutdown => Status::unavailable(error.to_string()),
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send + 'static>>;

#[async_trait]
impl Peer for PeerService {
    async fn call(&self, request: Request<Frame>) -> Result<Response<Frame>, Status> {
        let frame = request.into_inner();
        self.me.check(&frame)?;
        let (from, kind) = (frame.from, frame.kind());
        let payload = self.answer(kind, frame.payload).await?;
        Ok(Response::new(self.me.frame(from, kind, payload)))
    }

    type AppendStream = Answers<Frame>;

    async fn append(&self, request: Request<Streaming<Frame>>) -> Result<Response<Answers<Frame>>, Status> {
        let me = self.me;
        // The first bad frame ends the stream: with its reason, after the answers to those before it.
        let (tell, told) = tokio::sync::oneshot::channel();
        let frames = checked(me, request.into_inner(), FrameKind::Append);
        let payloads = futures::stream::unfold((frames, Some(tell)), |(mut frames, mut tell)| async move {
            match frames.next().await? {
                Ok(payload) => Some((payload, (frames, tell))),
                Err(status) => {
                    if let Some(tell) = tell.take() {
                        // Nobody listens any more only when the peer is gone.
                        let _ = tell.send(status);
                    }
                    None
                }
            }
        });
        let answers = self.replica.handle_append(payloads.boxed()).map(move |answer| match answer {
            Ok(payload) => Ok(me.frame(0, FrameKind::Append, payload)),
            Err(error) => Err(refusal(&error)),
        });
        let last = futures::stream::once(told).filter_map(|told| async move { told.ok().map(Err) });
        Ok(Response::new(answers.chain(last).boxed()))
    }

    async fn snapshot(&self, request: Request<Streaming<Frame>>) -> Result<Response<Frame>, Status> {
        let chunks = checked(self.me, request.into_inner(), FrameKind::Snapshot)
            .map(|chunk| chunk.map_err(|status| io::Error::other(status.message().to_owned())));
        let answer = self.replica.handle_snapshot(chunks.boxed()).await.map_err(|error| refusal(&error))?;
        Ok(Response::new(self.me.frame(0, FrameKind::Snapshot, answer)))
    }

    type FetchStream = Answers<Frame>;

    async fn fetch(&self, request: Request<Frame>) -> Result<Response<Answers<Frame>>, Status> {
        let (me, frame) = (self.me, request.into_inner());
        me.check(&frame)?;
        let chunks = self.desk.snapshot(decode::<FetchQuery>(frame.payload)?);
        let to = frame.from;
        let frames = chunks.map(move |chunk| Ok(me.frame(to, FrameKind::Fetch, encode(&chunk?))));
        Ok(Response::new(frames.boxed()))
    }

    type ReadAttemptLogStream = Answers<LogChunk>;

    async fn read_attempt_log(
        &self,
        request: Request<AttemptLogRequest>,
    ) -> Result<Response<Answers<LogChunk>>, Status> {
        let request = request.into_inner();
        self.me.check_cluster(&request.cluster_id)?;
        Ok(Response::new(self.desk.attempt_log(request)))
    }
}

/// The payloads of a stream of frames, each checked.
fn checked(
    me: Identity,
    frames: Streaming<Frame>,
    kind: FrameKind,
) -> impl Stream<Item = Result<Bytes, Status>> + Send + 'static + Unpin {
    frames
        .map(move |frame| {
            let frame = frame?;
            me.check(&frame)?;
            if frame.kind() != kind {
                return Err(Status::invalid_argument(format!(
                    "a frame of kind {} in this stream",
                    frame.kind
                )));
            }
            Ok(frame.payload)
        })
        .boxed()
}
