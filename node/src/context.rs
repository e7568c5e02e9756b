//! What the parts of one node have in common. Owns nothing of its own and decides nothing.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use clawhive_proto::{Command, Outcome, PeerStatus, Proposal, outcome};
use clawhive_raft::{Committed, Peer, ProposeError, Replica, Status};

use tokio::sync::Semaphore;

use crate::claw::LogStore;
use crate::env::{self, Clock};
use crate::leader::{Beats, Health, Pace};
use crate::peer::{Identity, Links};

/// What the parts of one node have in common.
pub(crate) struct Context {
    /// Who this node is.
    pub(crate) me: Identity,
    /// The highest level that it says it can do: see [`clawhive_statemachine::level`].
    pub(crate) level: u32,
    /// Its replica.
    pub(crate) replica: Replica,
    /// Its connections to peers.
    pub(crate) links: Links,
    /// Its clock.
    pub(crate) clock: Arc<Clock>,
    /// Beats that reached it as the leader.
    pub(crate) beats: Beats,
    /// How often it compares states when it leads.
    pub(crate) digests: Pace,
    /// Turns of reads that look at many rows.
    pub(crate) scans: Semaphore,
    /// Whether its leader loops are alive.
    pub(crate) health: Health,
    /// Logs of the attempts that ran here; set when the claw has started. Weak: they hold on to the claw, and the claw to
    /// this.
    pub(crate) logs: OnceLock<Weak<LogStore>>,
}

/// The version of this binary.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Context {
    /// Who acts, in events: this node by itself.
    pub(crate) fn actor(&self) -> String {
        format!("node:{}", self.me.node)
    }

    /// The replica's status right now.
    pub(crate) fn status(&self) -> Status {
        self.replica.status().borrow().clone()
    }

    /// Proposes as this node by itself; only while it leads.
    pub(crate) async fn propose_leading(&self, commands: Vec<Command>) -> Result<Committed, ProposeError> {
        let proposal = Proposal { request_id: Vec::new(), actor: self.actor(), commands };
        self.replica.propose_local(proposal, Duration::from_secs(5)).await
    }

    /// Where a member listens for its peers.
    pub(crate) fn peer(&self, node: u64) -> Option<Peer> {
        self.replica.status().borrow().members.iter().find(|peer| peer.id == node).cloned()
    }

    /// This node, as it is now.
    pub(crate) fn peer_status(&self) -> PeerStatus {
        let status = self.replica.status();
        let status = status.borrow();
        PeerStatus {
            node: self.me.node,
            applied_index: status.applied,
            term: status.term,
            leader: status.is_leader,
            version: VERSION.to_owned(),
            digest_index: status.digest.map_or(0, |digest| digest.index),
            digest: status.digest.map_or_else(Vec::new, |digest| digest.bytes.to_vec()),
            level: self.level,
            wall_ms: env::wall_ms(),
            clock_ms: self.clock.now_ms(),
        }
    }
}

/// The rejection in an outcome, if it is one.
pub(crate) fn rejection(outcome: &Outcome) -> Option<&clawhive_proto::Rejection> {
    match &outcome.kind {
        Some(outcome::Kind::Rejected(rejection)) => Some(rejection),
        _ => None,
    }
}
