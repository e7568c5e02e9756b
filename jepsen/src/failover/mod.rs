//! How long writes stop when the leader is killed, beside etcd in the same run, and whether tasks elsewhere notice.
//!
//! Owns: the course of the measurement and its report. The clusters take turns, so that neither disturbs the other.

mod etcd;
mod probe;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clawhive_client::Client;
use clawhive_client::Submit;
use clawhive_client::proto::{RunView, TaskState};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Options as ClusterOptions};
use crate::verdict::Exit;
use etcd::EtcdCluster;
use probe::Puts;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often the leader is killed.
    pub kills: u32,
    /// Clients that write meanwhile.
    pub writers: usize,
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// The `etcd` binary, to be measured beside it with its defaults.
    pub etcd: Option<PathBuf>,
    /// Folder for the output of the nodes.
    pub out: Option<PathBuf>,
}

/// Tasks that run while the leader is killed.
const TASKS: usize = 4;

/// Measures, prints one JSON document, and says whether a task elsewhere was disturbed.
///
/// # Errors
/// A cluster that does not start, or does not come back after a kill.
pub async fn run(options: &Options) -> Result<Exit> {
    let ours = ClusterOptions { out: options.out.clone(), ..ClusterOptions::new(3, options.binary.clone()) };
    let mut cluster = Cluster::start(ours).await?;
    let mut peer = match &options.etcd {
        Some(binary) => Some(EtcdCluster::start(binary).await?),
        None => None,
    };
    let (mut own_gaps, mut peer_gaps, mut watched, mut disturbed) = (Vec::new(), Vec::new(), 0, Vec::new());
    for kill in 1..=options.kills {
        let (gap, seen) =
            kill_ours(&mut cluster, options.writers).await.with_context(|| format!("kill {kill}"))?;
        own_gaps.push(gap);
        watched += seen.watched;
        disturbed.extend(seen.disturbed);
        let mut line = format!("kill {kill}: clawhive {} ms", gap.as_millis());
        if let Some(peer) = &mut peer {
            let gap =
                kill_etcd(peer, options.writers).await.with_context(|| format!("kill {kill} of etcd"))?;
            peer_gaps.push(gap);
            line += &format!(", etcd {} ms", gap.as_millis());
        }
        eprintln!("{line}");
    }
    let mut report = json!({
        "clawhive": figures(&mut own_gaps),
        "tasks_elsewhere": watched,
        "tasks_disturbed": disturbed,
    });
    if !peer_gaps.is_empty() {
        report["etcd"] = figures(&mut peer_gaps);
        let ratio = median(&own_gaps).as_secs_f64() / median(&peer_gaps).as_secs_f64();
        report["ratio_median"] = json!((ratio * 100.0).round() / 100.0);
    }
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(match (watched, disturbed.is_empty()) {
        (0, _) => Exit::Vacuous,
        (_, true) => Exit::Valid,
        (_, false) => Exit::Invalid,
    })
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

/// With few samples the 99th percentile is the largest.
fn p99(sorted: &[Duration]) -> Duration {
    sorted[(sorted.len() * 99).div_ceil(100) - 1]
}

fn figures(gaps: &mut [Duration]) -> Value {
    gaps.sort_unstable();
    let ms = |gap: Duration| u64::try_from(gap.as_millis()).unwrap_or(u64::MAX);
    json!({
        "kills": gaps.len(),
        "median_ms": ms(median(gaps)),
        "p99_ms": ms(p99(gaps)),
        "min_ms": ms(gaps[0]),
    })
}

/// Tasks that ran on nodes that stayed up.
struct Seen {
    watched: usize,
    /// Those that needed more than their one attempt.
    disturbed: Vec<String>,
}

async fn kill_ours(cluster: &mut Cluster, writers: usize) -> Result<(Duration, Seen)> {
    let leader = cluster.wait_leader(Duration::from_secs(30)).await?;
    let lost = cluster.members[leader].id;
    let client = cluster.client()?;
    let run = client.submit(Submit::definition(sleepers())).await?.run;
    running(&client, run).await?;
    let clients: Vec<Client> = (0..3)
        .filter(|number| *number != leader)
        .map(|number| cluster.client_of(number))
        .collect::<Result<_>>()?;
    let puts = Puts::new(clients.len(), move |member, key| {
        let client = clients[member].clone();
        Box::pin(async move { client.put_key("failover", key, vec![7; 256]).await.is_ok() })
    });
    let gap = probe::gap(puts, writers, || cluster.kill(leader)).await?;
    let view = client.wait(run).await?;
    cluster.restart(leader).await?;
    cluster.voters(3, Duration::from_secs(30)).await?;
    Ok((gap, judge(&view, lost)))
}

/// Tasks that sleep longer than an election takes.
fn sleepers() -> String {
    let task = |number: usize| (format!("t{number}"), json!({"run": "sleep 3"}));
    let tasks: serde_json::Map<String, Value> = (0..TASKS).map(task).collect();
    json!({"name": "sleepers", "tasks": tasks}).to_string()
}

async fn running(client: &Client, run: u64) -> Result<()> {
    for _ in 0..500 {
        let view = client.get_run(run).await?;
        let states = view.tasks.iter().filter_map(|task| task.row.as_ref()).map(|row| row.state());
        if states.filter(|state| *state == TaskState::Running).count() == TASKS {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    bail!("the tasks of run {run} do not start")
}

fn judge(view: &RunView, lost: u64) -> Seen {
    let mut seen = Seen { watched: 0, disturbed: Vec::new() };
    for task in &view.tasks {
        let first = task.attempts.first().and_then(|attempt| attempt.row.as_ref());
        if first.is_none_or(|row| row.claw == lost) {
            continue;
        }
        seen.watched += 1;
        let succeeded = task.row.as_ref().is_some_and(|row| row.state() == TaskState::Succeeded);
        if task.attempts.len() != 1 || !succeeded {
            let attempts = task.attempts.len();
            seen.disturbed.push(format!("run {} task {}: {attempts} attempts", view.id, task.name));
        }
    }
    seen
}

async fn kill_etcd(peer: &mut EtcdCluster, writers: usize) -> Result<Duration> {
    let leader = peer.leader().await?;
    let puts = peer.puts(leader);
    let gap = probe::gap(puts, writers, || peer.kill(leader)).await?;
    peer.restart(leader).await?;
    Ok(gap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_client::proto::{AttemptRow, AttemptView, TaskRow, TaskView};

    fn task(claws: &[u64]) -> TaskView {
        let attempt = |claw: &u64| AttemptView {
            row: Some(AttemptRow { claw: *claw, ..AttemptRow::default() }),
            ..AttemptView::default()
        };
        let row = TaskRow { state: TaskState::Succeeded.into(), ..TaskRow::default() };
        TaskView { row: Some(row), attempts: claws.iter().map(attempt).collect(), ..TaskView::default() }
    }

    #[test]
    fn only_tasks_of_nodes_that_stayed_count_as_disturbed() {
        let view = RunView { tasks: vec![task(&[1, 2]), task(&[2]), task(&[3, 2])], ..RunView::default() };
        let seen = judge(&view, 1);
        assert_eq!((seen.watched, seen.disturbed.len()), (2, 1));
    }

    #[test]
    fn the_largest_of_twenty_is_the_99th_percentile() {
        let sorted: Vec<Duration> = (1..=20).map(Duration::from_millis).collect();
        assert_eq!(p99(&sorted), Duration::from_millis(20));
        assert_eq!(p99(&sorted[..1]), Duration::from_millis(1));
    }
}
