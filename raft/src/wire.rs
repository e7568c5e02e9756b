//! What replicas say to each other, inside the payload of a frame. Numbers are never reused.

use bytes::Bytes;
use clawhive_proto::prost::{self, Message};
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, StreamAppendResult, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::codec::{DecodeError, WireEntry, WireLogId, WireVote, missing};
use crate::types::{LogEntry, LogId, TypeConfig, Vote};

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireVoteRequest {
    #[prost(message, optional, tag = "1")]
    vote: Option<WireVote>,
    #[prost(message, optional, tag = "2")]
    last_log_id: Option<WireLogId>,
    #[prost(bool, tag = "3")]
    leadership_transfer: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireVoteReply {
    #[prost(message, optional, tag = "1")]
    vote: Option<WireVote>,
    #[prost(message, optional, tag = "2")]
    last_log_id: Option<WireLogId>,
    #[prost(bool, tag = "3")]
    granted: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireAppend {
    #[prost(message, optional, tag = "1")]
    vote: Option<WireVote>,
    #[prost(message, optional, tag = "2")]
    previous: Option<WireLogId>,
    #[prost(message, optional, tag = "3")]
    leader_commit: Option<WireLogId>,
    #[prost(message, repeated, tag = "4")]
    entries: Vec<WireEntry>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) enum AppendResult {
    /// Everything up to here matches the leader's log.
    #[prost(message, tag = "1")]
    Matching(WireMatching),
    /// The entry before the first differs.
    #[prost(message, tag = "2")]
    Conflict(WireLogId),
    #[prost(message, tag = "3")]
    HigherVote(WireVote),
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireMatching {
    #[prost(message, optional, tag = "1")]
    log_id: Option<WireLogId>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireAppendReply {
    #[prost(oneof = "AppendResult", tags = "1, 2, 3")]
    result: Option<AppendResult>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireTransfer {
    #[prost(message, optional, tag = "1")]
    from: Option<WireVote>,
    #[prost(uint64, tag = "2")]
    to: u64,
    #[prost(message, optional, tag = "3")]
    last_log_id: Option<WireLogId>,
}

/// Neither set: accepted.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireTransferReply {
    #[prost(message, optional, tag = "1")]
    vote_is: Option<WireVote>,
    #[prost(bool, tag = "2")]
    behind: bool,
    #[prost(message, optional, tag = "3")]
    last_log_id: Option<WireLogId>,
}

/// Asks how much of a snapshot is there already.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireOffer {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) id: Vec<u8>,
    /// Of the whole.
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
}

/// How much there is, and its SHA-256.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireOfferReply {
    #[prost(uint64, tag = "1")]
    pub(crate) offset: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) hash: Vec<u8>,
}

/// The first chunk of a snapshot's transfer; the file follows.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireSnapshotStart {
    #[prost(message, optional, tag = "1")]
    pub(crate) vote: Option<WireVote>,
    /// Of the whole file.
    #[prost(uint64, tag = "2")]
    pub(crate) bytes: u64,
    /// As in the offer; empty from a sender that has made none.
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) id: Vec<u8>,
    /// The chunks begin here.
    #[prost(uint64, tag = "4")]
    pub(crate) offset: u64,
    /// Before each chunk stands its CRC32.
    #[prost(bool, tag = "5")]
    pub(crate) checked: bool,
}

/// A forwarded proposal, and how long its proposer waits.
#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireForward {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) proposal: Bytes,
    #[prost(uint64, tag = "2")]
    pub(crate) timeout_ms: u64,
}

fn vote(wire: Option<WireVote>) -> Result<Vote, DecodeError> {
    wire.map(Vote::from).ok_or_else(|| missing("vote"))
}

fn id(id: &Option<LogId>) -> Option<WireLogId> {
    id.as_ref().map(WireLogId::from)
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

pub(crate) fn vote_request(request: &VoteRequest<TypeConfig>) -> Bytes {
    encoded(&WireVoteRequest {
        vote: Some((&request.vote).into()),
        last_log_id: id(&request.last_log_id),
        leadership_transfer: request.leadership_transfer,
    })
}

pub(crate) fn read_vote_request(bytes: Bytes) -> Result<VoteRequest<TypeConfig>, DecodeError> {
    let wire = WireVoteRequest::decode(bytes)?;
    let mut request = VoteRequest::new(vote(wire.vote)?, wire.last_log_id.map(LogId::from));
    request.leadership_transfer = wire.leadership_transfer;
    Ok(request)
}

pub(crate) fn vote_reply(reply: &VoteResponse<TypeConfig>) -> Bytes {
    encoded(&WireVoteReply {
        vote: Some((&reply.vote).into()),
        last_log_id: id(&reply.last_log_id),
        granted: reply.vote_granted,
    })
}

pub(crate) fn read_vote_reply(bytes: Bytes) -> Result<VoteResponse<TypeConfig>, DecodeError> {
    let wire = WireVoteReply::decode(bytes)?;
    Ok(VoteResponse::new(vote(wire.vote)?, wire.last_log_id.map(LogId::from), wire.granted))
}

pub(crate) fn append(
    vote: &Vote,
    previous: &Option<LogId>,
    leader_commit: &Option<LogId>,
    entries: &[LogEntry],
) -> Bytes {
    encoded(&WireAppend {
        vote: Some(vote.into()),
        previous: id(previous),
        leader_commit: id(leader_commit),
        entries: entries.iter().map(WireEntry::from).collect(),
    })
}

pub(crate) fn read_append(bytes: Bytes) -> Result<AppendEntriesRequest<TypeConfig>, DecodeError> {
    let wire = WireAppend::decode(bytes)?;
    Ok(AppendEntriesRequest {
        vote: vote(wire.vote)?,
        prev_log_id: wire.previous.map(LogId::from),
        leader_commit: wire.leader_commit.map(LogId::from),
        entries: wire.entries.into_iter().map(WireEntry::into_entry).collect::<Result<_, _>>()?,
    })
}

pub(crate) fn append_reply(result: &StreamAppendResult<TypeConfig>) -> Bytes {
    let result = match result {
        Ok(matching) => AppendResult::Matching(WireMatching { log_id: id(matching) }),
        Err(StreamAppendError::Conflict(at)) => AppendResult::Conflict(at.into()),
        Err(StreamAppendError::HigherVote(vote)) => AppendResult::HigherVote(vote.into()),
    };
    encoded(&WireAppendReply { result: Some(result) })
}

pub(crate) fn read_append_reply(bytes: Bytes) -> Result<StreamAppendResult<TypeConfig>, DecodeError> {
    match WireAppendReply::decode(bytes)?.result {
        None => Err(missing("result")),
        Some(AppendResult::Matching(wire)) => Ok(Ok(wire.log_id.map(LogId::from))),
        Some(AppendResult::Conflict(at)) => Ok(Err(StreamAppendError::Conflict(at.into()))),
        Some(AppendResult::HigherVote(vote)) => Ok(Err(StreamAppendError::HigherVote(vote.into()))),
    }
}

pub(crate) fn transfer(request: &TransferLeaderRequest<TypeConfig>) -> Bytes {
    encoded(&WireTransfer {
        from: Some(request.from_leader().into()),
        to: *request.to_node_id(),
        last_log_id: request.last_log_id().map(WireLogId::from),
    })
}

pub(crate) fn read_transfer(bytes: Bytes) -> Result<TransferLeaderRequest<TypeConfig>, DecodeError> {
    let wire = WireTransfer::decode(bytes)?;
    Ok(TransferLeaderRequest::new(vote(wire.from)?, wire.to, wire.last_log_id.map(LogId::from)))
}

pub(crate) fn transfer_reply(reply: &TransferLeaderResponse<TypeConfig>) -> Bytes {
    let mut wire = WireTransferReply::default();
    match reply {
        Ok(()) => {}
        Err(TransferLeaderError::VoteChanged { actual, .. }) => wire.vote_is = Some(actual.into()),
        Err(TransferLeaderError::LogNotFlushed { actual, .. }) => {
            wire.behind = true;
            wire.last_log_id = id(actual);
        }
    }
    encoded(&wire)
}

pub(crate) fn read_transfer_reply(
    bytes: Bytes,
    request: &TransferLeaderRequest<TypeConfig>,
) -> Result<TransferLeaderResponse<TypeConfig>, DecodeError> {
    let wire = WireTransferReply::decode(bytes)?;
    if let Some(actual) = wire.vote_is {
        let expected = *request.from_leader();
        return Ok(Err(TransferLeaderError::VoteChanged { expected, actual: actual.into() }));
    }
    if wire.behind {
        let expected = request.last_log_id().copied();
        return Ok(Err(TransferLeaderError::LogNotFlushed {
            expected,
            actual: wire.last_log_id.map(LogId::from),
        }));
    }
    Ok(Ok(()))
}

pub(crate) fn snapshot_reply(vote: &Vote) -> Bytes {
    encoded(&WireVote::from(vote))
}

pub(crate) fn read_snapshot_reply(bytes: Bytes) -> Result<Vote, DecodeError> {
    Ok(WireVote::decode(bytes)?.into())
}

/// A part of a snapshot with its checksum before it.
pub(crate) fn chunk(bytes: &[u8]) -> Bytes {
    let mut chunk = Vec::with_capacity(4 + bytes.len());
    chunk.extend(crc32fast::hash(bytes).to_le_bytes());
    chunk.extend_from_slice(bytes);
    chunk.into()
}

/// The part of a snapshot in a chunk; none when it is not what was sent.
pub(crate) fn read_chunk(mut chunk: Bytes, checked: bool) -> Option<Bytes> {
    if checked {
        if chunk.len() < 4 {
            return None;
        }
        let crc = chunk.split_to(4);
        if crc32fast::hash(&chunk).to_le_bytes() != crc[..] {
            return None;
        }
    }
    Some(chunk)
}
