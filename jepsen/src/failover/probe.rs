//! The gap in writes that a kill makes, as clients of the surviving members see it. The same for every store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// One put through a surviving member; true when it was acknowledged.
type Put = dyn Fn(usize, String) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync;

/// How to write through each of the members that will survive.
#[derive(Clone)]
pub(super) struct Puts {
    members: usize,
    put: Arc<Put>,
}

impl Puts {
    /// `put` is called with the number of a surviving member, from 0, and a key.
    pub(super) fn new(
        members: usize,
        put: impl Fn(usize, String) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send>>
        + Send
        + Sync
        + 'static,
    ) -> Puts {
        Puts { members, put: Arc::new(put) }
    }
}

/// A new write is tried so often after the kill: the resolution of the measurement.
const EVERY: Duration = Duration::from_millis(5);

/// Longer than any election.
const PATIENCE: Duration = Duration::from_secs(30);

/// Loads the store, kills its leader, and measures until the first write that began after the kill is acknowledged.
pub(super) async fn gap(puts: Puts, writers: usize, kill: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut load = JoinSet::new();
    for writer in 0..writers {
        let (puts, stop, acknowledged) = (puts.clone(), stop.clone(), acknowledged.clone());
        load.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                if (puts.put)(writer % puts.members, format!("load-{writer}")).await {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                } else {
                    tokio::time::sleep(EVERY).await;
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(acknowledged.load(Ordering::Relaxed) > 0, "no write was acknowledged before the kill");
    kill()?;
    let killed = Instant::now();
    let (answer, mut answers) = mpsc::unbounded_channel();
    let mut probes = JoinSet::new();
    let mut tick = tokio::time::interval(EVERY);
    let mut number = 0usize;
    let gap = loop {
        tokio::select! {
            Some(()) = answers.recv() => break killed.elapsed(),
            _ = tick.tick() => {
                ensure!(killed.elapsed() < PATIENCE, "no write was acknowledged within {PATIENCE:?} of the kill");
                let (puts, answer) = (puts.clone(), answer.clone());
                let member = number % puts.members;
                number += 1;
                probes.spawn(async move {
                    if (puts.put)(member, format!("probe-{number}")).await {
                        // Nobody listens any more when another was first.
                        let _ = answer.send(());
                    }
                });
            }
        }
    };
    stop.store(true, Ordering::Relaxed);
    probes.shutdown().await;
    load.shutdown().await;
    Ok(gap)
}
