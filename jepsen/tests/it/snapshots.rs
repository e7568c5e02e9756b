//! F-03: a snapshot on its way to a node is damaged, cut off, and the node killed while it installs; and a node whose
//! state went wrong takes itself out and rebuilds. After each, the states of all nodes are equal.

use std::time::{Duration, Instant};

use clawhive_client::Client;
use clawhive_jepsen::cluster::{Cluster, Options};
use clawhive_jepsen::proxy::Proxy;
use futures::StreamExt;
use futures::stream;

use super::support::{alone, binary};

const PATIENCE: Duration = Duration::from_secs(60);

async fn start(env: &[(&str, &str)]) -> Cluster {
    let mut options = Options::new(3, binary());
    options.slots = vec![1];
    options.env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    options.out = std::env::var_os("CLAWHIVE_TEST_LOGS").map(Into::into);
    Cluster::start(options).await.expect("the cluster starts")
}

/// Each put is an entry of its own.
async fn put(client: &Client, keys: std::ops::Range<usize>, bytes: usize) {
    stream::iter(keys)
        .map(|key| {
            let client = client.clone();
            async move {
                // No two alike, so that nothing of one can stand for another.
                let value: Vec<u8> = (0..bytes).map(|at| (key * 31 + at * at) as u8).collect();
                client.put_key("test", format!("key-{key}"), value).await.expect("the write is acknowledged")
            }
        })
        .buffer_unordered(16)
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < limit, "{what} did not come within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Every node has the same state after the same entry.
async fn assert_equal(cluster: &Cluster) {
    let client = cluster.client().unwrap();
    let mut last = None;
    until("equal digests of all nodes", async || {
        last = client.check_digests().await.ok();
        let complete = last.as_ref().is_some_and(|answer| {
            answer.nodes.len() == 3 && answer.nodes.iter().all(|node| node.unavailable.is_empty())
        });
        if complete {
            assert!(last.as_ref().is_some_and(|answer| answer.equal), "{last:?}");
        }
        complete
    })
    .await;
}

/// Has the node at this place applied what the leader had committed at the time of the call?
async fn caught_up(cluster: &Cluster, number: usize) {
    let client = cluster.client().unwrap();
    let goal = client.put_key("test", "goal", "x").await.unwrap();
    until("the node to catch up", async || {
        cluster.status_of(number).await.is_some_and(|status| {
            let id = cluster.members[number].id;
            status.nodes.iter().any(|node| node.id == id && node.applied_index >= goal)
        })
    })
    .await;
}

/// The logs of all nodes since their last start.
fn logs(cluster: &Cluster) -> String {
    (0..3).map(|number| cluster.log_of(number)).collect()
}

#[test]
fn a_snapshot_that_is_damaged_or_cut_off_on_its_way_arrives_whole() {
    alone(|| async {
        let mut cluster =
            start(&[("CLAWHIVE_SNAPSHOT_ENTRIES", "60"), ("CLAWHIVE_SNAPSHOT_KEEP", "10")]).await;
        let client = cluster.client().unwrap();
        // From now on, peers reach the third node over a bad wire.
        let wire = Proxy::start(cluster.members[2].peer_listen.clone()).await.unwrap();
        cluster.members[2].env = vec![("CLAWHIVE_PEER_ADVERTISE".to_owned(), wire.address.clone())];
        cluster.kill(2).unwrap();
        cluster.restart(2).await.unwrap();
        caught_up(&cluster, 2).await;
        cluster.kill(2).unwrap();
        put(&client, 0..150, 96 * 1024).await;
        wire.flip_after(3 << 20);
        cluster.restart(2).await.unwrap();
        caught_up(&cluster, 2).await;
        assert_eq!(wire.flipped(), 1, "nothing was damaged");
        let refused = cluster.log_of(2);
        assert!(refused.contains("a damaged part of a snapshot is refused"), "{refused}");
        let sent = logs(&cluster);
        assert!(sent.contains("sending a snapshot") && sent.contains("from_byte=0"), "{sent}");
        assert_equal(&cluster).await;

        // Cut off half way, twice: it goes on where it was.
        cluster.kill(2).unwrap();
        put(&client, 150..260, 64 * 1024).await;
        // A snapshot that is made meanwhile would be another one, to be sent from its beginning.
        let built = || logs(&cluster).matches("a snapshot is built").count();
        let (mut last, mut since) = (built(), Instant::now());
        until("the last snapshot", async || {
            if built() != last {
                (last, since) = (built(), Instant::now());
            }
            since.elapsed() > Duration::from_secs(1)
        })
        .await;
        let sent_before = logs(&cluster).matches("sending a snapshot").count();
        let before = wire.passed();
        wire.cut_after(5 << 20);
        cluster.restart(2).await.unwrap();
        until("a cut", async || wire.cuts() == 1).await;
        wire.cut_after(4 << 20);
        caught_up(&cluster, 2).await;
        assert!(wire.cuts() >= 1);
        let sent = logs(&cluster);
        let sending: Vec<&str> = sent.lines().filter(|line| line.contains("sending a snapshot")).collect();
        assert!(sending.len() >= sent_before + 2, "{sent}");
        let gone_on = sending.iter().filter(|line| !line.ends_with("from_byte=0")).count();
        // Once behind the damage, and once behind each cut.
        assert!(gone_on >= 2, "{sending:#?}");
        let (passed, whole) = (wire.passed() - before, 22 << 20);
        assert!(passed < whole * 3 / 2, "{passed} bytes for a snapshot of about {whole}");
        assert_equal(&cluster).await;
    });
}

#[test]
fn a_node_killed_while_it_receives_or_installs_has_one_state_or_the_other() {
    alone(|| async {
        let mut cluster =
            start(&[("CLAWHIVE_SNAPSHOT_ENTRIES", "60"), ("CLAWHIVE_SNAPSHOT_KEEP", "10")]).await;
        let client = cluster.client().unwrap();
        let raft = cluster.members[2].data.join("raft");
        let half = |name: &str| {
            let found = std::fs::read_dir(raft.join("snapshots")).into_iter().flatten().flatten();
            let parts = found.filter(|entry| entry.file_name().to_string_lossy().starts_with(name));
            parts.filter_map(|entry| entry.metadata().ok()).any(|meta| meta.len() > 256 * 1024)
        };
        let installing = raft.join("state.new");
        let mut caught = [0; 2];
        // First while bytes come in, then while the new state is made of them: again when it was missed.
        for round in 0..8 {
            let stage = usize::from(caught[0] > 0);
            if caught[stage] > 0 {
                break;
            }
            cluster.kill(2).unwrap();
            put(&client, round * 120..(round + 1) * 120, 64 * 1024).await;
            cluster.spawn(2).unwrap();
            let (limit, mut received) = (Instant::now() + PATIENCE, None);
            loop {
                let now = if stage == 0 { half("part-") } else { installing.exists() };
                if now {
                    caught[stage] += 1;
                    break;
                }
                if cluster.log_of(2).contains("a snapshot is received") {
                    let since: &mut Instant = received.get_or_insert_with(Instant::now);
                    if stage == 0 || since.elapsed() > Duration::from_secs(2) {
                        break;
                    }
                }
                assert!(Instant::now() < limit, "no snapshot came");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            cluster.kill(2).unwrap();
            cluster.restart(2).await.unwrap();
            caught_up(&cluster, 2).await;
            assert_equal(&cluster).await;
            assert!(!installing.exists() && !half("part-"), "something half done was left");
        }
        assert!(caught[0] > 0 && caught[1] > 0, "killed in the middle: {caught:?}");
    });
}

#[test]
fn a_node_with_another_state_takes_itself_out_and_rebuilds() {
    alone(|| async {
        let mut cluster = start(&[("CLAWHIVE_DIGEST_INTERVAL", "500ms")]).await;
        let client = cluster.client().unwrap();
        put(&client, 0..40, 1_000).await;
        assert_equal(&cluster).await;
        // As a bad disk would do it: its own rows do not add up. Then as a bug would: only the others know better.
        for (hide, found) in [(false, "was changed behind our back"), (true, "in the cluster")] {
            assert!(cluster.stop(2, PATIENCE).await.unwrap());
            let state = cluster.members[2].data.join("raft/state.redb");
            clawhive_raft::damage_row(&state, 20, hide).unwrap();
            cluster.restart(2).await.unwrap();
            let mut key = 100;
            until("the rebuild", async || {
                // Something has to change, or nothing is compared.
                key += 1;
                put(&client, key..key + 1, 100).await;
                cluster.log_of(2).contains("this node has rebuilt its state")
            })
            .await;
            let log = cluster.log_of(2);
            assert!(log.contains("this replica takes itself out") && log.contains(found), "{log}");
            assert!(log.contains("log entry "), "{log}");
            caught_up(&cluster, 2).await;
            assert_equal(&cluster).await;
            let aside = std::fs::read_dir(cluster.members[2].data.join("quarantine")).unwrap();
            assert!(aside.count() > 0, "the old state is not kept");
            assert!(!cluster.members[2].data.join("REBUILD.json").exists());
        }
    });
}

/// Small runs of what `clawhive-jepsen away` and `join` measure.
#[test]
fn nodes_that_were_away_or_are_new_catch_up_by_snapshot() {
    use clawhive_jepsen::catch_up::{Options, away, join};
    use clawhive_jepsen::verdict::Exit;
    alone(|| async {
        let options = Options { binary: binary(), out: None };
        assert_eq!(away(&options, 600, 1).await.unwrap(), Exit::Valid);
        let second = Duration::from_secs(1);
        assert_eq!(join(&options, 1, 24 << 20, second, 0.0).await.unwrap(), Exit::Valid);
    });
}
