//! Snapshots between replicas.

use clawhive_raft::Options;

use crate::cluster::{Cluster, LONG, holds, status, until, write};

fn small(options: &mut Options) {
    options.snapshot_entries = 50;
    options.keep_entries = 5;
    options.flush_interval_ms = 20;
}

#[tokio::test]
async fn a_new_follower_gets_a_snapshot_when_the_log_is_gone() {
    let mut cluster = Cluster::tuned(1, small).await;
    let leader = cluster.leader().await;
    for n in 0..300 {
        write(&leader, &format!("key-{n}"), &format!("value {n}.")).await.unwrap();
    }
    let purged = until("a purged log", || {
        let status = status(&leader);
        (status.purged > 20).then_some(status)
    })
    .await;
    assert!(purged.purged <= purged.snapshot && purged.snapshot <= purged.durable);
    cluster.join(2).await;
    assert!(cluster.hub.snapshots() > 0, "the log alone can't have sufficed");
    write(&leader, "last", "the last.").await.unwrap();
    cluster.assert_equal().await;
    assert!(holds(&cluster.nodes[&2].view(), "value 0."));
}

#[tokio::test]
async fn a_follower_that_lagged_behind_catches_up_by_snapshot() {
    let mut cluster = Cluster::tuned(3, small).await;
    let leader = cluster.leader().await;
    let lagging = crate::cluster::id(&cluster.follower().await);
    let others: Vec<u64> = cluster.nodes.keys().copied().filter(|other| *other != lagging).collect();
    write(&leader, "first", "the first.").await.unwrap();
    for other in &others {
        cluster.hub.cut(lagging, *other);
    }
    for n in 0..300 {
        write(&leader, &format!("key-{n}"), &format!("value {n}.")).await.unwrap();
    }
    let behind = cluster.nodes[&lagging].view().applied_index();
    until("a purged log", || (status(&leader).purged > behind).then_some(())).await;
    let before = cluster.hub.snapshots();
    cluster.hub.heal();
    let view = cluster.nodes[&lagging].linearizable_view(LONG).await.unwrap();
    assert!(holds(&view, "value 299."));
    // A view keeps the state file open, and locked.
    drop(view);
    assert!(cluster.hub.snapshots() > before);
    cluster.assert_equal().await;
    // It can be crashed and comes back with everything.
    cluster.crash(lagging).await;
    cluster.open(lagging).await;
    cluster.assert_equal().await;
}
