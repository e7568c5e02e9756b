//! Crashing and coming back: the state is behind the log then, and must catch up from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clawhive_raft::Options;

use crate::cluster::{Cluster, LONG, digest, holds, id, status, until, write};

/// The flusher comes rarely: after a crash nearly everything is applied again from the log.
fn lazy(options: &mut Options) {
    options.flush_interval_ms = 3_600_000;
}

#[tokio::test]
async fn a_whole_cluster_crashes_and_keeps_every_acknowledged_write() {
    let mut cluster = Cluster::tuned(3, lazy).await;
    let leader = cluster.leader().await;
    for n in 0..100 {
        write(&leader, &format!("key-{n}"), &format!("value {n}.")).await.unwrap();
    }
    let before = digest(&leader.linearizable_view(LONG).await.unwrap());
    assert_eq!(status(&leader).durable, 0, "nothing was flushed, or this test tests nothing");
    drop(leader);
    for id in 1..=3 {
        cluster.crash(id).await;
    }
    for id in 1..=3 {
        cluster.open(id).await;
    }
    let leader = cluster.leader().await;
    let view = leader.linearizable_view(LONG).await.unwrap();
    assert_eq!(digest(&view), before);
    cluster.assert_equal().await;
    for node in cluster.nodes.values() {
        node.wait_recovered(LONG).await.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_of_one_comes_back_by_itself() {
    let mut cluster = Cluster::start(1).await;
    let mut last = write(&cluster.nodes[&1].clone(), "a", "before.").await.unwrap().log_index;
    for graceful in [true, false] {
        if graceful {
            let node = cluster.nodes.remove(&1).unwrap();
            cluster.hub.unplug(1);
            node.shutdown().await;
            assert!(node.view().applied_index() >= last);
        } else {
            cluster.crash(1).await;
        }
        let node = cluster.open(1).await;
        node.wait_recovered(LONG).await.unwrap();
        assert!(holds(&node.linearizable_view(LONG).await.unwrap(), "before."));
        // It belongs to a cluster already.
        node.bootstrap("elsewhere").await.unwrap();
        last = write(&node, "b", "after.").await.unwrap().log_index;
    }
}

#[tokio::test]
async fn members_crash_one_after_the_other_under_writes() {
    let mut cluster = Cluster::start(3).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut acknowledged = Vec::new();
    for round in 0..3u64 {
        let victim = round % 3 + 1;
        let writers: Vec<_> = cluster
            .nodes
            .values()
            .filter(|node| id(node) != victim)
            .cloned()
            .map(|node| {
                let stop = stop.clone();
                tokio::spawn(async move {
                    let mut done = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let value = format!("round {round} node {} write {}.", id(&node), done.len());
                        write(&node, &value, &value).await.unwrap();
                        done.push(value);
                    }
                    done
                })
            })
            .collect();
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        cluster.crash(victim).await;
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        cluster.open(victim).await;
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        stop.store(false, Ordering::Relaxed);
        until("the victim's recovery", || status(&cluster.nodes[&victim]).recovered.then_some(())).await;
    }
    assert!(acknowledged.len() > 20, "only {} writes", acknowledged.len());
    for node in cluster.nodes.values() {
        let view = node.linearizable_view(LONG).await.unwrap();
        for value in &acknowledged {
            assert!(holds(&view, value), "node {} lost {value}", id(node));
        }
    }
    cluster.assert_equal().await;
}

#[tokio::test]
async fn the_log_is_purged_only_behind_the_durable_state() {
    let mut cluster = Cluster::tuned(1, |options| {
        options.flush_interval_ms = 3_600_000;
        options.snapshot_entries = 40;
        options.keep_entries = 3;
    })
    .await;
    let node = cluster.leader().await;
    let mut values = Vec::new();
    for n in 0..150 {
        values.push(format!("value {n}."));
        write(&node, &format!("key-{n}"), &values[n]).await.unwrap();
    }
    let purged = until("a purged log", || Some(status(&node)).filter(|status| status.purged > 0)).await;
    assert!(purged.purged <= purged.durable, "{purged:?}");
    drop(node);
    cluster.crash(1).await;
    let node = cluster.open(1).await;
    let view = node.linearizable_view(LONG).await.unwrap();
    assert!(values.iter().all(|value| holds(&view, value)));
}
