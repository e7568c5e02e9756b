//! What a replica knows about itself and the cluster, as a watch.

use std::fmt;

use clawhive_statemachine::plan::members::{Member, Members};

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
    /// The membership is half way between two configurations.
    pub joint: bool,
    /// Members, with or without a vote, that this node has heard of lately, itself included. Only a leader hears of all
    /// of them.
    pub heard: Vec<u64>,
    /// Of a leader: how far the log of each member is known to match its own.
    pub matched: Vec<(u64, u64)>,
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

impl Status {
    /// Who is there and who is not, for people, with the numbers: "1 of 3 reachable (node 1 yes; node 2 at b:1, node 3 at
    /// c:1 not)".
    pub fn reachability(&self) -> Reachability {
        let voters = self.members.iter().filter(|peer| self.voters.contains(&peer.id));
        let (heard, silent) = voters.cloned().partition(|peer| self.heard.contains(&peer.id));
        Reachability { heard, silent }
    }

    /// The membership, for planning what is to become of it.
    pub fn group(&self) -> Members {
        let member = |peer: &Peer| {
            let own = peer.id == self.node_id;
            let matched = self.matched.iter().find(|(id, _)| *id == peer.id).map_or(0, |(_, index)| *index);
            Member {
                id: peer.id,
                addr: peer.addr.clone(),
                voter: self.voters.contains(&peer.id),
                heard: self.heard.contains(&peer.id),
                lag: if own { 0 } else { self.last_log_index.saturating_sub(matched) },
            }
        };
        Members {
            leader: self.leader.unwrap_or(0),
            joint: self.joint,
            slack: 0,
            members: self.members.iter().map(member).collect(),
        }
    }
}

/// Voters that were heard of lately, and the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reachability {
    /// Heard of, this node among them.
    pub heard: Vec<Peer>,
    /// Not heard of.
    pub silent: Vec<Peer>,
}

impl Reachability {
    /// How many voters there are.
    pub fn voters(&self) -> usize {
        self.heard.len() + self.silent.len()
    }
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} reachable", self.heard.len(), self.voters())?;
        let list = |peers: &[Peer], with_addr: bool| {
            let one = |peer: &Peer| match with_addr {
                true => format!("node {} at {}", peer.id, peer.addr),
                false => format!("node {}", peer.id),
            };
            peers.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        match (self.heard.is_empty(), self.silent.is_empty()) {
            (_, true) => Ok(()),
            (true, false) => write!(f, " ({} not)", list(&self.silent, true)),
            (false, false) => {
                write!(f, " ({} yes; {} not)", list(&self.heard, false), list(&self.silent, true))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_there_is_named_with_its_address() {
        let peer = |id: u64| Peer { id, addr: format!("10.0.0.{id}:7401") };
        let status = Status {
            node_id: 1,
            voters: vec![1, 2, 3],
            members: (1..=4).map(peer).collect(),
            heard: vec![1, 4],
            ..Status::default()
        };
        assert_eq!(
            status.reachability().to_string(),
            "1 of 3 reachable (node 1 yes; node 2 at 10.0.0.2:7401, node 3 at 10.0.0.3:7401 not)"
        );
        let all = Status { heard: vec![1, 2, 3], ..status.clone() };
        assert_eq!(all.reachability().to_string(), "3 of 3 reachable");
        // A learner asks: it has no vote itself.
        let none = Status { node_id: 4, heard: vec![4], voters: vec![1], ..status };
        assert_eq!(none.reachability().to_string(), "0 of 1 reachable (node 1 at 10.0.0.1:7401 not)");
    }
}
