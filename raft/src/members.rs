//! Changes of the membership.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{Command, Proposal, Rejection};
use clawhive_statemachine::plan::members;
use openraft::ChangeMembers;
use openraft::errors::{ChangeMembershipError, ClientWriteError, InitializeError, RaftError};

use crate::error::MemberError;
use crate::replica::Core;
use crate::types::{Node, TypeConfig};

/// A cluster of one leads itself sooner than this, or not at all.
const BOOTSTRAP_TIMEOUT: Duration = Duration::from_secs(10);

type WriteError = RaftError<TypeConfig, ClientWriteError<TypeConfig>>;

impl Core {
    pub(crate) async fn bootstrap(&self, peer_addr: &str) -> Result<(), MemberError> {
        let members = BTreeMap::from([(self.node_id, Node { addr: peer_addr.to_owned() })]);
        match self.raft.initialize(members).await {
            Ok(()) => {}
            // It belongs to a cluster already, and whether it leads there is that cluster's business.
            Err(RaftError::APIError(InitializeError::NotAllowed(_))) => return Ok(()),
            Err(RaftError::APIError(error)) => return Err(MemberError::Invalid(error.to_string())),
            Err(RaftError::Fatal(_)) => return Err(MemberError::Shutdown),
        }
        let mut status = self.status.clone();
        match tokio::time::timeout(BOOTSTRAP_TIMEOUT, status.wait_for(|status| status.is_leader)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(MemberError::Shutdown),
            Err(_) => Err(MemberError::Timeout),
        }
    }

    /// Returns once it is decided; the learner catches up behind it.
    pub(crate) async fn add_learner(
        &self,
        id: u64,
        addr: &str,
        timeout: Duration,
    ) -> Result<(), MemberError> {
        // openraft keeps the address of a node that it knows, unless it is told like this.
        let node = Node { addr: addr.to_owned() };
        let change = ChangeMembers::SetNodes(BTreeMap::from([(id, node)]));
        self.change(timeout, self.raft.change_membership(change, true)).await
    }

    pub(crate) async fn promote(&self, ids: BTreeSet<u64>, timeout: Duration) -> Result<(), MemberError> {
        let change = ChangeMembers::AddVoterIds(ids);
        self.change(timeout, self.raft.change_membership(change, true)).await
    }

    pub(crate) async fn demote(&self, id: u64, timeout: Duration) -> Result<(), MemberError> {
        let change = ChangeMembers::RemoveVoters(BTreeSet::from([id]));
        self.change(timeout, self.raft.change_membership(change, true)).await
    }

    /// openraft makes the step out of a joint configuration with the next change, whatever it is; here nothing else.
    /// Voters that were on their way out stay as learners for now.
    pub(crate) async fn finish_change(&self, timeout: Duration) -> Result<(), MemberError> {
        self.promote(BTreeSet::new(), timeout).await
    }

    pub(crate) async fn remove(&self, id: u64, timeout: Duration) -> Result<(), MemberError> {
        let voter = self.status.borrow().voters.contains(&id);
        let ids = BTreeSet::from([id]);
        let change = if voter { ChangeMembers::RemoveVoters(ids) } else { ChangeMembers::RemoveNodes(ids) };
        self.change(timeout, self.raft.change_membership(change, false)).await
    }

    /// Refuses what would lose the majority, before it is proposed.
    pub(crate) fn check_members(&self, proposal: &Proposal) -> Result<(), Rejection> {
        let about_members =
            |command: &Command| matches!(command.kind, Some(Kind::RemoveNode(_) | Kind::SetNodeRole(_)));
        if !proposal.commands.iter().any(about_members) {
            return Ok(());
        }
        let (view, group) = (self.state.view(), self.status.borrow().group());
        proposal.commands.iter().try_for_each(|command| members::check(&view, &group, command))
    }

    pub(crate) async fn transfer_leader(&self, to: u64) -> Result<(), MemberError> {
        self.check_leader()?;
        self.raft.trigger().transfer_leader(to).await.map_err(|_| MemberError::Shutdown)
    }

    fn check_leader(&self) -> Result<(), MemberError> {
        let leader = self.status.borrow().leader;
        if leader == Some(self.node_id) { Ok(()) } else { Err(MemberError::NotLeader { leader }) }
    }

    async fn change<T>(
        &self,
        timeout: Duration,
        change: impl Future<Output = Result<T, WriteError>>,
    ) -> Result<(), MemberError> {
        self.check_leader()?;
        match tokio::time::timeout(timeout, change).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(member_error(error)),
            Err(_) => Err(MemberError::Timeout),
        }
    }
}

fn member_error(error: WriteError) -> MemberError {
    match error {
        RaftError::Fatal(_) => MemberError::Shutdown,
        RaftError::APIError(ClientWriteError::ForwardToLeader(forward)) => {
            MemberError::NotLeader { leader: forward.leader_id }
        }
        // It may come into force with the next leader.
        RaftError::APIError(ClientWriteError::LogEntryDiscarded(_)) => MemberError::Timeout,
        RaftError::APIError(ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(
            _,
        ))) => MemberError::InProgress,
        RaftError::APIError(other) => MemberError::Invalid(other.to_string()),
    }
}
