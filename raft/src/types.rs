//! openraft's type parameters, as this crate fills them.
//!
//! Owns: `TypeConfig`, the payload newtypes and short aliases. An entry's payload is opaque here: it is encoded once at
//! the edge, travels through log and replication as bytes, and is decoded once, in apply.
//! Must not: leak into the public API. Nothing outside this crate names openraft.

use std::fmt;

use bytes::Bytes;
use openraft::impls::leader_id_adv;
use openraft::vote::RaftLeaderId;

/// An encoded `clawhive.v1.Entry`.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct EntryBytes(pub(crate) Bytes);

impl fmt::Debug for EntryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryBytes({})", self.0.len())
    }
}

impl fmt::Display for EntryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// An encoded `clawhive.v1.Outcomes`; empty for entries that hold no commands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct OutcomeBytes(pub(crate) Bytes);

/// Where a member listens for its peers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Node {
    pub(crate) addr: String,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.addr)
    }
}

openraft::declare_raft_types!(
    /// The parameters of the one Raft group. A leader id is (term, node): two candidates of one term cannot split the
    /// vote, because the higher node wins it, which keeps the gap after a leader's death to one election.
    pub(crate) TypeConfig:
        D = EntryBytes,
        R = OutcomeBytes,
        NodeId = u64,
        Node = Node,
        LeaderId = leader_id_adv::LeaderId<u64, u64>,
);

/// (term, node).
pub(crate) type LeaderId = leader_id_adv::LeaderId<u64, u64>;
/// (leader id, index).
pub(crate) type LogId = openraft::alias::LogIdOf<TypeConfig>;
/// A promise not to follow an older leader.
pub(crate) type Vote = openraft::alias::VoteOf<TypeConfig>;
/// A log entry: log id and payload.
pub(crate) type LogEntry = openraft::alias::EntryOf<TypeConfig>;
/// What a log entry holds: nothing, commands, or a membership.
pub(crate) type Payload = openraft::alias::EntryPayloadOf<TypeConfig>;
/// Voters (one or two configurations) and the addresses of all members.
pub(crate) type Membership = openraft::Membership<u64, Node>;
/// A membership with the log id it came from.
pub(crate) type StoredMembership = openraft::alias::StoredMembershipOf<TypeConfig>;
/// What a snapshot covers.
pub(crate) type SnapshotMeta = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// The log id at (term, node, index).
pub(crate) fn log_id(term: u64, node: u64, index: u64) -> LogId {
    LogId::new(LeaderId::new(term, node), index)
}
