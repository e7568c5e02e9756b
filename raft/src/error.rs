//! Every error of this crate, with variants by what a caller can do about it. A business refusal is not here: it is an
//! outcome.

use std::io;

/// A replica could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The options contradict each other.
    #[error("options: {0}")]
    Options(String),
    /// The directory or a file in it could not be used.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The state file is damaged or not one of ours.
    #[error("state: {0}")]
    State(String),
    /// The log is damaged.
    #[error("log: {0}")]
    Log(String),
    /// The directory belongs to another node or cluster.
    #[error("the directory belongs to {found}, not to {expected}")]
    Foreign {
        /// What the directory says.
        found: String,
        /// What the options say.
        expected: String,
    },
    /// Raft itself refused to start.
    #[error("raft: {0}")]
    Raft(String),
}

/// A proposal was not answered with outcomes. Unless `may_have_been_applied` is false, a caller must treat it as
/// unknown and repeat it under the same request id.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProposeError {
    /// Too few voters can be reached.
    #[error("no quorum: {reachable} of {voters} reachable")]
    NoQuorum {
        /// Voters that answered lately, this node included.
        reachable: usize,
        /// Voters of the cluster.
        voters: usize,
        /// True when the proposal may still take effect.
        may_have_been_applied: bool,
    },
    /// Time ran out while the cluster seemed healthy.
    #[error("timed out{}", unknown(.may_have_been_applied))]
    Timeout {
        /// True when the proposal may still take effect.
        may_have_been_applied: bool,
    },
    /// The entry would be larger than what any port takes.
    #[error("the proposal has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The cluster cannot do this yet; nothing was proposed.
    #[error("{0}")]
    NotYet(clawhive_statemachine::level::NotYet),
    /// Only from `propose_local`: this node does not lead, and nothing was proposed.
    #[error("not the leader")]
    NotLeader {
        /// The leader, when known.
        leader: Option<u64>,
    },
    /// The leader was lost on the way, and without a request id the proposal can't be repeated safely. It may still take
    /// effect.
    #[error("the leader was lost (the write may have been applied)")]
    LeaderLost,
    /// This node belongs to no cluster yet.
    #[error("this node belongs to no cluster yet")]
    NoCluster,
    /// The replica is stopping.
    #[error("shutting down{}", unknown(.may_have_been_applied))]
    Shutdown {
        /// True when the proposal may still take effect.
        may_have_been_applied: bool,
    },
}

impl ProposeError {
    /// True when the proposal may still take effect: repeat it only under the same request id.
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            ProposeError::NoQuorum { may_have_been_applied, .. }
            | ProposeError::Timeout { may_have_been_applied }
            | ProposeError::Shutdown { may_have_been_applied } => *may_have_been_applied,
            ProposeError::LeaderLost => true,
            ProposeError::TooLarge { .. }
            | ProposeError::NotYet(_)
            | ProposeError::NotLeader { .. }
            | ProposeError::NoCluster => false,
        }
    }
}

fn unknown(may: &bool) -> &'static str {
    if *may { " (the write may have been applied)" } else { "" }
}

/// A linearizable read could not be given.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReadError {
    /// Too few voters can be reached.
    #[error("no quorum: {reachable} of {voters} reachable")]
    NoQuorum {
        /// Voters that answered lately, this node included.
        reachable: usize,
        /// Voters of the cluster.
        voters: usize,
    },
    /// Time ran out while the cluster seemed healthy.
    #[error("timed out")]
    Timeout,
    /// This node belongs to no cluster yet.
    #[error("this node belongs to no cluster yet")]
    NoCluster,
    /// The replica is stopping.
    #[error("shutting down")]
    Shutdown,
}

/// A change of the membership was not made.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum MemberError {
    /// Only the leader changes the membership.
    #[error("not the leader")]
    NotLeader {
        /// The leader, when known.
        leader: Option<u64>,
    },
    /// An earlier change is not finished; try again.
    #[error("another change is in progress")]
    InProgress,
    /// The change makes no sense: an unknown node, or no voter left.
    #[error("{0}")]
    Invalid(String),
    /// Time ran out; the change may still be made.
    #[error("timed out (the change may have been made)")]
    Timeout,
    /// The replica is stopping.
    #[error("shutting down")]
    Shutdown,
}

/// A peer's frame could not be answered.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum HandleError {
    /// The payload is not what its kind says.
    #[error("malformed frame: {0}")]
    Malformed(String),
    /// The kind is not one that a replica answers.
    #[error("a replica does not answer frames of kind {0}")]
    Kind(i32),
    /// The sender's snapshot is damaged or of another cluster; nothing was installed.
    #[error("snapshot refused: {0}")]
    Snapshot(String),
    /// The replica is stopping.
    #[error("shutting down")]
    Shutdown,
}
