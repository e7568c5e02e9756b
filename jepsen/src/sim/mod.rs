//! Level 1 simulation: the whole of scheduling on replicas fed by one ordered log, in virtual time, from one seed.
//! Owns running many seeds and reporting on them; one seed is [`run::run_seed`].

mod audit;
mod claw;
mod client;
mod faults;
pub mod graphs;
pub mod history;
pub mod invariants;
mod leader;
pub mod profile;
mod replica;
pub mod run;
mod trace;
mod words;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use invariants::Broken;
use profile::{Effect, Effects, Profile};
pub use run::{Verdict, run_seed};

use crate::verdict::Exit;

/// From so many seeds on, an effect that never occurred makes the whole series vacuous.
const ENOUGH_SEEDS: u64 = 100;

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// First seed.
    pub from: u64,
    /// Last seed, included.
    pub until: u64,
    /// Print the trace; only sensible for one seed.
    pub trace: bool,
    /// Seeds at a time.
    pub jobs: usize,
}

/// Runs every seed, prints a line for each that fails and a summary, and says how it went.
pub fn simulate(options: &Options) -> Exit {
    let started = Instant::now();
    let next = AtomicU64::new(options.from);
    let verdicts = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > options.until {
                        return;
                    }
                    let verdict = guarded(seed, options.trace);
                    if let Some(line) = complaint(&verdict) {
                        println!("{line}");
                    }
                    verdicts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(verdict);
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    verdicts.sort_by_key(|verdict| verdict.seed);
    summary(&verdicts, started)
}

/// A panic of the state machine is a verdict too.
fn guarded(seed: u64, trace: bool) -> Verdict {
    catch_unwind(AssertUnwindSafe(|| run_seed(seed, trace))).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without words")
            .to_owned();
        Verdict {
            seed,
            broken: Some(Broken { law: "never-panics".to_owned(), what }),
            steps: 0,
            entries: 0,
            simulated_ms: 0,
            hash: 0,
            runs: 0,
            succeeded: 0,
            vacuous: false,
            effects: Effects::default(),
            profile: Profile::of(seed),
        }
    })
}

/// The line of a seed that failed, with how to see it again.
fn complaint(verdict: &Verdict) -> Option<String> {
    let Verdict { seed, .. } = verdict;
    let again = format!("clawhive-jepsen sim --replay {seed} --trace");
    match &verdict.broken {
        Some(Broken { law, what }) => Some(format!("seed {seed}: {law}: {what} ({again})")),
        None if verdict.vacuous => {
            Some(format!("seed {seed}: vacuous: nothing succeeded under faults ({again})"))
        }
        None => None,
    }
}

fn summary(verdicts: &[Verdict], started: Instant) -> Exit {
    let sum = |of: fn(&Verdict) -> u64| verdicts.iter().map(of).sum::<u64>();
    let broken = verdicts.iter().filter(|verdict| verdict.broken.is_some()).count();
    let vacuous = verdicts.iter().filter(|verdict| verdict.broken.is_none() && verdict.vacuous).count();
    let mut effects = Effects::default();
    verdicts.iter().for_each(|verdict| effects.add(&verdict.effects));
    println!(
        "{} seeds: {} valid, {broken} invalid, {vacuous} vacuous in {:.1} s",
        verdicts.len(),
        verdicts.len() - broken - vacuous,
        started.elapsed().as_secs_f64()
    );
    println!(
        "{} steps, {} log entries, {} runs ({} succeeded), {:.1} simulated hours",
        sum(|verdict| verdict.steps),
        sum(|verdict| verdict.entries),
        sum(|verdict| verdict.runs as u64),
        sum(|verdict| verdict.succeeded as u64),
        sum(|verdict| verdict.simulated_ms) as f64 / 3_600_000.0
    );
    let counts: Vec<String> =
        Effect::ALL.iter().map(|effect| format!("{} {}", effect.name(), effects.of(*effect))).collect();
    println!("took effect: {}", counts.join(", "));
    if let [one] = verdicts {
        println!("faults on: {}", one.profile.names().join(" "));
        println!("trace hash: {:016x}", one.hash);
    }
    let missing: Vec<String> = match verdicts.len() as u64 >= ENOUGH_SEEDS {
        true => Effect::ALL.into_iter().filter(|effect| effects.of(*effect) == 0).map(Effect::name).collect(),
        false => Vec::new(),
    };
    if !missing.is_empty() {
        println!("vacuous: in {} seeds these never took effect: {}", verdicts.len(), missing.join(", "));
    }
    if broken > 0 {
        Exit::Invalid
    } else if vacuous > 0 || !missing.is_empty() || verdicts.is_empty() {
        Exit::Vacuous
    } else {
        Exit::Valid
    }
}
