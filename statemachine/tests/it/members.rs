//! Raft's membership follows the table of nodes: which step is next, which one waits, what is refused.

use std::collections::BTreeSet;

use clawhive_statemachine::plan::members::{Member, Members, Step, check, plan};
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::*;

use crate::cluster::{Cluster, register};

/// A table of nodes 1 to `size`, and a membership that has them all as voters, node 1 leading.
struct Hive {
    cluster: Cluster,
    members: Members,
}

fn add(join: u8, node: u64) -> Kind {
    Kind::AddNode(AddNode {
        join_id: vec![join; 16],
        node,
        listen: format!("a:{join}"),
        peer_listen: format!("p:{join}"),
        ..AddNode::default()
    })
}

fn remove(node: u64) -> Kind {
    Kind::RemoveNode(RemoveNode { node })
}

fn role(node: u64, role: NodeRole) -> Kind {
    Kind::SetNodeRole(SetNodeRole { node, role: role as i32 })
}

fn state(node: u64, state: NodeState) -> Kind {
    Kind::SetNodeState(SetNodeState { node, state: state as i32 })
}

impl Hive {
    fn of(size: u64) -> Hive {
        let mut cluster = Cluster::new();
        // Node n is added by entry n, so that ids and log indices agree.
        for id in 1..=size {
            let answer = cluster.run(add(id as u8, 0));
            assert_eq!(answer, Answer::NodeAdded(NodeAdded { node: id }));
        }
        let member = |id| Member { id, addr: format!("p:{id}"), voter: true, heard: true, lag: 0 };
        let members =
            Members { leader: 1, joint: false, slack: 0, members: (1..=size).map(member).collect() };
        Hive { cluster, members }
    }

    fn member(&mut self, id: u64) -> &mut Member {
        self.members.members.iter_mut().find(|member| member.id == id).unwrap()
    }

    fn dead(&mut self, ids: &[u64]) {
        for id in ids {
            self.member(*id).heard = false;
        }
    }

    fn step(&self) -> Option<Step> {
        plan(&self.cluster.store, &self.members).step
    }

    fn waits(&self) -> Vec<(u64, String)> {
        plan(&self.cluster.store, &self.members).waits
    }

    /// What the leader says to a command before it proposes it.
    fn refusal(&self, kind: Kind) -> Option<String> {
        let refused = check(&self.cluster.store, &self.members, &Command { kind: Some(kind) }).err()?;
        assert_eq!(refused.code(), RejectionCode::WouldLoseQuorum);
        Some(refused.message)
    }

    fn rejection(&mut self, kind: Kind) -> (RejectionCode, String) {
        match self.cluster.run(kind) {
            Answer::Rejected(rejection) => (rejection.code(), rejection.message),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_becomes_a_learner_and_a_voter_once_it_is_close() {
    let mut hive = Hive::of(1);
    hive.cluster.run(add(9, 0));
    let addr = "p:9".to_owned();
    assert_eq!(hive.step(), Some(Step::Add { node: 2, addr: addr.clone() }));
    hive.members.members.push(Member { id: 2, addr, voter: false, heard: true, lag: 40 });
    assert_eq!(hive.step(), None);
    assert_eq!(hive.waits(), [(2, "catching up: it lacks 40 log entries".to_owned())]);
    // Under load nobody ever lacks nothing: it keeps up.
    hive.members.slack = 40;
    // On an idle cluster a node that is cut off lacks nothing, and must not be counted in all the same.
    hive.member(2).heard = false;
    assert_eq!(hive.step(), None);
    assert_eq!(hive.waits(), [(2, "not reachable; it lacks 40 log entries".to_owned())]);
    hive.member(2).heard = true;
    assert_eq!(hive.step(), Some(Step::Promote(BTreeSet::from([2]))));
    hive.member(2).voter = true;
    assert_eq!(hive.step(), None);
    // It moves.
    hive.member(2).addr = "elsewhere".to_owned();
    assert_eq!(hive.step(), Some(Step::Add { node: 2, addr: "p:9".to_owned() }));
}

#[test]
fn learners_that_are_ready_together_get_their_votes_together() {
    let mut hive = Hive::of(3);
    hive.member(2).voter = false;
    hive.member(3).voter = false;
    assert_eq!(hive.step(), Some(Step::Promote(BTreeSet::from([2, 3]))));
}

#[test]
fn a_vote_is_not_given_when_that_would_lose_the_quorum() {
    let mut hive = Hive::of(4);
    hive.member(4).voter = false;
    hive.dead(&[3]);
    assert_eq!(hive.step(), Some(Step::Promote(BTreeSet::from([4]))));
    hive.dead(&[2]);
    assert_eq!(hive.step(), None);
    let why = "more voters must be reachable first: 2 of 4 voters reachable, 3 needed";
    assert_eq!(hive.waits(), [(4, why.to_owned())]);
}

/// F-06: of five, two dead ones go; a living one must not.
#[test]
fn dead_nodes_are_removed_and_living_ones_not_when_that_loses_the_majority() {
    let mut hive = Hive::of(5);
    hive.dead(&[4, 5]);
    assert_eq!(
        hive.refusal(remove(3)).unwrap(),
        "removing node 3 would lose the quorum: 2 of 4 voters reachable, 3 needed"
    );
    assert_eq!(
        hive.refusal(role(3, NodeRole::Claw)).unwrap(),
        "demoting node 3 would lose the quorum: 2 of 4 voters reachable, 3 needed"
    );
    assert_eq!(hive.refusal(remove(4)), None);
    hive.cluster.run(remove(4));
    assert_eq!(hive.refusal(remove(5)), None);
    hive.cluster.run(remove(5));
    assert_eq!(hive.step(), Some(Step::Remove(4)));
    hive.members.members.remove(3);
    assert_eq!(hive.step(), Some(Step::Remove(5)));
    hive.members.members.remove(3);
    assert_eq!(hive.step(), None);
    assert_eq!(hive.refusal(remove(3)), None);
}

/// What is wanted counts as done, also before Raft has followed.
#[test]
fn two_removals_are_looked_at_together() {
    let mut hive = Hive::of(4);
    hive.dead(&[4]);
    assert_eq!(hive.refusal(remove(3)), None);
    hive.cluster.run(remove(3));
    assert_eq!(
        hive.refusal(remove(2)).unwrap(),
        "removing node 2 would lose the quorum: 1 of 2 voters reachable, 2 needed"
    );
}

/// Two changes that were proposed at the same time, or a voter that died since.
#[test]
fn a_removal_that_was_decided_waits_when_the_majority_went_meanwhile() {
    let mut hive = Hive::of(3);
    hive.cluster.run(remove(3));
    hive.dead(&[2]);
    assert_eq!(hive.step(), None);
    let why = "it keeps its vote until more voters are reachable: 1 of 2 voters reachable, 2 needed";
    assert_eq!(hive.waits(), [(3, why.to_owned())]);
    hive.member(2).heard = true;
    assert_eq!(hive.step(), Some(Step::Remove(3)));
}

#[test]
fn a_half_done_change_comes_first() {
    let mut hive = Hive::of(3);
    hive.cluster.run(remove(3));
    hive.members.joint = true;
    assert_eq!(hive.step(), Some(Step::Finish));
}

#[test]
fn a_leader_hands_over_before_it_loses_its_vote() {
    let mut hive = Hive::of(3);
    hive.member(2).lag = 5;
    hive.cluster.run(remove(1));
    assert_eq!(hive.step(), Some(Step::HandOver { to: 3 }));
    hive.members.leader = 3;
    assert_eq!(hive.step(), Some(Step::Remove(1)));
    let mut hive = Hive::of(3);
    hive.cluster.run(role(1, NodeRole::Claw));
    assert!(matches!(hive.step(), Some(Step::HandOver { .. })));
    hive.members.leader = 2;
    assert_eq!(hive.step(), Some(Step::Demote(1)));
    // A drained one rests, if there is another; it keeps its vote.
    let mut hive = Hive::of(2);
    hive.cluster.run(state(1, NodeState::Draining));
    assert_eq!(hive.step(), Some(Step::HandOver { to: 2 }));
    hive.cluster.run(state(2, NodeState::Draining));
    assert_eq!(hive.step(), None);
    // One that has to go takes what there is.
    hive.cluster.run(remove(1));
    assert_eq!(hive.step(), Some(Step::HandOver { to: 2 }));
}

#[test]
fn the_last_voter_stays() {
    let mut hive = Hive::of(1);
    let text = "node 1 is the only voter; a cluster has at least one";
    for kind in [remove(1), role(1, NodeRole::Claw)] {
        assert_eq!(hive.refusal(kind.clone()), None);
        assert_eq!(hive.rejection(kind), (RejectionCode::LastVoter, text.to_owned()));
    }
}

#[test]
fn a_removed_node_does_not_come_back_under_its_id() {
    let mut hive = Hive::of(3);
    hive.cluster.run(register(3, 1, 2));
    assert_eq!(hive.cluster.run(remove(3)), Answer::Done(Done {}));
    let (code, text) = hive.rejection(add(3, 3));
    assert_eq!(code, RejectionCode::NodeRemoved);
    assert!(
        text.starts_with("node 3 was removed from the cluster; to bring the machine back, empty"),
        "{text}"
    );
    // Nor does another directory take its id, nor its claw register.
    assert_eq!(hive.rejection(add(77, 3)).0, RejectionCode::NodeRemoved);
    assert_eq!(hive.rejection(register(3, 2, 2)).0, RejectionCode::NodeRemoved);
    for kind in [remove(3), role(3, NodeRole::Claw), state(3, NodeState::Draining)] {
        assert_eq!(
            hive.rejection(kind),
            (RejectionCode::NotFound, "there is no node 3; it was removed".into())
        );
    }
    // Its address is free again, its id is not.
    let Answer::NodeAdded(NodeAdded { node }) = hive.cluster.run({
        let Kind::AddNode(mut again) = add(78, 0) else { unreachable!() };
        again.peer_listen = "p:3".into();
        Kind::AddNode(again)
    }) else {
        panic!("not added")
    };
    assert_eq!(node, hive.cluster.log.len() as u64);
}

/// F-04: a wiped disk behind the address of a node.
#[test]
fn a_new_directory_behind_a_known_address_is_refused_with_the_instruction() {
    let mut hive = Hive::of(3);
    let Kind::AddNode(mut wiped) = add(50, 0) else { unreachable!() };
    wiped.peer_listen = "p:3".into();
    let (code, text) = hive.rejection(Kind::AddNode(wiped));
    assert_eq!(code, RejectionCode::AddressTaken);
    assert!(
        text.contains("p:3 is the address of node 3") && text.contains("clawhive node remove 3"),
        "{text}"
    );
    // Nodes that are known may change addresses as they like, also with each other.
    let Kind::AddNode(mut moved) = add(2, 2) else { unreachable!() };
    moved.peer_listen = "p:3".into();
    assert_eq!(hive.cluster.run(Kind::AddNode(moved)), Answer::NodeAdded(NodeAdded { node: 2 }));
}

#[test]
fn the_table_knows_the_role_better_than_a_restarted_node() {
    let mut hive = Hive::of(3);
    hive.cluster.run(role(3, NodeRole::Claw));
    hive.cluster.run(add(3, 3));
    assert_eq!(hive.step(), Some(Step::Demote(3)));
}
