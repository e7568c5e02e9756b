//! Makes the Raft membership follow the table of nodes: a new node becomes a learner, and a voter once it has caught up.
//! Every step is looked up anew, so a leader change in the middle of one only means that the next leader goes on.

use std::time::Duration;

use clawhive_proto::{NodeRole, NodeRow};
use clawhive_raft::{MemberError, Status};
use clawhive_statemachine::{Touched, read};

use super::{Leadership, Over};

/// How long one step may take before the next node gets its turn.
const STEP: Duration = Duration::from_secs(5);

/// After a step that failed: a node that is away is asked for again, but not in a tight loop.
const PAUSE: Duration = Duration::from_millis(300);

/// What is to be done for one node.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Not a member yet, or a member at another address.
    Add,
    /// A learner that is to vote.
    Promote,
}

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    let mut status = ctx.replica.status();
    loop {
        feed.look();
        let nodes = read::nodes(&ctx.replica.view());
        let mut waiting = false;
        for (id, row) in nodes {
            let Some(step) = step(&status.borrow_and_update(), id.0, &row) else { continue };
            tracing::info!(node = id.0, ?step, "membership");
            let done = match step {
                Step::Add => ctx.replica.add_learner(id.0, &row.peer_listen, STEP).await,
                Step::Promote => ctx.replica.promote(id.0, STEP).await,
            };
            waiting = true;
            match done {
                Ok(()) => {}
                Err(MemberError::NotLeader { .. } | MemberError::Shutdown) => {
                    return Over("not the leader".to_owned());
                }
                Err(error) => {
                    tracing::warn!(node = id.0, ?step, %error, "a change of the membership failed, to be tried again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        if waiting {
            // One more look: a learner just added is to be promoted.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        if let Err(closed) = feed.touched(Touched::NODES).await {
            return closed.into();
        }
    }
}

fn step(status: &Status, id: u64, row: &NodeRow) -> Option<Step> {
    let member = status.members.iter().find(|member| member.id == id);
    match member {
        None => Some(Step::Add),
        Some(member) if member.addr != row.peer_listen => Some(Step::Add),
        Some(_) if row.role() == NodeRole::Voter && !status.voters.contains(&id) => Some(Step::Promote),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_raft::Peer;

    #[test]
    fn a_node_goes_from_unknown_to_learner_to_voter() {
        let row = |role: NodeRole, addr: &str| NodeRow {
            role: role.into(),
            peer_listen: addr.to_owned(),
            ..NodeRow::default()
        };
        let voter = row(NodeRole::Voter, "b:1");
        let mut status = Status { voters: vec![1], ..Status::default() };
        assert_eq!(step(&status, 5, &voter), Some(Step::Add));
        status.members = vec![Peer { id: 5, addr: "b:1".to_owned() }];
        status.learners = vec![5];
        assert_eq!(step(&status, 5, &voter), Some(Step::Promote));
        assert_eq!(step(&status, 5, &row(NodeRole::Claw, "b:1")), None);
        status.voters.push(5);
        assert_eq!(step(&status, 5, &voter), None);
        assert_eq!(step(&status, 5, &row(NodeRole::Voter, "c:1")), Some(Step::Add));
    }
}
