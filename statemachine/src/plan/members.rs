//! What Raft's membership lacks of what the table of nodes wants, one step at a time; and what must not be asked for,
//! because the voters that are left would be no majority.
//!
//! A step that takes a vote away, or gives one, is made only while a majority of the voters after it was heard of: a
//! dead or cut off node is never counted in before it has caught up, and never in the way of its own removal.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::command::Kind;
use clawhive_proto::{Command, ExpireClaw, NodeRole, NodeRow, NodeState, Rejection, RejectionCode};

use crate::ids::{ClawId, NodeId};
use crate::{ReadStore, read};

/// Raft's membership, as its leader knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The node that leads.
    pub leader: u64,
    /// Half way between two configurations.
    pub joint: bool,
    /// Entries that the log has grown by within the last moment: a learner that lacks no more than these keeps up. In
    /// entries alone nothing can be said: a hundred large ones are a long way, thousands of small ones none.
    pub slack: u64,
    /// Every member, ascending.
    pub members: Vec<Member>,
}

/// One member of Raft's group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its node id.
    pub id: u64,
    /// Where it is looked for.
    pub addr: String,
    /// It has a vote (in a joint configuration: in either half).
    pub voter: bool,
    /// The leader heard of it lately.
    pub heard: bool,
    /// Entries of the leader's log that it is not known to have.
    pub lag: u64,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bring a half-done change to its end.
    Finish,
    /// Make a node a member without a vote, or tell where it is now.
    Add {
        /// The node.
        node: u64,
        /// Its address.
        addr: String,
    },
    /// Let another voter lead: this one is about to lose its vote, or to rest.
    HandOver {
        /// To whom.
        to: u64,
    },
    /// Give learners their votes.
    Promote(BTreeSet<u64>),
    /// Take a vote; the node stays a member.
    Demote(u64),
    /// Take a node out.
    Remove(u64),
}

/// What there is to do for now, and what has to wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The next step.
    pub step: Option<Step>,
    /// Why steps that are wanted are not made yet, by node.
    pub waits: Vec<(u64, String)>,
}

/// What is to be done next.
pub fn plan(view: &dyn ReadStore, members: &Members) -> Plan {
    let mut plan = Plan::default();
    if members.joint {
        plan.step = Some(Step::Finish);
        return plan;
    }
    let rows = read::nodes(view);
    let find = |id: u64| members.members.iter().find(|member| member.id == id);
    for (NodeId(id), row) in &rows {
        // A restored cluster does not know yet where its first node is.
        let told = !row.peer_listen.is_empty();
        if told && find(*id).is_none_or(|member| member.addr != row.peer_listen) {
            plan.step = Some(Step::Add { node: *id, addr: row.peer_listen.clone() });
            return plan;
        }
    }
    plan.step =
        leave(view, members, &rows, &mut plan.waits).or_else(|| enter(members, &rows, &mut plan.waits));
    plan
}

/// The claws of removed nodes: those that hold nothing any more can go at once, as commands; the others have to be looked
/// at again.
pub fn removed_claws(view: &dyn ReadStore) -> (Vec<ExpireClaw>, bool) {
    let (mut gone, mut left) = (Vec::new(), false);
    for (NodeId(node), _) in read::removed_nodes(view) {
        match read::claw(view, ClawId(node)) {
            Some(row) if row.used == 0 => {
                gone.push(ExpireClaw { claw: node, incarnation: row.incarnation, renew_seq: row.renew_seq })
            }
            Some(_) => left = true,
            None => {}
        }
    }
    (gone, left)
}

/// Removals and demotions, and the leader that is to rest.
fn leave(
    view: &dyn ReadStore,
    members: &Members,
    rows: &[(NodeId, NodeRow)],
    waits: &mut Vec<(u64, String)>,
) -> Option<Step> {
    for member in &members.members {
        let removed = read::removed(view, NodeId(member.id)).is_some();
        let row = rows.iter().find(|(id, _)| id.0 == member.id).map(|(_, row)| row);
        let demoted = row.is_some_and(|row| row.role() == NodeRole::Claw);
        if !(removed || demoted && member.voter) {
            continue;
        }
        if !member.voter {
            return Some(Step::Remove(member.id));
        }
        let left: BTreeSet<u64> = members.voters().filter(|id| *id != member.id).collect();
        if let Err(count) = members.majority(&left) {
            waits.push((member.id, format!("it keeps its vote until more voters are reachable: {count}")));
            continue;
        }
        if member.id == members.leader {
            match members.successor(rows, true) {
                Some(to) => return Some(Step::HandOver { to }),
                None => waits.push((member.id, "it leads, and no other voter can take over".to_string())),
            }
            continue;
        }
        return Some(if removed { Step::Remove(member.id) } else { Step::Demote(member.id) });
    }
    let rests = |(id, row): &(NodeId, NodeRow)| id.0 == members.leader && row.state() == NodeState::Draining;
    if rows.iter().any(rests) {
        return members.successor(rows, false).map(|to| Step::HandOver { to });
    }
    None
}

/// Learners that are to vote.
fn enter(members: &Members, rows: &[(NodeId, NodeRow)], waits: &mut Vec<(u64, String)>) -> Option<Step> {
    let mut ready = BTreeSet::new();
    for (NodeId(id), row) in rows {
        let Some(member) = members.members.iter().find(|member| member.id == *id) else { continue };
        if row.role() != NodeRole::Voter || member.voter {
            continue;
        }
        if !member.heard {
            waits.push((*id, format!("not reachable; it lacks {} log entries", member.lag)));
        } else if member.lag > members.slack {
            waits.push((*id, format!("catching up: it lacks {} log entries", member.lag)));
        } else {
            ready.insert(*id);
        }
    }
    if ready.is_empty() {
        return None;
    }
    let with: BTreeSet<u64> = members.voters().chain(ready.iter().copied()).collect();
    match members.majority(&with) {
        Ok(()) => Some(Step::Promote(ready)),
        Err(count) => {
            waits.extend(
                ready.iter().map(|id| (*id, format!("more voters must be reachable first: {count}"))),
            );
            None
        }
    }
}

impl Members {
    fn voters(&self) -> impl Iterator<Item = u64> + '_ {
        self.members.iter().filter(|member| member.voter).map(|member| member.id)
    }

    /// Whether a majority of these was heard of; if not, the numbers in words.
    fn majority(&self, voters: &BTreeSet<u64>) -> Result<(), String> {
        let heard = |id: &&u64| self.members.iter().any(|member| member.id == **id && member.heard);
        let reachable = voters.iter().filter(heard).count();
        let needed = voters.len() / 2 + 1;
        match reachable >= needed {
            true => Ok(()),
            false => Err(format!("{reachable} of {} voters reachable, {needed} needed", voters.len())),
        }
    }

    /// Who leads best instead of the leader: a voter that stays one, is reachable and furthest along. One that is being
    /// drained only when the leader has to go and there is no other.
    fn successor(&self, rows: &[(NodeId, NodeRow)], has_to_go: bool) -> Option<u64> {
        let row = |id: u64| rows.iter().find(|(node, _)| node.0 == id).map(|(_, row)| row);
        let rests = |id: u64| row(id).is_some_and(|row| row.state() == NodeState::Draining);
        self.members
            .iter()
            .filter(|member| member.voter && member.heard && member.id != self.leader)
            .filter(|member| row(member.id).is_some_and(|row| row.role() == NodeRole::Voter))
            .filter(|member| has_to_go || !rests(member.id))
            .min_by_key(|member| (rests(member.id), member.lag, member.id))
            .map(|member| member.id)
    }
}

/// Refuses a command that would leave no majority of reachable voters. What is wanted already counts as done: two
/// removals, one after the other, are looked at together.
///
/// # Errors
/// The rejection, with the numbers.
pub fn check(view: &dyn ReadStore, members: &Members, command: &Command) -> Result<(), Rejection> {
    let (id, doing) = match &command.kind {
        Some(Kind::RemoveNode(remove)) => (remove.node, "removing"),
        Some(Kind::SetNodeRole(set)) if set.role() == NodeRole::Claw => (set.node, "demoting"),
        _ => return Ok(()),
    };
    let stays = |id: &u64| read::node(view, NodeId(*id)).is_some_and(|row| row.role() == NodeRole::Voter);
    let wanted: BTreeSet<u64> = members.voters().filter(stays).collect();
    if !wanted.contains(&id) || wanted.len() == 1 {
        // No voter, or one that `apply` refuses to take.
        return Ok(());
    }
    if members.majority(&members.voters().collect()).is_err() {
        // There is no quorum to lose: proposing says so.
        return Ok(());
    }
    let left = wanted.into_iter().filter(|voter| *voter != id).collect();
    members.majority(&left).map_err(|count| Rejection {
        code: RejectionCode::WouldLoseQuorum as i32,
        message: format!("{doing} node {id} would lose the quorum: {count}"),
    })
}
