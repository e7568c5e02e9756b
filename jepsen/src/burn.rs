//! Work must not starve the cluster: every core is burnt by tasks on all nodes, and there is no change of leader, and writes
//! stay quick.
//!
//! Owns: the course of the measurement and its report.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clawhive_client::proto::TaskState;
use clawhive_client::{Client, Submit};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::verdict::Exit;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long all cores are burnt.
    pub time: Duration,
    /// Endless loops on each node.
    pub loops: u32,
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// Folder for the output of the nodes.
    pub out: Option<PathBuf>,
    /// How nice tasks are; none is the default of the product.
    pub nice: Option<u32>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Burnt {
    /// Times of writes, sorted: without load, and while everything burns.
    pub idle: Vec<Duration>,
    /// While everything burns.
    pub burnt: Vec<Duration>,
    /// Writes that failed while everything burnt.
    pub failed: u64,
    /// The term before and after.
    pub terms: (u64, u64),
    /// Loops that ran all the time.
    pub loops: usize,
}

/// Writes p99 may be so many times what they are without load.
const RATIO: f64 = 5.0;

/// Between two writes: a client that always has one under way would be a load of its own.
const PAUSE: Duration = Duration::from_millis(5);

impl Burnt {
    fn ratio(&self) -> f64 {
        p(&self.burnt, 99).as_secs_f64() / p(&self.idle, 99).as_secs_f64().max(1e-6)
    }
}

fn p(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get((sorted.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or_default()
}

/// Burns.
///
/// # Errors
/// A cluster that does not start, or loops that do not.
pub async fn burn(options: &Options) -> Result<Burnt> {
    let mut cluster_options = ClusterOptions {
        out: options.out.clone(),
        slots: vec![options.loops],
        ..ClusterOptions::new(3, options.binary.clone())
    };
    if let Some(nice) = options.nice {
        cluster_options.env.push(("CLAWHIVE_TASK_NICE".to_owned(), nice.to_string()));
    }
    let cluster = Cluster::start(cluster_options).await?;
    let client = cluster.client()?;
    let idle =
        write_for(&client, (options.time / 3).clamp(Duration::from_secs(3), Duration::from_secs(30))).await.0;
    let count = options.loops as usize * 3;
    let run = client.submit(Submit::definition(loops(count))).await?.run;
    let begun = Instant::now();
    while running(&client, run).await? < count {
        if begun.elapsed() > Duration::from_secs(60) {
            bail!("only {} of {count} loops run after a minute", running(&client, run).await?);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let term = |status: clawhive_client::proto::ClusterStatusResponse| status.term;
    let before = term(client.cluster_status().await?);
    let (burnt, failed) = write_for(&client, options.time).await;
    let after = term(client.cluster_status().await?);
    let loops = running(&client, run).await?;
    client.cancel(run, "measured").await.context("ending the loops")?;
    Ok(Burnt { idle, burnt, failed, terms: (before, after), loops })
}

/// Burns, prints one JSON document, and says whether the cluster kept its leader and its pace.
///
/// # Errors
/// As [`burn`].
pub async fn run(options: &Options) -> Result<Exit> {
    let seen = burn(options).await?;
    let report = json!({
        "seconds": options.time.as_secs(),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "loops": seen.loops,
        "term_before": seen.terms.0,
        "term_after": seen.terms.1,
        "leader_changes": seen.terms.1 - seen.terms.0,
        "idle": figures(&seen.idle),
        "burnt": figures(&seen.burnt),
        "failed_writes": seen.failed,
        "ratio_p99": (seen.ratio() * 100.0).round() / 100.0,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    let held = seen.terms.0 == seen.terms.1 && seen.failed == 0 && seen.ratio() <= RATIO;
    Ok(match seen.loops {
        0 => Exit::Vacuous,
        _ if held => Exit::Valid,
        _ => Exit::Invalid,
    })
}

fn figures(sorted: &[Duration]) -> Value {
    let ms = |of: Duration| (of.as_secs_f64() * 100_000.0).round() / 100.0;
    json!({
        "writes": sorted.len(),
        "p50_ms": ms(p(sorted, 50)),
        "p99_ms": ms(p(sorted, 99)),
        "max_ms": ms(p(sorted, 100)),
    })
}

fn loops(count: usize) -> String {
    let task =
        json!({"process": {"command": ["/bin/sh", "-c", "while :; do :; done"]}, "timeout": {"grace": "0s"}});
    let tasks: Map<String, Value> =
        (0..count).map(|number| (format!("burn{number}"), task.clone())).collect();
    json!({"name": "burn", "tasks": tasks}).to_string()
}

async fn running(client: &Client, run: u64) -> Result<usize> {
    let view = client.get_run(run).await?;
    let states = view.tasks.iter().filter_map(|task| task.row.as_ref()).map(|row| row.state());
    Ok(states.filter(|state| *state == TaskState::Running).count())
}

/// One client writes for so long, one write after the other; the times of writes, sorted, and how many failed. It is a
/// thread of the scheduler's usual kind like any client, in the group of the nodes.
async fn write_for(client: &Client, time: Duration) -> (Vec<Duration>, u64) {
    let (mut times, mut failed) = (Vec::new(), 0);
    let until = Instant::now() + time;
    for number in 0u64.. {
        if Instant::now() >= until {
            break;
        }
        let begun = Instant::now();
        match client.put_key("burn", format!("k{}", number % 100), vec![7; 256]).await {
            Ok(_) => times.push(begun.elapsed()),
            Err(_) => failed += 1,
        }
        tokio::time::sleep(PAUSE).await;
    }
    times.sort_unstable();
    (times, failed)
}
