//! Clients of a real cluster: each submits its flows one after the other, under one request id until the answer is
//! known. Owns what was answered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use clawhive_client::{Client, Submit};

use super::Options;
use super::flow::{Flow, recordings};
use crate::rng::Rng;

/// What clients submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Workload {
    /// Random graphs of short tasks.
    Graph,
    /// Recorded executions, a thousand times as fast.
    Wfcommons,
}

/// What clients were told.
#[derive(Debug, Default)]
pub struct Submitted {
    /// Submits begun.
    pub operations: usize,
    /// Acknowledged runs and what they are.
    pub acknowledged: BTreeMap<u64, Arc<Flow>>,
    /// Submits that may or may not have happened.
    pub unknown: usize,
    /// Submits that were refused, and certainly did not happen.
    pub refused: Vec<String>,
    /// Answers that contradict each other.
    pub broken: Vec<String>,
}

/// The journal of all clients.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Submitted>);

impl Journal {
    fn with<T>(&self, change: impl FnOnce(&mut Submitted) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Everything so far; the journal is empty then.
    pub fn take(&self) -> Submitted {
        self.with(std::mem::take)
    }

    /// Runs acknowledged so far.
    pub fn acknowledged(&self) -> BTreeSet<u64> {
        self.with(|submitted| submitted.acknowledged.keys().copied().collect())
    }
}

/// More than any client gets through.
const RANDOM_FLOWS: usize = 5_000;

/// The flows of a run of the tool.
pub fn flows(options: &Options) -> Result<Vec<Arc<Flow>>> {
    let mut rng = Rng::of(options.seed, &[10]);
    match options.workload {
        Workload::Graph => {
            let flow = |number: usize| Flow::random(&mut rng, &format!("graph-{number}"));
            Ok((0..RANDOM_FLOWS).map(flow).map(Arc::new).collect())
        }
        Workload::Wfcommons => {
            let mut flows = Vec::new();
            for (name, text) in recordings(options.recordings.as_deref())? {
                flows.push(Arc::new(Flow::recorded(&text, &name, 1_000.0)?));
            }
            Ok(flows)
        }
    }
}

/// One client: submits until its flows or the time are over, with at most a few runs under way.
pub async fn client(
    client: Client,
    flows: Vec<Arc<Flow>>,
    counter: PathBuf,
    journal: Arc<Journal>,
    until: Instant,
) {
    for flow in flows {
        if Instant::now() >= until {
            return;
        }
        let Some(run) = submit(&client, &flow, &counter, &journal).await else { continue };
        // The next one overlaps with this one, but the queue does not grow without end.
        let pace = Duration::from_millis(700);
        let _ = tokio::time::timeout(pace, client.wait(run)).await;
    }
}

/// Submits a flow, again and again under the same request id while it is open whether it happened.
pub async fn submit(
    client: &Client,
    flow: &Arc<Flow>,
    counter: &std::path::Path,
    journal: &Journal,
) -> Option<u64> {
    let submit = Submit::definition(flow.definition(counter));
    journal.with(|submitted| submitted.operations += 1);
    for _ in 0..4 {
        match client.submit(submit.clone()).await {
            Ok(answer) => {
                let run = answer.run;
                let earlier = journal.with(|submitted| submitted.acknowledged.insert(run, flow.clone()));
                if earlier.is_some() {
                    let what = format!("two submits were answered with run {run}");
                    journal.with(|submitted| submitted.broken.push(what));
                }
                return Some(run);
            }
            Err(error) if error.may_have_been_applied() || clawhive_client::is_no_server(&error) => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => {
                journal.with(|submitted| submitted.refused.push(error.to_string()));
                return None;
            }
        }
    }
    journal.with(|submitted| submitted.unknown += 1);
    None
}
