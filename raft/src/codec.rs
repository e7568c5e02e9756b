//! Bytes of Raft's own things: log ids, votes, memberships, entries. One encoding for the wire, the log, the state file
//! and snapshots: protobuf messages, private to this crate, with numbers that are never reused.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use clawhive_proto::prost::{self, Message};
use openraft::EntryPayload;

use crate::types::{EntryBytes, LogEntry, LogId, Membership, Node, Payload, StoredMembership, Vote, log_id};

/// Bytes that are not what they should be.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) struct DecodeError(pub(crate) String);

impl From<prost::DecodeError> for DecodeError {
    fn from(error: prost::DecodeError) -> DecodeError {
        DecodeError(error.to_string())
    }
}

pub(crate) fn missing(what: &str) -> DecodeError {
    DecodeError(format!("{what} is missing"))
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireLogId {
    #[prost(uint64, tag = "1")]
    pub(crate) term: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) node: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) index: u64,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireVote {
    #[prost(uint64, tag = "1")]
    pub(crate) term: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) node: u64,
    #[prost(bool, tag = "3")]
    pub(crate) committed: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireVoters {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireMembership {
    #[prost(message, repeated, tag = "1")]
    pub(crate) configs: Vec<WireVoters>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) nodes: Vec<WireNode>,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireNode {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) addr: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireStoredMembership {
    #[prost(message, optional, tag = "1")]
    pub(crate) log_id: Option<WireLogId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) membership: Option<WireMembership>,
}

/// What an entry holds; nothing set is a blank.
#[derive(Clone, PartialEq, prost::Oneof)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) enum WirePayload {
    #[prost(bytes = "bytes", tag = "4")]
    Commands(Bytes),
    #[prost(message, tag = "5")]
    Membership(WireMembership),
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
pub(crate) struct WireEntry {
    #[prost(uint64, tag = "1")]
    pub(crate) term: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) node: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) index: u64,
    #[prost(oneof = "WirePayload", tags = "4, 5")]
    pub(crate) payload: Option<WirePayload>,
}

impl From<&LogId> for WireLogId {
    fn from(id: &LogId) -> WireLogId {
        WireLogId { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
    }
}

impl From<WireLogId> for LogId {
    fn from(wire: WireLogId) -> LogId {
        log_id(wire.term, wire.node, wire.index)
    }
}

impl From<&Vote> for WireVote {
    fn from(vote: &Vote) -> WireVote {
        WireVote { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
    }
}

impl From<WireVote> for Vote {
    fn from(wire: WireVote) -> Vote {
        if wire.committed {
            Vote::new_committed(wire.term, wire.node)
        } else {
            Vote::new(wire.term, wire.node)
        }
    }
}

impl From<&Membership> for WireMembership {
    fn from(membership: &Membership) -> WireMembership {
        WireMembership {
            configs: membership
                .get_joint_config()
                .iter()
                .map(|ids| WireVoters { ids: ids.iter().copied().collect() })
                .collect(),
            nodes: membership
                .nodes()
                .map(|(id, node)| WireNode { id: *id, addr: node.addr.clone() })
                .collect(),
        }
    }
}

impl TryFrom<WireMembership> for Membership {
    type Error = DecodeError;

    fn try_from(wire: WireMembership) -> Result<Membership, DecodeError> {
        let configs: Vec<BTreeSet<u64>> =
            wire.configs.into_iter().map(|c| c.ids.into_iter().collect()).collect();
        let nodes: BTreeMap<u64, Node> =
            wire.nodes.into_iter().map(|n| (n.id, Node { addr: n.addr })).collect();
        if configs.is_empty() && nodes.is_empty() {
            return Ok(Membership::default());
        }
        Membership::new(configs, nodes).map_err(|error| DecodeError(error.to_string()))
    }
}

impl From<&StoredMembership> for WireStoredMembership {
    fn from(stored: &StoredMembership) -> WireStoredMembership {
        WireStoredMembership {
            log_id: stored.log_id().as_ref().map(WireLogId::from),
            membership: Some(stored.membership().into()),
        }
    }
}

impl TryFrom<WireStoredMembership> for StoredMembership {
    type Error = DecodeError;

    fn try_from(wire: WireStoredMembership) -> Result<StoredMembership, DecodeError> {
        let membership = wire.membership.ok_or_else(|| missing("membership"))?;
        Ok(StoredMembership::new(wire.log_id.map(LogId::from), membership.try_into()?))
    }
}

impl From<&LogEntry> for WireEntry {
    fn from(entry: &LogEntry) -> WireEntry {
        let WireLogId { term, node, index } = WireLogId::from(&entry.log_id);
        let payload = match &entry.payload {
            EntryPayload::Blank => None,
            EntryPayload::Normal(data) => Some(WirePayload::Commands(data.0.clone())),
            EntryPayload::Membership(membership) => Some(WirePayload::Membership(membership.into())),
        };
        WireEntry { term, node, index, payload }
    }
}

impl WireEntry {
    /// Copies the payload: what came in a frame must not keep the whole frame alive in the log's tail.
    pub(crate) fn into_entry(self) -> Result<LogEntry, DecodeError> {
        let payload: Payload = match self.payload {
            None => EntryPayload::Blank,
            Some(WirePayload::Commands(bytes)) => {
                EntryPayload::Normal(EntryBytes(Bytes::copy_from_slice(&bytes)))
            }
            Some(WirePayload::Membership(membership)) => EntryPayload::Membership(membership.try_into()?),
        };
        Ok(LogEntry { log_id: log_id(self.term, self.node, self.index), payload })
    }
}

pub(crate) fn encode_log_id(id: &LogId) -> Vec<u8> {
    WireLogId::from(id).encode_to_vec()
}

pub(crate) fn decode_log_id(bytes: &[u8]) -> Result<LogId, DecodeError> {
    Ok(WireLogId::decode(bytes)?.into())
}

pub(crate) fn encode_stored_membership(stored: &StoredMembership) -> Vec<u8> {
    WireStoredMembership::from(stored).encode_to_vec()
}

pub(crate) fn decode_stored_membership(bytes: &[u8]) -> Result<StoredMembership, DecodeError> {
    WireStoredMembership::decode(bytes)?.try_into()
}

/// For messages to people.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
