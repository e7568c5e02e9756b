//! What a replica knows about itself and the cluster, as a watch.

use crate::audit::Digest;
use crate::transport::Peer;

/// Where a replica stands. A copy of the moment; the watch tells of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// This node.
    pub node_id: u64,
    /// The leader that this node follows or is.
    pub leader: Option<u64>,
    /// This node leads and has applied the first entry of its term: what it reads includes everything that earlier
    /// leaders acknowledged, so it may plan.
    pub is_leader: bool,
    /// Current term.
    pub term: u64,
    /// Newest entry in this node's log.
    pub last_log_index: u64,
    /// Newest entry known to be committed.
    pub committed: u64,
    /// Newest entry applied on this node.
    pub applied: u64,
    /// Newest entry that is durable in this node's state file; the log before it may be purged.
    pub durable: u64,
    /// Newest entry that the newest snapshot covers; 0 without one.
    pub snapshot: u64,
    /// Everything up to here was purged from the log; 0 when nothing was.
    pub purged: u64,
    /// Voters, ascending.
    pub voters: Vec<u64>,
    /// Members without a vote, ascending.
    pub learners: Vec<u64>,
    /// All members with their addresses, ascending.
    pub members: Vec<Peer>,
    /// Voters that this node has heard of lately, itself included. Only a leader hears of all of them.
    pub reachable: usize,
    /// A leader that commits, or a follower that hears from its leader.
    pub quorum_ok: bool,
    /// Since it was opened, this node has caught up with what the cluster had committed: its stale reads no longer go
    /// back behind what it served before.
    pub recovered: bool,
    /// The newest digest of the state here.
    pub digest: Option<Digest>,
}
