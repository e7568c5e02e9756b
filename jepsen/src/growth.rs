//! A cluster that grows from one voter to five and shrinks to three while clients write and nodes are killed. Owns the
//! course of it and the judgement: every acknowledged write is there on every node, and all nodes hold the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clawhive_client::proto::GetKeyRequest;
use clawhive_client::{Client, Error};
use futures::StreamExt;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::rng::Rng;
use crate::verdict::Exit;

/// How long a step may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// Where the output of the nodes goes.
    pub out: Option<PathBuf>,
    /// Whom to kill.
    pub seed: u64,
    /// Clients that write at once.
    pub clients: usize,
    /// How long the load goes on after each change of the membership.
    pub pause: Duration,
    /// How often the cluster grows and shrinks.
    pub rounds: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Writes of which it is not known whether they happened.
    pub unknown: u64,
    /// Nodes that were killed.
    pub kills: usize,
    /// The longest time without an acknowledged write.
    pub longest_gap: Duration,
    /// What was promised and not kept.
    pub broken: Vec<String>,
    /// Of each client, how many of its keys were acknowledged: 0 to this.
    keys: Vec<u64>,
}

/// Runs it, prints what happened, and says how it went.
pub async fn run(options: &Options) -> Result<Exit> {
    let report = grow_and_shrink(options).await?;
    println!(
        "{} writes acknowledged, {} unknown, {} kills; longest time without a write {:?}",
        report.acknowledged, report.unknown, report.kills, report.longest_gap
    );
    for line in report.broken.iter().take(20) {
        println!("broken: {line}");
    }
    let exit = match (report.broken.is_empty(), report.acknowledged > 0 && report.kills > 0) {
        (false, _) => Exit::Invalid,
        (true, false) => Exit::Vacuous,
        (true, true) => Exit::Valid,
    };
    println!("verdict: {} (seed {})", exit.name(), options.seed);
    Ok(exit)
}

/// One to three to five to three voters, with a kill in each size that bears one.
pub async fn grow_and_shrink(options: &Options) -> Result<Report> {
    let cluster = ClusterOptions { out: options.out.clone(), ..ClusterOptions::new(1, &options.binary) };
    let mut cluster = Cluster::start(cluster).await?;
    let load = Load::start(options.clients);
    load.aim(cluster.client()?);
    let mut rng = Rng::of(options.seed, &[23]);
    let mut kills = 0;
    for round in 0..options.rounds {
        for voters in [3, 5] {
            while running(&cluster).len() < voters {
                cluster.add().await?;
                load.aim(cluster.client()?);
            }
            votes(&cluster, voters).await?;
            kills += kill_one(&mut cluster, &mut rng, options.pause).await?;
        }
        let leave = if round + 1 == options.rounds { 3 } else { 1 };
        let mut one_by_force = true;
        while running(&cluster).len() > leave {
            let nodes = running(&cluster);
            let number = nodes[rng.index(nodes.len())];
            let id = cluster.members[number].id;
            // Every second one is dead when it is removed; as few as three voters bear that.
            let dead = one_by_force && nodes.len() >= 3;
            if dead {
                cluster.kill(number)?;
                kills += 1;
                cluster.wait_leader(PATIENCE).await?;
            }
            one_by_force = !one_by_force;
            remove(&cluster, id).await?;
            if !dead {
                let (code, _) = cluster.end(number, PATIENCE).await?;
                if code != 6 {
                    bail!("node {id} was removed and ended with exit code {code}, not 6");
                }
            }
            votes(&cluster, nodes.len() - 1).await?;
            tokio::time::sleep(options.pause / 2).await;
        }
    }
    kills += kill_one(&mut cluster, &mut rng, options.pause).await?;
    let mut report = load.stop().await?;
    report.kills = kills;
    judge(&cluster, &mut report).await?;
    Ok(report)
}

fn running(cluster: &Cluster) -> Vec<usize> {
    (0..cluster.members.len()).filter(|number| cluster.is_up(*number)).collect()
}

/// Waits until exactly so many nodes vote and all of them answer.
async fn votes(cluster: &Cluster, count: usize) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut last = None;
    while Instant::now() < until {
        for number in running(cluster) {
            last = cluster.status_of(number).await;
            if last.as_ref().is_some_and(|status| {
                status.voters as usize == count && status.reachable as usize == count && status.leader != 0
            }) {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("not {count} voters within {PATIENCE:?}: {last:?}; see {}", cluster.out().display())
}

/// Kills a node, the leader every second time, and starts it again.
async fn kill_one(cluster: &mut Cluster, rng: &mut Rng, pause: Duration) -> Result<usize> {
    let leader = cluster.leader().await.filter(|_| rng.chance(500));
    let nodes = running(cluster);
    let number = leader.unwrap_or_else(|| nodes[rng.index(nodes.len())]);
    tokio::time::sleep(pause / 2).await;
    cluster.kill(number)?;
    tokio::time::sleep(pause / 2).await;
    cluster.restart(number).await?;
    votes(cluster, nodes.len()).await?;
    Ok(1)
}

async fn remove(cluster: &Cluster, id: u64) -> Result<()> {
    let client = cluster.client()?;
    let until = Instant::now() + PATIENCE;
    loop {
        match client.remove_node(id).await {
            Ok(_) => return Ok(()),
            // Of an earlier try whose answer was lost.
            Err(Error::NotFound { message }) if message.contains("was removed") => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error).context("a node is not removed"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Clients that write, each its own keys, one after the other.
struct Load {
    stop: Arc<AtomicBool>,
    aim: tokio::sync::watch::Sender<Option<Client>>,
    clients: Vec<JoinHandle<(u64, u64)>>,
    acknowledged_at: Arc<std::sync::Mutex<(Instant, Duration)>>,
    total: Arc<AtomicU64>,
}

impl Load {
    fn start(clients: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let aim = tokio::sync::watch::Sender::<Option<Client>>::new(None);
        let acknowledged_at = Arc::new(std::sync::Mutex::new((Instant::now(), Duration::ZERO)));
        let total = Arc::new(AtomicU64::new(0));
        let clients = (0..clients)
            .map(|number| {
                let (stop, aim, at, total) =
                    (stop.clone(), aim.subscribe(), acknowledged_at.clone(), total.clone());
                tokio::spawn(async move {
                    let (mut next, mut unknown) = (0u64, 0u64);
                    while !stop.load(Ordering::Relaxed) {
                        let Some(client) = aim.borrow().clone() else {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                            continue;
                        };
                        match client.put_key("growth", key(number, next), next.to_string()).await {
                            Ok(_) => {
                                next += 1;
                                total.fetch_add(1, Ordering::Relaxed);
                                if let Ok(mut at) = at.lock() {
                                    at.1 = at.1.max(at.0.elapsed());
                                    at.0 = Instant::now();
                                }
                            }
                            // The same key again, under another request id: the value is the same.
                            Err(error) if error.may_have_been_applied() => unknown += 1,
                            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                        }
                    }
                    (next, unknown)
                })
            })
            .collect();
        Load { stop, aim, clients, acknowledged_at, total }
    }

    /// From now on these nodes are written to.
    fn aim(&self, client: Client) {
        self.aim.send_replace(Some(client));
    }

    async fn stop(self) -> Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let mut report = Report::default();
        for client in self.clients {
            let (keys, unknown) = client.await.context("a client panicked")?;
            report.keys.push(keys);
            report.unknown += unknown;
        }
        report.acknowledged = self.total.load(Ordering::Relaxed);
        report.longest_gap = self.acknowledged_at.lock().map(|at| at.1).unwrap_or_default();
        Ok(report)
    }
}

fn key(client: usize, number: u64) -> String {
    format!("{client}/{number:08}")
}

/// Reads of one node at once.
const READS: usize = 64;

/// Every acknowledged write is on every node, by each node's own state, and all states have one digest.
async fn judge(cluster: &Cluster, report: &mut Report) -> Result<()> {
    let mut newest = 0;
    for number in running(cluster) {
        newest = newest.max(cluster.status_of(number).await.map_or(0, |status| status.committed_index));
    }
    for number in running(cluster) {
        let client = cluster.client_of(number)?;
        caught_up(&client, newest).await.with_context(|| format!("node {}", cluster.members[number].id))?;
        let keys = report.keys.iter().enumerate();
        let keys: Vec<_> = keys.flat_map(|(of, count)| (0..*count).map(move |number| (of, number))).collect();
        let mut reads = futures::stream::iter(keys)
            .map(|(of, number)| {
                let client = client.clone();
                async move {
                    let request =
                        GetKeyRequest { namespace: "growth".to_owned(), key: key(of, number), stale: true };
                    (of, number, client.get_key(request).await)
                }
            })
            .buffer_unordered(READS);
        while let Some((of, key, answer)) = reads.next().await {
            let answer = answer.context("a node does not answer")?;
            if answer.value != key.to_string().as_bytes() {
                report.broken.push(format!(
                    "write {key} of client {of} was acknowledged; node {} has {:?} (found: {})",
                    cluster.members[number].id, answer.value, answer.found
                ));
            }
        }
    }
    report.broken.extend(unequal(cluster).await?);
    Ok(())
}

/// What the digests of all states after one entry say, when they are not the same on every node.
async fn unequal(cluster: &Cluster) -> Result<Option<String>> {
    let client = cluster.client()?;
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = client.check_digests().await.context("the digests")?;
        if answer.equal && answer.nodes.len() == running(cluster).len() {
            return Ok(None);
        }
        // A node that did not answer in time is asked again; one that differs stays different.
        if answer.nodes.iter().all(|node| node.unavailable.is_empty()) || Instant::now() > until {
            return Ok(Some(format!("the states differ: {answer:?}")));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until a node has applied what was committed when the load ended.
async fn caught_up(client: &Client, index: u64) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let request = GetKeyRequest { namespace: "growth".to_owned(), key: key(0, 0), stale: true };
        if client.get_key(request).await.is_ok_and(|answer| answer.applied_index >= index) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("it did not catch up to {index} within {PATIENCE:?}")
}
