//! Three replicas in this process over links in memory: writes at several concurrencies, and linearizable reads. The
//! disk is real, the network is not, so the figures bound what any transport can reach.

#[path = "../tests/it/hub.rs"]
mod hub;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clawhive_proto::{Command, Proposal, PutKey, command};
use clawhive_raft::{Clock, Options, Replica, Seams};
use hub::{Hub, Port};

const LONG: Duration = Duration::from_secs(30);
const SPAN: Duration = Duration::from_secs(4);

struct Wall;

impl Clock for Wall {
    fn now_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }
}

async fn cluster(dir: &std::path::Path, hub: &Arc<Hub>) -> Vec<Replica> {
    let mut nodes = Vec::new();
    for id in 1..=3 {
        let options = Options { dir: dir.join(id.to_string()), node_id: id, ..Options::default() };
        let seams = Seams::new(Arc::new(Port { hub: hub.clone(), from: id }), Arc::new(Wall));
        let node = Replica::open(options, seams).await.expect("it opens");
        hub.plug(id, node.clone());
        nodes.push(node);
    }
    nodes[0].bootstrap("1").await.expect("it leads");
    for id in 2..=3 {
        nodes[0].add_learner(id, &id.to_string(), LONG).await.expect("it joins");
        nodes[0].promote([id], LONG).await.expect("it votes");
    }
    nodes
}

fn put(n: u64) -> Proposal {
    let put = PutKey { namespace: "bench".to_owned(), key: format!("{n:012}"), value: vec![7; 256].into() };
    Proposal {
        request_id: u128::from(n).to_be_bytes().to_vec(),
        actor: "bench".to_owned(),
        commands: vec![Command { kind: Some(command::Kind::PutKey(put)) }],
    }
}

/// Runs `clients` loops for a while and prints rate and latencies.
async fn measure<F, Fut>(name: &str, clients: usize, work: F)
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let begin = Instant::now();
    let loops = (0..clients).map(|_| {
        let work = work.clone();
        tokio::spawn(async move {
            let mut took = Vec::new();
            while begin.elapsed() < SPAN {
                let start = Instant::now();
                work().await;
                took.push(start.elapsed());
            }
            took
        })
    });
    let mut took: Vec<Duration> =
        futures::future::join_all(loops).await.into_iter().flat_map(|took| took.expect("it ran")).collect();
    took.sort_unstable();
    let rate = took.len() as f64 / begin.elapsed().as_secs_f64();
    println!(
        "{name} × {clients}: {rate:.0}/s, p50 {:?}, p99 {:?}",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
}

/// Takes the leader off the network, by its links or as a whole, until another node has committed a write.
async fn failover(hub: &Arc<Hub>, nodes: &[Replica], pulled: bool, n: u64) -> Duration {
    let lost = loop {
        let led = nodes
            .iter()
            .position(|node| node.status().borrow().is_leader && node.status().borrow().quorum_ok);
        match led {
            Some(led) => break led,
            None => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let id = lost as u64 + 1;
    let begin = Instant::now();
    if pulled {
        hub.unplug(id);
    }
    for other in (1..=3).filter(|other| *other != id) {
        hub.cut(id, other);
    }
    let other = &nodes[(lost + 1) % nodes.len()];
    other.propose(put(n), LONG).await.expect("the others go on");
    let took = begin.elapsed();
    hub.plug(id, nodes[lost].clone());
    hub.heal();
    nodes[lost].linearizable_view(LONG).await.expect("it comes back");
    took
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let hub = Arc::new(Hub::default());
    let nodes = cluster(dir.path(), &hub).await;
    let leader = nodes[0].clone();
    let next = Arc::new(AtomicU64::new(1));
    for clients in [1, 64, 256, 1_024] {
        let (leader, next) = (leader.clone(), next.clone());
        measure("write on the leader", clients, move || {
            let (leader, n) = (leader.clone(), next.fetch_add(1, Ordering::Relaxed));
            async move { drop(leader.propose(put(n), LONG).await.expect("it commits")) }
        })
        .await;
    }
    for (name, node) in [("linearizable read on the leader", 0), ("linearizable read on a follower", 1)] {
        for clients in [1, 64] {
            let node = nodes[node].clone();
            measure(name, clients, move || {
                let node = node.clone();
                async move { drop(node.linearizable_view(LONG).await.expect("it reads")) }
            })
            .await;
        }
    }
    let mut next = 1 << 40;
    for (name, pulled) in [("isolated", false), ("gone", true)] {
        for _ in 0..5 {
            let took = failover(&hub, &nodes, pulled, next).await;
            println!("leader {name} → first committed write elsewhere: {took:?}");
            next += 1;
        }
    }
    println!("{} snapshots were carried", hub.snapshots());
    for node in nodes {
        node.shutdown().await;
    }
}
