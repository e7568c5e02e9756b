//! Changes of the membership that are cut off half way, or meet nodes that are away.

use std::time::Duration;

use clawhive_raft::{MemberError, Replica};

use crate::cluster::{Cluster, LONG, id, status, until, write};

/// Starts a change and leaves it as a leader does that dies after the first of its two steps.
async fn half_done(leader: &Replica, promoted: u64) {
    let left = leader.promote([promoted], Duration::ZERO).await;
    assert_eq!(left, Err(MemberError::Timeout));
    until("a joint configuration", || status(leader).joint.then_some(())).await;
}

#[tokio::test]
async fn a_half_done_change_is_finished_by_the_next_leader() {
    let mut cluster = Cluster::start(3).await;
    cluster.open(4).await;
    let leader = cluster.leader().await;
    leader.add_learner(4, "node-4", LONG).await.unwrap();
    half_done(&leader, 4).await;
    write(&leader, "a", "in the joint configuration.").await.unwrap();
    let lost = id(&leader);
    drop(leader);
    cluster.crash(lost).await;
    let next = cluster.leader().await;
    assert!(status(&next).joint, "{:?}", status(&next));
    next.finish_change(LONG).await.unwrap();
    let seen = until("one configuration", || {
        let status = status(&next);
        (!status.joint).then_some(status)
    })
    .await;
    assert_eq!(seen.voters, [1, 2, 3, 4]);
    write(&next, "b", "after it.").await.unwrap();
    cluster.assert_equal().await;
}

/// F-06: of five, two are dead and leave; the third one that is left may die then.
#[tokio::test]
async fn dead_voters_leave_and_the_majority_shrinks_with_them() {
    let mut cluster = Cluster::start(5).await;
    for dead in [4, 5] {
        if id(&cluster.leader().await) == dead {
            cluster.nodes[&dead].transfer_leader(1).await.unwrap();
            until("another leader", || (status(&cluster.nodes[&1]).leader == Some(1)).then_some(())).await;
        }
        cluster.crash(dead).await;
    }
    let leader = cluster.leader().await;
    for dead in [4, 5] {
        leader.remove(dead, LONG).await.unwrap();
    }
    let seen =
        until("three voters", || Some(status(&leader)).filter(|status| status.voters == [1, 2, 3])).await;
    assert_eq!(seen.members.len(), 3);
    let other = id(&cluster.follower().await);
    cluster.crash(other).await;
    write(&leader, "a", "two of three.").await.unwrap();
}

#[tokio::test]
async fn a_demoted_voter_follows_without_a_vote() {
    let cluster = Cluster::start(3).await;
    let leader = cluster.leader().await;
    let demoted = id(&cluster.follower().await);
    leader.demote(demoted, LONG).await.unwrap();
    write(&leader, "a", "without its vote.").await.unwrap();
    let seen = until("a learner", || {
        let status = status(&cluster.nodes[&demoted]);
        (status.learners == [demoted]).then_some(status)
    })
    .await;
    assert_eq!(seen.voters.len(), 2);
    cluster.assert_equal().await;
}

#[tokio::test]
async fn a_leader_knows_how_far_a_learner_is_and_whether_it_is_there() {
    let mut cluster = Cluster::start(1).await;
    let leader = cluster.leader().await;
    for number in 0..50 {
        write(&leader, "a", &format!("value {number}")).await.unwrap();
    }
    // It is a member before it is there.
    leader.add_learner(2, "node-2", LONG).await.unwrap();
    let member = |leader: &Replica| status(leader).group().members.into_iter().find(|member| member.id == 2);
    let away = member(&leader).unwrap();
    assert!(!away.heard && !away.voter && away.lag >= 50, "{away:?}");
    write(&leader, "a", "a learner that is away holds nothing up.").await.unwrap();
    cluster.open(2).await;
    until("a learner that has caught up", || {
        member(&leader).filter(|member| member.heard && member.lag == 0)
    })
    .await;
}
