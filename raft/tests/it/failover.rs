//! Losing leaders, links and quorums.

use std::time::{Duration, Instant};

use clawhive_raft::{ProposeError, ReadError};

use crate::cluster::{Cluster, LONG, holds, id, put, until, write};

#[tokio::test]
async fn a_lost_leader_is_replaced_and_nothing_acknowledged_is_lost() {
    let mut cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let lost = id(&leader);
    write(&leader, "before", "before the crash.").await.unwrap();
    drop(leader);
    cluster.crash(lost).await;
    let survivor = cluster.nodes.values().next().unwrap().clone();
    let begin = Instant::now();
    write(&survivor, "after", "after the crash.").await.unwrap();
    println!("leader lost: first write after {:?}", begin.elapsed());
    let view = survivor.linearizable_view(LONG).await.unwrap();
    assert!(holds(&view, "before the crash.") && holds(&view, "after the crash."));
    cluster.assert_equal().await;
}

#[tokio::test]
async fn writes_without_a_quorum_say_so_in_time() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let alone = id(&leader);
    for other in cluster.nodes.keys().filter(|other| **other != alone) {
        cluster.hub.cut(alone, *other);
    }
    let begin = Instant::now();
    let (patient, hasty, read) = tokio::join!(
        leader.propose(put("a", "patient"), Duration::from_secs(30)),
        leader.propose(put("b", "hasty"), Duration::from_secs(2)),
        leader.linearizable_view(Duration::from_secs(30)),
    );
    assert!(begin.elapsed() < Duration::from_millis(5_500), "took {:?}", begin.elapsed());
    for error in [patient.unwrap_err(), hasty.unwrap_err()] {
        assert!(error.may_have_been_applied());
        let text = error.to_string();
        assert!(text.starts_with(&format!("no quorum: 1 of 3 reachable (node {alone} yes; node ")), "{text}");
        assert!(text.contains(" at node-") && text.ends_with(" not)"), "{text}");
    }
    assert!(matches!(read.err(), Some(ReadError::NoQuorum { who }) if who.heard.len() == 1));
    // The others go on without it.
    let other = cluster.nodes.values().find(|node| id(node) != alone).unwrap();
    write(other, "c", "by the majority.").await.unwrap();
    cluster.hub.heal();
    write(&leader, "d", "healed.").await.unwrap();
    cluster.assert_equal().await;
    assert!(holds(&leader.view(), "by the majority."));
}

#[tokio::test]
async fn a_follower_alone_says_how_many_it_reaches() {
    let mut cluster = Cluster::start(3).await;
    let leader = id(&cluster.leader().await);
    let survivor = cluster.follower().await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|other| *other != id(&survivor)).collect();
    for other in others {
        cluster.crash(other).await;
    }
    let begin = Instant::now();
    let error = survivor.propose(put("a", "b"), Duration::from_secs(4)).await.unwrap_err();
    assert!(begin.elapsed() < Duration::from_millis(4_500));
    match error {
        ProposeError::NoQuorum { ref who, .. } if who.heard.len() == 1 && who.voters() == 3 => {}
        _ => panic!("{error} (the leader was {leader})"),
    }
}

#[tokio::test]
async fn a_read_on_an_isolated_leader_never_answers_stale() {
    let cluster = Cluster::start(3).await;
    let old = cluster.leader().await;
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|other| *other != id(&old)).collect();
    for other in &others {
        cluster.hub.cut(id(&old), *other);
    }
    write(&cluster.nodes[&others[0]], "a", "news.").await.unwrap();
    let read = old.linearizable_view(Duration::from_secs(2)).await;
    assert!(read.is_err(), "the old leader answered at {}", read.unwrap().applied_index());
    cluster.hub.heal();
    let view = old.linearizable_view(LONG).await.unwrap();
    assert!(holds(&view, "news."));
}

#[tokio::test]
async fn leadership_can_be_handed_over_and_members_removed() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let next = cluster.follower().await;
    write(&leader, "a", "b").await.unwrap();
    leader.transfer_leader(id(&next)).await.unwrap();
    until("the new leader", || next.status().borrow().is_leader.then_some(())).await;
    next.remove(id(&leader), LONG).await.unwrap();
    until("two voters", || (next.status().borrow().voters.len() == 2).then_some(())).await;
    write(&next, "c", "by two.").await.unwrap();
}
