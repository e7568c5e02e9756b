//! Proposing from anywhere: to the leader's queue, here or forwarded, through elections, until the deadline.

use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    Applied, FrameKind, MAX_MESSAGE_BYTES, NotLeader, NotYet as WireNotYet, Outcomes, PeerError, Proposal,
    ProposeReply, propose_reply,
};
use clawhive_statemachine::level::{self, NotYet};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::batcher::{Landed, Pending, Refusal};
use crate::codec::DecodeError;
use crate::error::{ProposeError, ReadError};
use crate::replica::{Committed, Core};
use crate::status::Status;
use crate::transport::TransportError;
use crate::view::View;
use crate::wire::WireForward;

/// Without a quorum nobody waits longer than this to be told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How often a waiter looks whether there is still hope.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// Between attempts when nothing tells of a change.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// When somebody who waits for `timeout` has waited enough. Longer than a day is a day: an instant has an end.
pub(crate) fn deadline_after(start: Instant, timeout: Duration) -> Instant {
    start + timeout.min(Duration::from_secs(86_400))
}

/// How one attempt ended without an answer.
enum Miss {
    /// Certainly not proposed.
    Not,
    /// It may take effect.
    Unknown,
    /// Certainly not proposed: the cluster cannot do it yet.
    NotYet(NotYet),
    /// This replica has stopped.
    Stopped,
}

impl Core {
    /// Anywhere, to the end.
    pub(crate) async fn propose(
        &self,
        proposal: Proposal,
        timeout: Duration,
    ) -> Result<Committed, ProposeError> {
        check_size(&proposal)?;
        let start = Instant::now();
        let deadline = deadline_after(start, timeout);
        self.wait_level(&proposal, timeout).await?;
        let repeatable = !proposal.request_id.is_empty();
        let mut status = self.status.clone();
        let mut maybe = false;
        loop {
            let leader = status.borrow_and_update().leader;
            let attempt = async {
                match leader {
                    Some(leader) if leader == self.node_id => self.local(proposal.clone()).await,
                    Some(leader) => self.forward(leader, &proposal, deadline).await,
                    None => std::future::pending().await,
                }
            };
            let miss = tokio::select! {
                landed = attempt => match landed {
                    Ok(landed) => return committed(landed),
                    Err(miss) => miss,
                },
                () = leader_change(&mut status, leader) => {
                    if leader.is_some() { Miss::Unknown } else { Miss::Not }
                }
                error = self.hopeless(start, deadline) => {
                    return Err(error.into_propose(maybe || leader.is_some()));
                }
            };
            match miss {
                Miss::Not => {}
                Miss::Unknown => maybe = true,
                Miss::NotYet(not_yet) => return Err(ProposeError::NotYet(not_yet)),
                Miss::Stopped => return Err(ProposeError::Shutdown { may_have_been_applied: true }),
            }
            if maybe && !repeatable {
                return Err(ProposeError::LeaderLost);
            }
            tokio::select! {
                _ = status.changed() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Here or not at all.
    pub(crate) async fn propose_local(
        &self,
        proposal: Proposal,
        timeout: Duration,
    ) -> Result<Committed, ProposeError> {
        check_size(&proposal)?;
        let start = Instant::now();
        let leader = self.status.borrow().leader;
        if leader != Some(self.node_id) {
            return Err(ProposeError::NotLeader { leader });
        }
        tokio::select! {
            landed = self.local(proposal) => match landed {
                Ok(landed) => committed(landed),
                Err(Miss::Not) => Err(ProposeError::NotLeader { leader: self.status.borrow().leader }),
                Err(Miss::Unknown) => Err(ProposeError::LeaderLost),
                Err(Miss::NotYet(not_yet)) => Err(ProposeError::NotYet(not_yet)),
                Err(Miss::Stopped) => Err(ProposeError::Shutdown { may_have_been_applied: true }),
            },
            error = self.hopeless(start, deadline_after(start, timeout)) => Err(error.into_propose(true)),
        }
    }

    async fn local(&self, proposal: Proposal) -> Result<Landed, Miss> {
        self.check_level(&proposal).map_err(Miss::NotYet)?;
        let proposal = (self.prepare)(proposal);
        let (answer, landed) = oneshot::channel();
        if self.queue.send(Pending { proposal, answer }).await.is_err() {
            return Err(Miss::Stopped);
        }
        match landed.await {
            Ok(Ok(landed)) => Ok(landed),
            Ok(Err(Refusal::NotLeader)) => Err(Miss::Not),
            Ok(Err(Refusal::Unknown)) => Err(Miss::Unknown),
            Ok(Err(Refusal::Stopped)) | Err(_) => Err(Miss::Stopped),
        }
    }

    /// A command that some member might not know must not reach the log. The level never falls, so what passes here
    /// passes in `apply` too.
    fn check_level(&self, proposal: &Proposal) -> Result<(), NotYet> {
        match proposal.commands.iter().map(level::needed).max().unwrap_or(1) {
            1 => Ok(()),
            needed => allowed(needed, &self.state.view()),
        }
    }

    /// As [`Core::check_level`], before a proposal leaves this node: a leader of an older version would not know what
    /// it gets, and write nonsense into the log. A node that is behind looks at the newest state before it refuses.
    async fn wait_level(&self, proposal: &Proposal, timeout: Duration) -> Result<(), ProposeError> {
        let Err(NotYet { needed, .. }) = self.check_level(proposal) else { return Ok(()) };
        let may_have_been_applied = false;
        let view = self.linearizable_view(timeout).await.map_err(|error| match error {
            ReadError::NoQuorum { reachable, voters } => {
                ProposeError::NoQuorum { reachable, voters, may_have_been_applied }
            }
            ReadError::Timeout => ProposeError::Timeout { may_have_been_applied },
            ReadError::NoCluster => ProposeError::NoCluster,
            ReadError::Shutdown => ProposeError::Shutdown { may_have_been_applied },
        })?;
        allowed(needed, &view).map_err(ProposeError::NotYet)
    }

    async fn forward(&self, leader: u64, proposal: &Proposal, deadline: Instant) -> Result<Landed, Miss> {
        let Some(peer) = self.status.borrow().members.iter().find(|peer| peer.id == leader).cloned() else {
            return Err(Miss::Not);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let forward =
            WireForward { proposal: proposal.encode_to_vec().into(), timeout_ms: left.as_millis() as u64 };
        let payload = forward.encode_to_vec().into();
        match self.transport.call(&peer, FrameKind::Propose, payload, left).await {
            Err(TransportError::Unreachable(_)) => {
                self.reach.failed(leader);
                Err(Miss::Not)
            }
            Err(TransportError::Lost(_)) => {
                self.reach.failed(leader);
                Err(Miss::Unknown)
            }
            Err(TransportError::Refused(_)) => Err(Miss::Unknown),
            Ok(answer) => {
                self.reach.heard(leader);
                match ProposeReply::decode(answer).ok().and_then(|reply| reply.result) {
                    Some(propose_reply::Result::Applied(Applied { log_index, outcomes })) => {
                        Ok(Landed { log_index, outcomes })
                    }
                    Some(propose_reply::Result::NotLeader(_)) => Err(Miss::Not),
                    Some(propose_reply::Result::NotYet(WireNotYet { needed, level })) => {
                        Err(Miss::NotYet(NotYet { needed, level }))
                    }
                    Some(propose_reply::Result::Error(PeerError {
                        may_have_been_applied: false, ..
                    })) => Err(Miss::Not),
                    Some(propose_reply::Result::Error(_)) | None => Err(Miss::Unknown),
                }
            }
        }
    }

    /// A peer forwarded a proposal to us.
    pub(crate) async fn answer_propose(&self, payload: Bytes) -> Result<Bytes, DecodeError> {
        let forward = WireForward::decode(payload)?;
        let proposal = Proposal::decode(forward.proposal)?;
        let start = Instant::now();
        let deadline = deadline_after(start, Duration::from_millis(forward.timeout_ms));
        let not_leader = || {
            let leader = self.status.borrow().leader.unwrap_or(0);
            propose_reply::Result::NotLeader(NotLeader { leader })
        };
        let unknown = |message: String| {
            propose_reply::Result::Error(PeerError { message, may_have_been_applied: true })
        };
        let result = if self.status.borrow().leader != Some(self.node_id) {
            not_leader()
        } else {
            tokio::select! {
                landed = self.local(proposal) => match landed {
                    Ok(Landed { log_index, outcomes }) => {
                        propose_reply::Result::Applied(Applied { log_index, outcomes })
                    }
                    Err(Miss::Not) => not_leader(),
                    Err(Miss::Unknown) => unknown("leadership was lost".to_owned()),
                    Err(Miss::NotYet(NotYet { needed, level })) => {
                        propose_reply::Result::NotYet(WireNotYet { needed, level })
                    }
                    Err(Miss::Stopped) => unknown("shutting down".to_owned()),
                },
                error = self.hopeless(start, deadline) => {
                    unknown(error.into_propose(true).to_string())
                }
            }
        };
        Ok(ProposeReply { result: Some(result) }.encode_to_vec().into())
    }

    /// Returns when it makes no sense to wait any longer: at the deadline, or after a while without a quorum.
    pub(crate) async fn hopeless(&self, start: Instant, deadline: Instant) -> Hopeless {
        let mut next = deadline.min(start + PATIENCE);
        loop {
            tokio::time::sleep_until(next).await;
            let status = self.status.borrow().clone();
            let over = Instant::now() >= deadline;
            if status.voters.is_empty() && over {
                return Hopeless::NoCluster;
            }
            if !status.quorum_ok {
                return Hopeless::NoQuorum { reachable: status.reachable, voters: status.voters.len() };
            }
            if over {
                return Hopeless::Timeout;
            }
            next = deadline.min(next + LOOK);
        }
    }
}

/// Why waiting ended.
pub(crate) enum Hopeless {
    NoCluster,
    NoQuorum { reachable: usize, voters: usize },
    Timeout,
}

impl Hopeless {
    fn into_propose(self, may_have_been_applied: bool) -> ProposeError {
        match self {
            Hopeless::NoCluster => ProposeError::NoCluster,
            Hopeless::NoQuorum { reachable, voters } => {
                ProposeError::NoQuorum { reachable, voters, may_have_been_applied }
            }
            Hopeless::Timeout => ProposeError::Timeout { may_have_been_applied },
        }
    }
}

/// Returns when another leader is known than `from`.
pub(crate) async fn leader_change(status: &mut watch::Receiver<Status>, from: Option<u64>) {
    if status.wait_for(|status| status.leader != from).await.is_err() {
        // Nobody will ever know another one.
        std::future::pending::<()>().await;
    }
}

fn allowed(needed: u32, view: &View) -> Result<(), NotYet> {
    let level = level::current(view);
    if needed > level { Err(NotYet { needed, level }) } else { Ok(()) }
}

fn check_size(proposal: &Proposal) -> Result<(), ProposeError> {
    let bytes = proposal.encoded_len();
    if bytes > MAX_MESSAGE_BYTES {
        return Err(ProposeError::TooLarge { bytes, limit: MAX_MESSAGE_BYTES });
    }
    Ok(())
}

/// Outcomes come from our own apply; if they can't be read, the write happened all the same.
fn committed(landed: Landed) -> Result<Committed, ProposeError> {
    let Outcomes { outcomes, first_index } = Outcomes::decode(landed.outcomes)
        .map_err(|_| ProposeError::Timeout { may_have_been_applied: true })?;
    // A repeat is answered with the place of the first time: nothing happened at its own.
    let log_index = if first_index > 0 { first_index } else { landed.log_index };
    Ok(Committed { log_index, outcomes })
}
