//! What a cluster's numbers mean: a word for it, one for each node, and what to do. The words are documented; each of
//! them has one place here.

use clawhive_proto::{ClusterStatusResponse, HealthFinding, NodeRole, NodeView};
use clawhive_raft::Status;
use clawhive_statemachine::ids::NodeId;
use clawhive_statemachine::{ReadStore, read};

use super::cluster::Heard;

/// A member that lacks more entries than this is behind; under load a healthy one lacks what is just being written.
const BEHIND: u64 = 10_000;

/// Fills in the words and the findings.
pub(super) fn judge(
    response: &mut ClusterStatusResponse,
    status: &Status,
    heard: &Heard,
    view: &dyn ReadStore,
) {
    let last = response.last_log_index;
    for node in &mut response.nodes {
        let seen = Seen {
            answers: heard.answers.contains_key(&node.id),
            member: status.members.iter().any(|peer| peer.id == node.id),
            removed: read::removed(view, NodeId(node.id)).is_some(),
            wants_vote: node.row.as_ref().is_some_and(|row| row.role() == NodeRole::Voter),
        };
        let (word, note) = node_word(node, &seen, last);
        node.health = word.to_owned();
        node.note = note;
    }
    let mut findings = of_cluster(response, status, heard);
    findings.extend(response.nodes.iter().filter_map(of_node));
    findings.extend(of_size(response));
    response.health = cluster_word(response).to_owned();
    response.findings = findings;
}

/// What is known of a node besides its view.
struct Seen {
    answers: bool,
    member: bool,
    removed: bool,
    wants_vote: bool,
}

fn node_word(node: &NodeView, seen: &Seen, last: u64) -> (&'static str, String) {
    let lacks = format!("it lacks {} of {last} log entries", node.lag);
    let learner = seen.wants_vote && node.role == "learner";
    if seen.removed {
        let vote = if node.role == "voter" { "; it still has its vote" } else { "" };
        return ("removing", format!("removed from the table of nodes, not from Raft yet{vote}"));
    }
    if !seen.answers && seen.member {
        let note = match learner {
            true => format!("not reachable while catching up: {lacks}; it has no vote yet"),
            false => "not reachable".to_owned(),
        };
        return ("down", note);
    }
    if !seen.member {
        return ("joining", "Raft does not count it yet".to_owned());
    }
    if learner {
        return ("catching_up", format!("{lacks}; it gets its vote once it keeps up"));
    }
    if node.lag > BEHIND {
        return ("behind", lacks);
    }
    let losing_vote = node.role == "voter" && !seen.wants_vote;
    match (node.state.as_str(), node.running) {
        _ if losing_vote => ("ok", "it is to lose its vote".to_owned()),
        ("draining", 0) => ("draining", "drained: nothing runs on it".to_owned()),
        ("draining", running) => ("draining", format!("{running} attempts still run on it")),
        _ => ("ok", String::new()),
    }
}

fn cluster_word(response: &ClusterStatusResponse) -> &'static str {
    let whole = response.reachable == response.voters;
    let settled = |node: &NodeView| matches!(node.health.as_str(), "ok" | "draining");
    if !response.quorum {
        "no_quorum"
    } else if !whole && response.tolerates == 0 {
        "at_risk"
    } else if response.leader == 0 || response.changing || !response.nodes.iter().all(settled) {
        "degraded"
    } else {
        "ok"
    }
}

fn finding(code: &str, message: String, help: &str, node: u64) -> HealthFinding {
    HealthFinding { code: code.to_owned(), message, help: help.to_owned(), node }
}

fn of_cluster(response: &ClusterStatusResponse, status: &Status, heard: &Heard) -> Vec<HealthFinding> {
    let mut found = Vec::new();
    if !response.quorum {
        // The members were asked just now: that is newer than what Raft has heard.
        let now = Status { heard: heard.answers.keys().copied().collect(), ..status.clone() };
        let message = format!("no quorum: {}", now.reachability());
        let help = "start the voters that are down: nothing is decided without a majority of them. Runs and schedules go on \
                    from where they are";
        found.push(finding("no-quorum", message, help, 0));
    } else {
        if response.leader == 0 {
            let help = "an election takes about a second; look again";
            found.push(finding("no-leader", "there is no leader at the moment".to_owned(), help, 0));
        }
        if response.reachable < response.voters && response.tolerates == 0 {
            let (reachable, voters) = (response.reachable, response.voters);
            let message = format!(
                "{reachable} of {voters} voters are reachable: if one more is lost, nothing is decided any more"
            );
            let help = "bring back what is down, or replace it: node remove, and a new node with --join";
            found.push(finding("at-risk", message, help, 0));
        }
    }
    if response.changing {
        let message = "the membership is half way between two configurations".to_owned();
        found.push(finding("changing", message, "the leader finishes it; look again", 0));
    }
    found
}

fn of_node(node: &NodeView) -> Option<HealthFinding> {
    let id = node.id;
    let addr = node.row.as_ref().map(|row| row.peer_listen.as_str()).unwrap_or_default();
    let (code, help) = match node.health.as_str() {
        "down" => (
            "node-down",
            format!(
                "start it again; if it is lost for good: clawhive node remove {id}, and a new node with --join"
            ),
        ),
        "catching_up" => ("catching-up", format!("wait; clawhive node remove {id} gives it up")),
        "behind" => {
            ("behind", "wait; if it does not get less, its disk or its network is too slow".to_owned())
        }
        "joining" => ("joining", "wait; the leader makes it a member".to_owned()),
        "removing" => ("removing", "wait; if it stays, more voters must be reachable first".to_owned()),
        "draining" => ("draining", format!("clawhive node activate {id} gives it work again")),
        _ => return None,
    };
    Some(finding(code, format!("node {id} at {addr}: {}", node.note), &help, id))
}

/// How many voters are a good number.
fn of_size(response: &ClusterStatusResponse) -> Option<HealthFinding> {
    let voters = response.voters;
    let tolerates = |voters: u32| (voters.max(1) - 1) / 2;
    if voters == 1 {
        let message = "one voter: the cluster stops when it does".to_owned();
        return Some(finding(
            "no-spare",
            message,
            "three voters tolerate the loss of one: clawhive node join",
            0,
        ));
    }
    if voters == 2 {
        let message = "two voters: the cluster stops when either does".to_owned();
        return Some(finding(
            "no-spare",
            message,
            "three voters tolerate the loss of one: clawhive node join",
            0,
        ));
    }
    if voters.is_multiple_of(2) {
        let message = format!(
            "{voters} voters tolerate the loss of {}, no more than {} do",
            tolerates(voters),
            voters - 1
        );
        let help = "add one, or demote one to a claw (clawhive node demote)";
        return Some(finding("even-voters", message, help, 0));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::NodeRow;

    fn node(id: u64, health: &str) -> NodeView {
        let row = NodeRow { peer_listen: format!("10.0.0.{id}:7401"), ..NodeRow::default() };
        NodeView { id, row: Some(row), health: health.to_owned(), ..NodeView::default() }
    }

    fn cluster(voters: u32, reachable: u32, nodes: Vec<NodeView>) -> ClusterStatusResponse {
        let majority = voters / 2 + 1;
        ClusterStatusResponse {
            voters,
            reachable,
            quorum: reachable >= majority,
            tolerates: reachable.saturating_sub(majority),
            leader: 1,
            nodes,
            ..ClusterStatusResponse::default()
        }
    }

    #[test]
    fn the_word_of_a_cluster_is_about_what_may_still_be_lost() {
        let all = |health: &str| vec![node(1, "ok"), node(2, "ok"), node(3, health)];
        assert_eq!(cluster_word(&cluster(3, 3, all("ok"))), "ok");
        assert_eq!(cluster_word(&cluster(3, 3, all("draining"))), "ok");
        assert_eq!(cluster_word(&cluster(3, 3, all("behind"))), "degraded");
        assert_eq!(cluster_word(&cluster(3, 2, all("down"))), "at_risk");
        assert_eq!(cluster_word(&cluster(5, 4, all("down"))), "degraded");
        assert_eq!(cluster_word(&cluster(5, 3, all("down"))), "at_risk");
        assert_eq!(cluster_word(&cluster(3, 1, all("down"))), "no_quorum");
        // Nothing is missing: small clusters are what they are.
        assert_eq!(cluster_word(&cluster(1, 1, vec![node(1, "ok")])), "ok");
        assert_eq!(cluster_word(&cluster(2, 2, all("ok"))), "ok");
        // A claw that is away costs no quorum, but is missed.
        assert_eq!(cluster_word(&cluster(3, 3, all("down"))), "degraded");
        assert_eq!(
            cluster_word(&ClusterStatusResponse { leader: 0, ..cluster(3, 3, all("ok")) }),
            "degraded"
        );
    }

    #[test]
    fn even_numbers_of_voters_get_a_hint() {
        let hint = |voters| of_size(&cluster(voters, voters, Vec::new())).map(|found| found.message);
        assert_eq!(hint(4).unwrap(), "4 voters tolerate the loss of 1, no more than 3 do");
        assert_eq!(hint(6).unwrap(), "6 voters tolerate the loss of 2, no more than 5 do");
        assert_eq!((hint(3), hint(5)), (None, None));
        assert!(hint(1).unwrap().starts_with("one voter"));
    }

    #[test]
    fn a_node_that_catches_up_says_with_numbers_how_far_it_is() {
        let seen = |answers| Seen { answers, member: true, removed: false, wants_vote: true };
        let learner = NodeView { role: "learner".into(), lag: 4_200, ..node(4, "") };
        assert_eq!(
            node_word(&learner, &seen(true), 10_000),
            (
                "catching_up",
                "it lacks 4200 of 10000 log entries; it gets its vote once it keeps up".to_owned()
            )
        );
        assert_eq!(
            node_word(&learner, &seen(false), 10_000),
            (
                "down",
                "not reachable while catching up: it lacks 4200 of 10000 log entries; it has no vote yet"
                    .to_owned()
            )
        );
        let voter = NodeView { role: "voter".into(), state: "draining".into(), running: 2, ..node(4, "") };
        assert_eq!(node_word(&voter, &seen(true), 5).1, "2 attempts still run on it");
    }
}
