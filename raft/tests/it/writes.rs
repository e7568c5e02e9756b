//! Writing and reading on any peer.

use std::time::Duration;

use clawhive_proto::MAX_MESSAGE_BYTES;
use clawhive_raft::ProposeError;
use clawhive_statemachine::Touched;

use crate::cluster::{Cluster, LONG, holds, id, put, status, until, write};

#[tokio::test]
async fn a_write_on_any_peer_reaches_all() {
    let cluster = Cluster::start(3).await;
    for node in cluster.nodes.values() {
        let name = format!("from-{}", id(node));
        let done = write(node, &name, &name).await.unwrap();
        assert_eq!(done.outcomes.len(), 1);
        assert!(done.log_index > 0);
    }
    let writers = cluster.nodes.values().flat_map(|node| (0..50).map(move |n| (node.clone(), n)));
    let all = writers.map(|(node, n)| async move {
        let name = format!("{}-{n}", id(&node));
        write(&node, &name, &format!("value {name}.")).await.unwrap().log_index
    });
    let mut indices = futures::future::join_all(all).await;
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), 150, "each write has a place of its own");
    cluster.assert_equal().await;
    assert!(cluster.nodes.values().all(|node| holds(&node.view(), "value 2-49.")));
}

#[tokio::test]
async fn a_linearizable_read_sees_every_acknowledged_write_on_every_peer() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    for n in 0..30 {
        let value = format!("marker {n}.");
        let done = write(&leader, "key", &value).await.unwrap();
        for node in cluster.nodes.values() {
            let view = node.linearizable_view(LONG).await.unwrap();
            assert!(view.applied_index() >= done.log_index);
            assert!(holds(&view, &value), "node {} misses write {n}", id(node));
        }
    }
}

#[tokio::test]
async fn a_view_does_not_change_under_its_reader() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes[&1];
    write(node, "a", "first").await.unwrap();
    let before = node.view();
    write(node, "a", "second").await.unwrap();
    assert!(holds(&before, "first") && !holds(&before, "second"));
    assert!(holds(&node.view(), "second"));
}

#[tokio::test]
async fn a_feed_starts_with_everything_and_then_tells_of_each_change() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes[&1];
    let mut feed = node.feed();
    assert_eq!(feed.changed().await.unwrap().touched, Touched::ALL);
    let quiet = tokio::time::timeout(Duration::from_millis(100), feed.changed()).await;
    assert!(quiet.is_err(), "nothing happened, nothing is told");
    let done = write(node, "a", "b").await.unwrap();
    let tick = tokio::time::timeout(LONG, feed.changed()).await.unwrap().unwrap();
    assert!(tick.applied_index >= done.log_index);
    assert_ne!(tick.touched, Touched::ALL);
}

#[tokio::test]
async fn what_is_too_large_is_refused_before_it_is_proposed() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.nodes[&1];
    let large = put("large", &"x".repeat(MAX_MESSAGE_BYTES));
    let error = node.propose(large, LONG).await.unwrap_err();
    assert!(matches!(error, ProposeError::TooLarge { limit: MAX_MESSAGE_BYTES, .. }), "{error}");
    assert!(!error.may_have_been_applied());
    let fits = put("fits", &"x".repeat(MAX_MESSAGE_BYTES - 1_000));
    node.propose(fits, LONG).await.unwrap();
}

#[tokio::test]
async fn only_the_leader_proposes_locally() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    leader.propose_local(put("a", "b"), LONG).await.unwrap();
    let error = follower.propose_local(put("a", "c"), LONG).await.unwrap_err();
    assert_eq!(error, ProposeError::NotLeader { leader: Some(id(&leader)) });
    assert!(!error.may_have_been_applied());
}

#[tokio::test]
async fn status_tells_members_and_numbers() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    write(&leader, "a", "b").await.unwrap();
    let seen = until("a settled status", || {
        let status = status(&leader);
        (status.reachable == 3 && status.applied == status.last_log_index).then_some(status)
    })
    .await;
    assert_eq!(seen.voters, [1, 2, 3]);
    assert!(seen.learners.is_empty() && seen.quorum_ok && seen.recovered);
    assert_eq!(seen.members[1].addr, "node-2");
}
