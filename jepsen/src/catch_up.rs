//! Nodes that have to catch up: one that was away while much was written, and a new one that gets a large state while
//! writes go on. Measures what the cluster's clients notice of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clawhive_client::{Client, Put};
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::verdict::Exit;

/// How long anything may take that has no time of its own.
const PATIENCE: Duration = Duration::from_secs(900);
/// Writes that are under way at once while the log is made long.
const WRITERS: usize = 64;
/// The value of one key of the large state.
const VALUE: usize = 64 * 1024;

/// What to measure, and with what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// Where the output of the nodes goes; none: away with them.
    pub out: Option<PathBuf>,
}

async fn start(options: &Options, nodes: usize, env: &[(&str, String)]) -> Result<Cluster> {
    let mut cluster = ClusterOptions::new(nodes, &options.binary);
    cluster.out.clone_from(&options.out);
    cluster.slots = vec![1];
    cluster.env = env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    Cluster::start(cluster).await
}

/// A node is away while so many entries are written and `snapshots` snapshots pass; then it comes back.
pub async fn away(options: &Options, entries: u64, snapshots: u64) -> Result<Exit> {
    let each = (entries / (snapshots + 1)).max(20);
    let env = [
        ("CLAWHIVE_SNAPSHOT_ENTRIES", each.to_string()),
        ("CLAWHIVE_SNAPSHOT_KEEP", (each / 10).to_string()),
    ];
    let mut cluster = start(options, 3, &env).await?;
    let client = cluster.client()?;
    let away = (cluster.wait_leader(PATIENCE).await? + 1) % 3;
    cluster.kill(away)?;
    let before = client.put_key("away", "first", "x").await?;
    let wrote = Instant::now();
    let writes = stream::iter(0..entries)
        .map(|key| {
            let client = client.clone();
            async move { client.put_key("away", format!("key-{}", key % 1_000), key.to_string()).await }
        })
        .buffer_unordered(WRITERS);
    let mut writes = std::pin::pin!(writes);
    while let Some(written) = writes.next().await {
        written.context("a write while a node is away")?;
    }
    let (wrote, last) = (wrote.elapsed(), client.put_key("away", "last", "x").await?);
    let built =
        (0..3).map(|node| cluster.log_of(node).matches("a snapshot is built").count()).max().unwrap_or(0);
    let came_back = Instant::now();
    cluster.restart(away).await?;
    applied(&cluster, away, last).await?;
    let caught_up = came_back.elapsed();
    let by_snapshot = cluster.log_of(away).contains("a snapshot is received");
    let equal = states_equal(&client, 3).await?;
    let report = json!({
        "entries": last - before,
        "snapshots_meanwhile": built,
        "write_seconds": seconds(wrote),
        "caught_up_seconds": seconds(caught_up),
        "by_snapshot": by_snapshot,
        "states_equal": equal,
    });
    println!("{report}");
    Ok(match (equal, by_snapshot && built as u64 >= snapshots) {
        (false, _) => Exit::Invalid,
        (true, false) => Exit::Vacuous,
        (true, true) => Exit::Valid,
    })
}

/// A new node joins a cluster that has so many bytes of state, while writes go on. The p99 of these writes may grow by
/// the given factor at most; 0 only measures.
pub async fn join(
    options: &Options,
    nodes: usize,
    bytes: u64,
    window: Duration,
    factor: f64,
) -> Result<Exit> {
    let values = (bytes / VALUE as u64).max(1);
    // Filled with a snapshot behind it, so that the new node cannot have the log instead.
    let fill = [("CLAWHIVE_SNAPSHOT_ENTRIES", "100".to_owned()), ("CLAWHIVE_SNAPSHOT_KEEP", "10".to_owned())];
    let mut cluster = start(options, nodes, &fill).await?;
    let client = cluster.client()?;
    load(&client, values).await?;
    // What the fill does not give, small entries do: a snapshot that covers nearly all of it.
    for key in 0..110 {
        client.put_key("fill", format!("after-{key}"), "x").await?;
    }
    // A node that stops does not finish what it builds.
    let until = Instant::now() + PATIENCE;
    while !(0..nodes).all(|node| cluster.log_of(node).contains("a snapshot is built")) {
        if Instant::now() > until {
            bail!("no snapshot of the state was built within {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.set_env(Vec::new());
    for node in 0..nodes {
        cluster.stop(node, PATIENCE).await?;
        cluster.restart(node).await?;
    }
    cluster.wait_leader(PATIENCE).await?;
    let state = saved_bytes(&client).await?;
    // A node that was started reads its state once, in the background.
    tokio::time::sleep(Duration::from_secs((bytes >> 25).min(30))).await;
    let before = probe(&client, async |_| {
        tokio::time::sleep(window).await;
        Ok(())
    })
    .await?;
    let new = cluster.add()?;
    let joining = Instant::now();
    let during = probe(&client, async |client| {
        cluster.spawn(new)?;
        cluster.ready(new).await?;
        let last = client.put_key("probe", "joined", "x").await?;
        applied(&cluster, new, last).await?;
        cluster.voters(nodes as u32 + 1, PATIENCE).await
    })
    .await?;
    let joined = joining.elapsed();
    let by_snapshot = cluster.log_of(new).contains("a snapshot is received");
    let equal = states_equal(&client, nodes + 1).await?;
    let ratio = during.at(0.99).as_secs_f64() / before.at(0.99).as_secs_f64().max(1e-6);
    let report = json!({
        "nodes": nodes,
        "state_bytes": state,
        "joined_seconds": seconds(joined),
        "by_snapshot": by_snapshot,
        "before": before.document(),
        "during": during.document(),
        "p99_ratio": (ratio * 100.0).round() / 100.0,
        "states_equal": equal,
    });
    println!("{report}");
    Ok(match (equal && (factor == 0.0 || ratio <= factor), by_snapshot) {
        (false, _) => Exit::Invalid,
        (true, false) => Exit::Vacuous,
        (true, true) => Exit::Valid,
    })
}

fn seconds(of: Duration) -> f64 {
    (of.as_secs_f64() * 1_000.0).round() / 1_000.0
}

/// Fills the state with values that do not repeat each other.
async fn load(client: &Client, values: u64) -> Result<()> {
    let puts = stream::iter(0..values).map(|key| {
        let mut value = vec![0; VALUE];
        for (at, chunk) in value.chunks_exact_mut(8).enumerate() {
            let mixed = (key << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&mixed.to_le_bytes());
        }
        Put { namespace: "fill".to_owned(), key: format!("key-{key}"), value: value.into() }
    });
    let mut answers = client.put_keys(puts);
    while let Some(answer) = answers.next().await {
        answer.context("filling the state")?;
    }
    Ok(())
}

/// How large a backup of the state is.
async fn saved_bytes(client: &Client) -> Result<u64> {
    let mut chunks = client.save_snapshot().await?;
    let mut bytes = 0;
    while let Some(chunk) = chunks.next().await {
        bytes += chunk?.data.len() as u64;
    }
    Ok(bytes)
}

/// Waits until a node has applied an entry.
async fn applied(cluster: &Cluster, number: usize, index: u64) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let id = cluster.members[number].id;
        let status = cluster.status_of(number).await;
        if status.is_some_and(|it| it.nodes.iter().any(|node| node.id == id && node.applied_index >= index)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("node {} has not applied entry {index} within {PATIENCE:?}", number + 1)
}

async fn states_equal(client: &Client, nodes: usize) -> Result<bool> {
    for _ in 0..10 {
        let answer = client.with_timeout(Duration::from_secs(20)).check_digests().await?;
        let all = answer.nodes.len() == nodes && answer.nodes.iter().all(|node| node.unavailable.is_empty());
        if all {
            return Ok(answer.equal);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("not every node says what its state is")
}

/// Times of writes.
struct Times {
    sorted: Vec<Duration>,
    took: Duration,
}

impl Times {
    fn at(&self, quantile: f64) -> Duration {
        let place = (self.sorted.len() as f64 * quantile) as usize;
        self.sorted.get(place.min(self.sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    fn document(&self) -> Value {
        let ms = |of: Duration| (of.as_secs_f64() * 100_000.0).round() / 100.0;
        json!({
            "writes": self.sorted.len(),
            "seconds": seconds(self.took),
            "p50_ms": ms(self.at(0.5)),
            "p99_ms": ms(self.at(0.99)),
            "max_ms": ms(self.at(1.0)),
        })
    }
}

/// Writes small values, four at a time with a pause after each, for as long as something takes.
async fn probe(client: &Client, what: impl AsyncFnOnce(&Client) -> Result<()>) -> Result<Times> {
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let started = Instant::now();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (client, stop, next) = (client.clone(), stop.clone(), next.clone());
            tokio::spawn(async move {
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let key = next.fetch_add(1, Ordering::Relaxed) % 1_000;
                    let began = Instant::now();
                    client.put_key("probe", format!("key-{key}"), "x").await?;
                    times.push(began.elapsed());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok::<_, clawhive_client::Error>(times)
            })
        })
        .collect();
    let done = what(client).await;
    stop.store(true, Ordering::Relaxed);
    let mut sorted = Vec::new();
    for writer in writers {
        sorted.extend(writer.await?.context("a write of the probe")?);
    }
    done?;
    sorted.sort_unstable();
    Ok(Times { sorted, took: started.elapsed() })
}
