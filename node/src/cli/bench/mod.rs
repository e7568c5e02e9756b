//! `clawhive bench`: what the performance goals measure, against any cluster, as ratios within one run.

mod cluster;
mod etcd;
mod load;
mod store;
mod work;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use clawhive_proto::ClusterStatusRequest;
use clawhive_proto::clawhive_client::ClawhiveClient;
use serde::Serialize;
use serde_json::{Value, json};

use cluster::Throwaway;
use store::{Row, Stores};
use work::Work;

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Single replicated puts of 256 bytes.
    Writes,
    /// Puts streamed with 1,024 under way.
    Batched,
    /// Linearizable gets.
    Reads,
    /// Submits of a 5-task graph.
    Submit,
    /// 1,000 × /bin/true beside a bare spawn loop.
    W2,
    /// A chain of 200.
    W3,
    /// 1 → 1,000 → 1.
    W4,
    /// From submit to start on an idle cluster.
    W5,
    /// Memory of the idle nodes (only of the bench's own cluster).
    W6,
    /// Cost per task at 1,000 and at 10,000 tasks.
    Cost,
    /// 2,000 writes a second: the slowest one.
    Pause,
}

/// Arguments of `clawhive bench`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  clawhive bench w2 w5                            on a cluster of one, started and thrown away
  clawhive bench --nodes 3 writes reads submit    on three throwaway nodes
  clawhive bench --server 10.0.0.1:7400 writes    on a cluster that runs already (it will hold the bench's data)
  clawhive bench --nodes 3 writes --etcd 127.0.0.1:2379,127.0.0.1:2381,127.0.0.1:2383   beside an etcd that you started")]
pub struct Args {
    /// What to measure.
    #[arg(required = true, value_enum)]
    what: Vec<What>,
    /// Size of the throwaway cluster; only without --server.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=7))]
    nodes: u8,
    /// First port of the throwaway cluster.
    #[arg(long, default_value_t = 7900)]
    port: u16,
    /// Seconds of each round.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Clients, one call under way each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 256])]
    clients: Vec<usize>,
    /// Members of an etcd to put beside.
    #[arg(long, value_delimiter = ',', value_name = "ADDR")]
    etcd: Vec<String>,
}

/// One measurement, for people and for machines.
struct Line {
    text: String,
    json: Value,
}

impl Line {
    fn new(work: &str, text: String, figures: &impl Serialize) -> Result<Line> {
        Ok(Line { text, json: json!({ "work": work, "figures": serde_json::to_value(figures)? }) })
    }

    fn store(row: &Row) -> Result<Line> {
        let ours = &row.clawhive;
        let mut text = format!(
            "{:<24} {:>5} clients  {:>9.0}/s  p50 {:>7.2} ms  p99 {:>7.2} ms",
            row.work, ours.clients, ours.per_second, ours.p50_ms, ours.p99_ms
        );
        if let (Some(etcd), Some(rate), Some(p50), Some(p99)) =
            (&row.etcd, row.rate_ratio, row.p50_ratio, row.p99_ratio)
        {
            text.push_str(&format!(
                "   etcd {:>8.0}/s {:>6.2} {:>7.2} ms   ratios: rate {rate:.2}, p50 {p50:.2}, p99 {p99:.2}",
                etcd.per_second, etcd.p50_ms, etcd.p99_ms
            ));
        }
        if ours.errors > 0 {
            text.push_str(&format!("   {} errors", ours.errors));
        }
        Line::new(row.work, text, row)
    }
}

/// Runs the bench.
///
/// # Errors
/// When the cluster cannot be started or reached, or a run of the bench fails.
pub async fn run(args: Args, servers: Vec<String>, as_json: bool) -> Result<()> {
    let throwaway = match servers.is_empty() {
        true => {
            let (nodes, port) = (usize::from(args.nodes), args.port);
            Some(tokio::task::spawn_blocking(move || Throwaway::start(nodes, port)).await??)
        }
        false => None,
    };
    let servers = throwaway.as_ref().map_or(servers, |own| own.servers.clone());
    let leader = leader_of(&servers).await?;
    let mut all = Vec::new();
    for what in &args.what {
        for line in measure(*what, &args, &leader, throwaway.as_ref()).await? {
            if !as_json {
                println!("{}", line.text);
            }
            all.push(line.json);
        }
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&json!({ "nodes": servers.len(), "results": all }))?);
    }
    Ok(())
}

/// The address of the node that leads.
async fn leader_of(servers: &[String]) -> Result<String> {
    let first = servers.first().context("no server")?;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{first}"))?;
    let channel = endpoint.connect().await.with_context(|| format!("no server at {first}"))?;
    let status = ClawhiveClient::new(channel).cluster_status(ClusterStatusRequest {}).await?.into_inner();
    let leader = status.nodes.iter().find(|node| node.leader).and_then(|node| node.row.as_ref());
    Ok(leader.context("the cluster has no leader")?.listen.clone())
}

async fn measure(what: What, args: &Args, leader: &str, own: Option<&Throwaway>) -> Result<Vec<Line>> {
    let (time, rounds) = (Duration::from_secs(args.seconds), usize::from(args.rounds));
    let mut lines = Vec::new();
    match what {
        What::Writes => {
            let stores = Stores::connect(leader, &args.etcd).await?;
            for clients in &args.clients {
                lines.push(Line::store(&stores.writes(*clients, time, rounds).await)?);
            }
        }
        What::Batched => {
            let stores = Stores::connect(leader, &args.etcd).await?;
            lines.push(Line::store(&stores.batched(1024, time, rounds).await?)?);
        }
        What::Reads => {
            let stores = Stores::connect(leader, &args.etcd).await?;
            for clients in &args.clients {
                lines.push(Line::store(&stores.reads(*clients, time, rounds).await?)?);
            }
        }
        What::Submit => {
            let (stores, work) = (Stores::connect(leader, &args.etcd).await?, Work::connect(leader).await?);
            let plug = work.plug().await?;
            for clients in &args.clients {
                lines.push(Line::store(&stores.submit(*clients, time, rounds).await?)?);
            }
            let newest = work.newest_run().await?;
            work.unplug(plug, newest).await?;
        }
        What::W2 => lines.push(spawned("W2", &Work::connect(leader).await?, 1000, rounds).await?),
        What::Cost => {
            let work = Work::connect(leader).await?;
            lines.push(spawned("cost at 1,000", &work, 1000, rounds).await?);
            lines.push(spawned("cost at 10,000", &work, 10_000, 1).await?);
        }
        What::W3 => {
            let chain = Work::connect(leader).await?.chain(200, rounds).await?;
            let text = format!(
                "W3 chain of {}: {:.2} ms a hop, of which a bare spawn {:.2} ms; added {:.2} ms",
                chain.tasks, chain.hop_ms, chain.bare_spawn_ms, chain.added_ms
            );
            lines.push(Line::new("W3", text, &chain)?);
        }
        What::W4 => {
            let fan = Work::connect(leader).await?.fan(1000, rounds).await?;
            let text = format!(
                "W4 1 → {} → 1: {:.2} s; the bare loop {:.2} s",
                fan.width, fan.seconds, fan.bare_seconds
            );
            lines.push(Line::new("W4", text, &fan)?);
        }
        What::W5 => {
            let figures = Work::connect(leader).await?.submit_to_start(200).await?;
            let text =
                format!("W5 submit to start: p50 {:.2} ms, p99 {:.2} ms", figures.p50_ms, figures.p99_ms);
            lines.push(Line::new("W5", text, &figures)?);
        }
        What::W6 => {
            let own = own.context("w6 reads the memory of the bench's own cluster: leave out --server")?;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let mib = own.resident_bytes() as f64 / f64::from(1 << 20);
            let nodes = own.servers.len();
            let text = format!("W6 memory now: {mib:.1} MiB resident, {nodes} node(s) together");
            lines.push(Line::new("W6", text, &json!({ "resident_mib": mib, "nodes": nodes }))?);
        }
        What::Pause => {
            let stores = Stores::connect(leader, &[]).await?;
            let figures = stores.paced(2000, time).await?;
            let text = format!(
                "2,000 writes/s for {} s: {} answered, p50 {:.2} ms, p99 {:.2} ms, the slowest {:.1} ms",
                args.seconds, figures.calls, figures.p50_ms, figures.p99_ms, figures.max_ms
            );
            lines.push(Line::new("pause", text, &figures)?);
        }
    }
    Ok(lines)
}

async fn spawned(name: &str, work: &Work, tasks: usize, rounds: usize) -> Result<Line> {
    let spawned = work.spawned(tasks, rounds).await?;
    let text = format!(
        "{name}: {} × /bin/true {:.0}/s; the bare spawn loop {:.0}/s; ratio {:.2}; {:.2} ms a task",
        spawned.tasks, spawned.per_second, spawned.bare_per_second, spawned.ratio, spawned.ms_per_task
    );
    Line::new(name, text, &spawned)
}
