//! The tool for testers: `sim` and `run`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use clawhive_jepsen::sim;

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
}

fn seeds(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
    let (from, until) = match text.split_once("..") {
        Some((from, until)) => (number(from)?, number(until.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    if from <= until { Ok((from, until)) } else { Err(format!("{from}..{until} holds no seed")) }
}

fn main() -> ExitCode {
    match Cli::parse().verb {
        Verb::Sim { seeds, replay, trace, jobs } => {
            let (from, until) = replay.map_or(seeds, |seed| (seed, seed));
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let jobs = if jobs == 0 { cores } else { jobs };
            sim::simulate(&sim::Options { from, until, trace, jobs }).into()
        }
    }
}
