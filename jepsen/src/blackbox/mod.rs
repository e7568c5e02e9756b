//! Black box: real processes on loopback, real clients, real kills. Owns the course of one run of the tool: load and
//! faults side by side, then healing, then the judgement.

pub mod check;
pub mod faults;
pub mod flow;
pub mod load;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clawhive_client::Client;
use clawhive_client::proto::{ListRunsRequest, RunView};

use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::verdict::Exit;
use check::Findings;
pub use faults::Faults;
pub use load::Workload;
use load::{Journal, Submitted};

/// How long everything acknowledged may take to end once all nodes are up again.
const PATIENCE: Duration = Duration::from_secs(120);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// What clients submit.
    pub workload: Workload,
    /// What goes wrong.
    pub faults: Faults,
    /// How long load and faults go on.
    pub time: Duration,
    /// Seed of workload and faults.
    pub seed: u64,
    /// Where the output of the nodes and the report go.
    pub out: Option<PathBuf>,
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// Folder of recorded executions; none is the built-in one.
    pub recordings: Option<PathBuf>,
    /// How many clients submit at once.
    pub clients: usize,
}

/// Runs it, prints what happened, and says how it went.
pub async fn run(options: &Options) -> Result<Exit> {
    let cluster_options = ClusterOptions {
        out: options.out.clone(),
        ..ClusterOptions::new(options.nodes, options.binary.clone())
    };
    let mut cluster = Cluster::start(cluster_options).await?;
    println!("{} nodes are ready; their output is in {}", options.nodes, cluster.out().display());
    let scratch = tempfile::Builder::new().prefix("clawhive-effects-").tempdir()?;
    let counter = scratch.path().join("counter");

    let flows = load::flows(options)?;
    let journal = Arc::new(Journal::default());
    let until = Instant::now() + options.time;
    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let mine = flows.iter().skip(number).step_by(options.clients).cloned().collect();
            let (client, journal) = (cluster.client()?, journal.clone());
            Ok(tokio::spawn(load::client(client, mine, counter.clone(), journal, until)))
        })
        .collect::<Result<_>>()?;
    let kills = faults::inject(&mut cluster, options.faults, options.seed, until).await?;
    for client in clients {
        client.await.context("a client panicked")?;
    }

    let leader = cluster.wait_leader(Duration::from_secs(30)).await?;
    let submitted = journal.take();
    let findings = settle(&cluster.client()?, &submitted.acknowledged, &counter).await?;
    Ok(report(options, &submitted, &findings, &kills, leader))
}

/// Waits until every acknowledged run has ended, then judges all of them.
async fn settle(
    client: &Client,
    acknowledged: &BTreeMap<u64, Arc<flow::Flow>>,
    counter: &std::path::Path,
) -> Result<Findings> {
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut views: Vec<RunView> = Vec::new();
    let mut findings = Findings::default();
    for run in acknowledged.keys() {
        match tokio::time::timeout_at(until, client.wait(*run)).await {
            Ok(Ok(view)) => views.push(view),
            Ok(Err(error)) => findings.broken.push(format!("run {run} was acknowledged: {error}")),
            Err(_) => {
                let seen = client.get_run(*run).await.map(|view| view.counts);
                findings.broken.push(format!("run {run} did not end within {PATIENCE:?}: {seen:?}"));
            }
        }
    }
    let counter = check::read_counter(counter)?;
    for view in &views {
        findings.add(check::judge(&acknowledged[&view.id], view, &counter));
    }
    let slots = client.nodes().await?.into_iter().map(|node| (node.id, node.slots)).collect();
    findings.broken.extend(check::judge_slots(&views, &slots));
    Ok(findings)
}

/// How many runs the cluster holds.
pub async fn count_runs(client: &Client) -> Result<usize> {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let request = ListRunsRequest { limit: 500, cursor, ..ListRunsRequest::default() };
        let page = client.list_runs(request).await?;
        count += page.runs.len();
        cursor = page.next_cursor;
        if cursor.is_empty() {
            return Ok(count);
        }
    }
}

fn report(
    options: &Options,
    submitted: &Submitted,
    findings: &Findings,
    kills: &faults::Effects,
    leader: usize,
) -> Exit {
    println!(
        "{} operations: {} acknowledged, {} refused, {} unknown",
        submitted.operations,
        submitted.acknowledged.len(),
        submitted.refused.len(),
        submitted.unknown
    );
    println!(
        "{} tasks succeeded in {} attempts, {} lost with their claw; {} effects repeated by lost attempts",
        findings.succeeded, findings.attempts, findings.lost, findings.repeats
    );
    println!(
        "faults that took effect: {} kills ({} of the leader), {} changes of leader; node {} leads at the end",
        kills.kills,
        kills.leaders,
        kills.changes,
        leader + 1
    );
    for refused in submitted.refused.iter().take(5) {
        println!("refused: {refused}");
    }
    let mut broken = findings.broken.clone();
    broken.extend(submitted.broken.iter().cloned());
    for line in broken.iter().take(20) {
        println!("broken: {line}");
    }
    let exit = if !broken.is_empty() {
        Exit::Invalid
    } else if submitted.acknowledged.is_empty() || findings.succeeded == 0 || !kills.enough(options.faults) {
        Exit::Vacuous
    } else if findings.repeats > 0 && options.faults == Faults::None {
        Exit::Invalid
    } else {
        Exit::Valid
    };
    println!("verdict: {} (seed {})", exit.name(), options.seed);
    exit
}
