//! The tool for testers: `sim` and `run`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clawhive_jepsen::blackbox::{self, Faults, Workload};
use clawhive_jepsen::catch_up;
use clawhive_jepsen::failover;
use clawhive_jepsen::sim;
use clawhive_jepsen::verdict::Exit;
use clawhive_jepsen::{burn, claw_loss};

/// Checks what clawhive promises: by simulation, and with real processes under faults.
///
/// Exit codes: 0 valid, 1 invalid, 2 unknown, 3 vacuous (nothing could have failed).
#[derive(Parser)]
#[command(name = "clawhive-jepsen", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Simulates scheduling in virtual time, one world per seed.
    #[command(after_help = "Examples:
  clawhive-jepsen sim --seeds 1..200
  clawhive-jepsen sim --replay 17 --trace")]
    Sim {
        /// Seeds to run, first and last (both included).
        #[arg(long, value_parser = seeds, default_value = "1..200")]
        seeds: (u64, u64),
        /// Run this one seed only.
        #[arg(long, value_name = "SEED")]
        replay: Option<u64>,
        /// Print every step; with --replay.
        #[arg(long, requires = "replay")]
        trace: bool,
        /// Seeds at a time; 0 is one per core.
        #[arg(long, default_value_t = 0)]
        jobs: usize,
    },
    /// Starts real server processes on loopback, loads them, kills them, and judges what came of it.
    #[command(after_help = "Examples:
  clawhive-jepsen run --nodes 3 --workload graph --faults kill-leader --time 30s --binary target/release/clawhive
  clawhive-jepsen run --nodes 1 --workload wfcommons --recordings ./wfcommons --faults none --time 20s --seed 7")]
    Run {
        /// Servers to start.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
        nodes: u8,
        /// What clients submit.
        #[arg(long, value_enum, default_value = "graph")]
        workload: Workload,
        /// What goes wrong meanwhile.
        #[arg(long, value_enum, default_value = "none")]
        faults: Faults,
        /// How long load and faults go on.
        #[arg(long, value_parser = duration, default_value = "30s")]
        time: Duration,
        /// Seed of workload and faults.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Folder for the output of the nodes; without it, it goes when the tool ends.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// The `clawhive` binary.
        #[arg(long, value_name = "PATH", default_value = "clawhive")]
        binary: PathBuf,
        /// Folder with recorded executions (WfFormat 1.5); without it, one that is built in.
        #[arg(long, value_name = "DIR")]
        recordings: Option<PathBuf>,
        /// Clients that submit at once.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
        clients: u8,
    },
    /// Kills claws while they run a task, and measures how soon it runs elsewhere and that it never does too early.
    #[command(after_help = "Examples:
  clawhive-jepsen claw-loss --kills 20 --lease 5s --binary target/release/clawhive")]
    ClawLoss {
        /// How many claws are killed.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        kills: u32,
        /// Their lease.
        #[arg(long, value_parser = duration, default_value = "5s")]
        lease: Duration,
        /// The `clawhive` binary.
        #[arg(long, value_name = "PATH", default_value = "clawhive")]
        binary: PathBuf,
        /// Folder for the output of the nodes; without it, it goes when the tool ends.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Burns every core with tasks on three nodes, and measures what writes and leadership make of it.
    #[command(after_help = "Examples:
  clawhive-jepsen burn --seconds 300 --binary target/release/clawhive")]
    Burn {
        /// How long everything burns.
        #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: u64,
        /// Endless loops on each node.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
        loops: u32,
        /// How nice tasks are, 0 to 19; without it, as the product has it.
        #[arg(long)]
        nice: Option<u32>,
        /// The `clawhive` binary.
        #[arg(long, value_name = "PATH", default_value = "clawhive")]
        binary: PathBuf,
        /// Folder for the output of the nodes; without it, it goes when the tool ends.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Kills the leader of three nodes under load, again and again, and measures how long writes stop.
    #[command(after_help = "Examples:
  clawhive-jepsen failover --kills 20 --binary target/release/clawhive
  clawhive-jepsen failover --kills 20 --binary target/release/clawhive --etcd /usr/bin/etcd")]
    Failover {
        /// How often the leader is killed.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
        kills: u32,
        /// Clients that write meanwhile.
        #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
        writers: u8,
        /// The `clawhive` binary.
        #[arg(long, value_name = "PATH", default_value = "clawhive")]
        binary: PathBuf,
        /// An `etcd` binary, to be measured beside it with its defaults.
        #[arg(long, value_name = "PATH")]
        etcd: Option<PathBuf>,
        /// Folder for the output of the nodes; without it, it goes when the tool ends.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Lets a node be away while much is written and snapshots pass, and measures how it catches up; prints JSON.
    #[command(after_help = "Example:
  clawhive-jepsen away --entries 100000 --snapshots 3 --binary target/release/clawhive")]
    Away {
        /// Log entries that it misses.
        #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..))]
        entries: u64,
        /// Snapshots that pass meanwhile, each of which purges the log.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
        snapshots: u64,
        /// The `clawhive` binary.
        #[arg(long, value_name = "PATH", default_value = "clawhive")]
        binary: PathBuf,
        /// Folder for the output of the nodes; without it, it goes when the tool ends.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Lets a new node join a cluster with a large state, and measures what writes notice of it; prints JSON.
    #[command(after_help = "Example:
  clawhive-jepsen join --state-mib 1024 --binary target/release/clawhive")]
    Join {
        /// Nodes before.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
        nodes: u8,
        /// Size of the state.
        #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(1..))]
        state_mib: u64,
        /// How long writes are measured before.
        #[arg(long, value_parser = duration, default_value = "15s")]
        window: Duration,
        /// The p99 of writes meanwhile may be so many times that of before; 0 only measures.
        #[arg(long, default_value_t = 3.0)]
        factor: f64,
        /// The `clawhive` binary.
        #[arg(long, value_name = "PATH", default_value = "clawhive")]
        binary: PathBuf,
        /// Folder for the output of the nodes; without it, it goes when the tool ends.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
    let (from, until) = match text.split_once("..") {
        Some((from, until)) => (number(from)?, number(until.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    if from <= until { Ok((from, until)) } else { Err(format!("{from}..{until} holds no seed")) }
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| format!("`{text}` is no duration such as 30s"))?;
    match &text[digits..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        unit => Err(format!("`{unit}` is no unit; use ms, s or m")),
    }
}

/// A run that could not be carried out proves nothing either way.
fn carry_out(run: impl Future<Output = anyhow::Result<Exit>>) -> Exit {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("clawhive-jepsen: {error}");
            return Exit::Unknown;
        }
    };
    runtime.block_on(run).unwrap_or_else(|error| {
        println!("verdict: unknown: {error:#}");
        Exit::Unknown
    })
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Sim { seeds, replay, trace, jobs } => {
            let (from, until) = replay.map_or(seeds, |seed| (seed, seed));
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let jobs = if jobs == 0 { cores } else { jobs };
            sim::simulate(&sim::Options { from, until, trace, jobs }).into()
        }
        Verb::Run { nodes, workload, faults, time, seed, out, binary, recordings, clients } => {
            let (nodes, clients) = (usize::from(nodes), usize::from(clients));
            let options =
                blackbox::Options { nodes, workload, faults, time, seed, out, binary, recordings, clients };
            carry_out(blackbox::run(&options)).into()
        }
        Verb::ClawLoss { kills, lease, binary, out } => {
            carry_out(claw_loss::run(&claw_loss::Options { kills, lease, binary, out })).into()
        }
        Verb::Burn { seconds, loops, nice, binary, out } => {
            let time = Duration::from_secs(seconds);
            carry_out(burn::run(&burn::Options { time, loops, binary, out, nice })).into()
        }
        Verb::Failover { kills, writers, binary, etcd, out } => {
            let options = failover::Options { kills, writers: usize::from(writers), binary, etcd, out };
            carry_out(failover::run(&options)).into()
        }
        Verb::Away { entries, snapshots, binary, out } => {
            carry_out(catch_up::away(&catch_up::Options { binary, out }, entries, snapshots)).into()
        }
        Verb::Join { nodes, state_mib, window, factor, binary, out } => {
            let options = catch_up::Options { binary, out };
            let bytes = state_mib << 20;
            carry_out(catch_up::join(&options, usize::from(nodes), bytes, window, factor)).into()
        }
    }
}
