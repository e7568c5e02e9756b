//! The task that keeps [`Status`] up to date, and asks around when there is no quorum.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::FrameKind;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::Fatal as OpenraftFatal;
use openraft::{Instant as _, ServerState};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::machine::Machine;
use crate::reach::Reach;
use crate::state::State;
use crate::status::Status;
use crate::transport::{Peer, Transport};
use crate::types::TypeConfig;

/// A READ_INDEX with this payload only asks whether somebody is there.
pub(crate) const PROBE: &[u8] = &[1];
/// How often the numbers are refreshed when nothing else happens.
const REFRESH: Duration = Duration::from_millis(50);
/// How often a new leader looks whether it is ready.
const ASSUMING: Duration = Duration::from_millis(1);
/// How often peers are asked whether they are there, without a quorum.
const PROBE_EVERY: Duration = Duration::from_millis(250);

pub(crate) type Raft = openraft::Raft<TypeConfig, Machine>;

/// What the status is made of.
pub(crate) struct Observer {
    pub(crate) node_id: u64,
    pub(crate) raft: Raft,
    pub(crate) state: Arc<State>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) reach: Arc<Reach>,
    /// Who was not heard of for this long is not reachable.
    pub(crate) window: Duration,
    pub(crate) recovered: watch::Receiver<bool>,
}

impl Observer {
    /// Runs until the replica is gone.
    pub(crate) async fn run(self, status: watch::Sender<Status>) {
        let mut server = self.raft.server_metrics();
        let mut recovered = self.recovered.clone();
        let mut probed: Option<Instant> = None;
        loop {
            let (now, assuming) = self.look();
            let alone = !now.quorum_ok && now.voters.iter().any(|voter| *voter != self.node_id);
            if alone && probed.is_none_or(|at| at.elapsed() >= PROBE_EVERY) {
                probed = Some(Instant::now());
                self.probe(&now);
            }
            status.send_if_modified(|old| {
                let changed = *old != now;
                *old = now;
                changed
            });
            let pause = if assuming { ASSUMING } else { REFRESH };
            tokio::select! {
                changed = server.changed() => if changed.is_err() { return },
                _ = recovered.changed(), if !*self.recovered.borrow() => {}
                () = tokio::time::sleep(pause) => {}
            }
            if status.is_closed() {
                return;
            }
        }
    }

    /// The status now, and whether this node leads without being ready yet.
    fn look(&self) -> (Status, bool) {
        let metrics = self.raft.metrics().borrow_watched().clone();
        if let Err(stopped @ (OpenraftFatal::StorageError(_) | OpenraftFatal::Panicked)) =
            &metrics.running_state
        {
            self.state.fatal.raise(format!("raft has stopped: {stopped}"));
        }
        let membership = metrics.membership_config.membership();
        let voters: Vec<u64> = membership.voter_ids().collect();
        let applied = self.state.view().applied();
        let leads = metrics.state == ServerState::Leader && metrics.vote.committed;
        let ready = leads && applied.is_some_and(|id| id.leader_id == metrics.vote.leader_id);
        let fresh = |age: Option<Duration>| age.is_some_and(|age| age < self.window);
        let quorum_ok = match metrics.current_leader {
            _ if leads => {
                voters == [self.node_id]
                    || fresh(metrics.last_quorum_acked.map(|at| at.into_inner().elapsed()))
            }
            Some(leader) => fresh(self.reach.age(leader)),
            None => false,
        };
        let index = |id: Option<crate::types::LogId>| id.map_or(0, |id| id.index);
        let status = Status {
            node_id: self.node_id,
            leader: metrics.current_leader,
            is_leader: ready,
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            committed: index(metrics.cluster_committed),
            applied: index(applied),
            durable: index(*self.state.durable().borrow()),
            snapshot: index(metrics.snapshot),
            purged: index(metrics.purged),
            reachable: voters
                .iter()
                .filter(|voter| **voter == self.node_id || self.reach.reachable(**voter, self.window))
                .count(),
            voters,
            learners: membership.learner_ids().collect(),
            members: membership.nodes().map(|(id, node)| Peer { id: *id, addr: node.addr.clone() }).collect(),
            quorum_ok,
            recovered: *self.recovered.borrow(),
            digest: self.state.audit.newest(),
        };
        (status, leads && !ready)
    }

    /// Asks every other voter whether it is there.
    fn probe(&self, status: &Status) {
        for peer in
            status.members.iter().filter(|peer| peer.id != self.node_id && status.voters.contains(&peer.id))
        {
            let (transport, reach, peer) = (self.transport.clone(), self.reach.clone(), peer.clone());
            tokio::spawn(async move {
                let probe =
                    transport.call(&peer, FrameKind::ReadIndex, Bytes::from_static(PROBE), PROBE_EVERY);
                match tokio::time::timeout(PROBE_EVERY, probe).await {
                    Ok(Ok(_)) => reach.heard(peer.id),
                    _ => reach.failed(peer.id),
                }
            });
        }
    }
}
