//! W2 to W5 of the performance goals: real processes through a real cluster, and the bare spawn loop beside them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clawhive_proto::clawhive_client::ClawhiveClient;
use clawhive_proto::{
    CancelRunRequest, ClusterStatusRequest, ListEventsRequest, RunState, RunView, SubmitRunRequest,
    WatchRunRequest, submit_run_request::What,
};
use serde::Serialize;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use super::load::{self, Figures};
use clawhive_node::claw::bench::bare_spawn_loop;

/// `count` times `/bin/true` through the cluster, beside the bare loop of the same size.
#[derive(Clone, Debug, Serialize)]
pub struct Spawned {
    /// Tasks of the run.
    pub tasks: usize,
    /// Tasks per second from the submit to the end of the run.
    pub per_second: f64,
    /// Spawns per second of the bare loop, same run.
    pub bare_per_second: f64,
    /// The first over the second.
    pub ratio: f64,
    /// Milliseconds from the submit to the end, per task.
    pub ms_per_task: f64,
}

/// A chain, hop by hop.
#[derive(Clone, Debug, Serialize)]
pub struct Chain {
    /// Tasks in the chain.
    pub tasks: usize,
    /// Milliseconds per hop, its process included.
    pub hop_ms: f64,
    /// Milliseconds of one bare spawn of the same process, one after the other, same run.
    pub bare_spawn_ms: f64,
    /// What the cluster adds to a hop.
    pub added_ms: f64,
}

/// One task, then many, then one.
#[derive(Clone, Debug, Serialize)]
pub struct Fan {
    /// Tasks in the middle.
    pub width: usize,
    /// From the submit to the end of the run.
    pub seconds: f64,
    /// What the bare loop takes for as many processes.
    pub bare_seconds: f64,
}

/// The cluster under measurement.
#[derive(Clone)]
pub struct Work {
    client: ClawhiveClient<Channel>,
}

/// A run that takes every slot until it is cancelled, so that submits are measured and not processes.
pub struct Plug {
    run: u64,
}

impl Work {
    /// Connects to one node.
    ///
    /// # Errors
    /// When no server answers there.
    pub async fn connect(address: &str) -> Result<Work> {
        let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let channel = tonic::transport::Endpoint::from_shared(uri)?.tcp_nodelay(true).connect().await;
        let client = ClawhiveClient::new(channel.with_context(|| format!("no server at {address}"))?)
            .max_decoding_message_size(64 << 20);
        Ok(Work { client })
    }

    async fn submit(&self, definition: String) -> Result<u64> {
        let request =
            SubmitRunRequest { what: Some(What::Definition(definition.into_bytes())), ..Default::default() };
        Ok(self.client.clone().submit_run(request).await?.into_inner().run)
    }

    /// Follows a run to its end.
    async fn end_of(&self, run: u64) -> Result<RunView> {
        let request = WatchRunRequest { run, brief: true };
        let mut views = self.client.clone().watch_run(request).await?.into_inner();
        let mut last = None;
        while let Some(view) = views.next().await {
            last = Some(view?);
        }
        let view = last.context("the watch ended without a view")?;
        let state = view.run.as_ref().map(|row| row.state());
        if state != Some(RunState::Succeeded) {
            bail!("the run {run} of the bench ended as {state:?}");
        }
        Ok(view)
    }

    async fn timed(&self, definition: String) -> Result<Duration> {
        let started = Instant::now();
        let run = self.submit(definition).await?;
        self.end_of(run).await?;
        Ok(started.elapsed())
    }

    /// W2: `tasks` independent processes.
    ///
    /// # Errors
    /// When the run does not succeed.
    pub async fn spawned(&self, tasks: usize, rounds: usize) -> Result<Spawned> {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(blocking_bare(tasks, 2).await?);
            ours.push(self.timed(parallel("bench-w2", tasks)).await?);
        }
        let (ours, bare) = (median(ours).as_secs_f64(), median(bare).as_secs_f64());
        let per = |seconds: f64| tasks as f64 / seconds;
        Ok(Spawned {
            tasks,
            per_second: per(ours),
            bare_per_second: per(bare),
            ratio: bare / ours,
            ms_per_task: ours * 1000.0 / tasks as f64,
        })
    }

    /// W3: each task needs the one before.
    ///
    /// # Errors
    /// When the run does not succeed.
    pub async fn chain(&self, tasks: usize, rounds: usize) -> Result<Chain> {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(blocking_bare(tasks, 1).await?);
            ours.push(self.timed(chain(tasks)).await?);
        }
        let per_hop = |times| median(times).as_secs_f64() * 1000.0 / tasks as f64;
        let (hop_ms, bare_spawn_ms) = (per_hop(ours), per_hop(bare));
        Ok(Chain { tasks, hop_ms, bare_spawn_ms, added_ms: hop_ms - bare_spawn_ms })
    }

    /// W4: one, `width`, one.
    ///
    /// # Errors
    /// When the run does not succeed.
    pub async fn fan(&self, width: usize, rounds: usize) -> Result<Fan> {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(blocking_bare(width + 2, 2).await?);
            ours.push(self.timed(fan(width)).await?);
        }
        Ok(Fan { width, seconds: median(ours).as_secs_f64(), bare_seconds: median(bare).as_secs_f64() })
    }

    /// W5: from sending a submit on an idle cluster to hearing that its only task runs.
    ///
    /// # Errors
    /// When the event feed breaks.
    pub async fn submit_to_start(&self, count: usize) -> Result<Figures> {
        let definition = parallel("bench-w5", 1);
        let mut latencies = load::histogram();
        let begun = Instant::now();
        for _ in 0..count {
            let sent = Instant::now();
            let run = self.submit(definition.clone()).await?;
            let request = ListEventsRequest { run, follow: true, ..ListEventsRequest::default() };
            let mut events = self.client.clone().list_events(request).await?.into_inner();
            while let Some(event) = events.next().await {
                if event?.kind == "task_running" {
                    latencies.saturating_record(sent.elapsed().as_micros() as u64);
                    break;
                }
            }
            self.end_of(run).await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Figures::new(1, &latencies, (count as u64).saturating_sub(latencies.len()), begun.elapsed()))
    }

    /// Takes every slot of the cluster.
    ///
    /// # Errors
    /// When the plug cannot be submitted.
    pub async fn plug(&self) -> Result<Plug> {
        let status = self.client.clone().cluster_status(ClusterStatusRequest {}).await?.into_inner();
        let slots: u32 = status.nodes.iter().map(|node| node.slots).sum();
        let mut text = String::from("name: bench-plug\npriority: 9\ntasks:\n");
        for task in 0..slots {
            text.push_str(&format!("  t{task}: {{process: {{command: [\"sleep\", \"3600\"]}}}}\n"));
        }
        let run = self.submit(text).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Plug { run })
    }

    /// Cancels every run that was submitted after the plug, then the plug.
    ///
    /// # Errors
    /// When a cancel is refused.
    pub async fn unplug(&self, plug: Plug, last_run: u64) -> Result<()> {
        let mut cancels = tokio::task::JoinSet::new();
        // The plug goes last: until then none of the others can start.
        for run in (plug.run + 1..=last_run).chain([plug.run]) {
            if cancels.len() >= 256 || run == plug.run {
                while let Some(cancel) = cancels.join_next().await {
                    cancel??;
                }
            }
            let mut client = self.client.clone();
            cancels.spawn(async move {
                let reason = "end of the bench".into();
                client.cancel_run(CancelRunRequest { run, reason, ..Default::default() }).await.map(drop)
            });
        }
        while let Some(cancel) = cancels.join_next().await {
            cancel??;
        }
        Ok(())
    }

    /// The id of a run submitted now: all earlier ones are below it.
    ///
    /// # Errors
    /// When the submit fails.
    pub async fn newest_run(&self) -> Result<u64> {
        self.submit(parallel("bench-mark", 1)).await
    }
}

async fn blocking_bare(count: usize, at_once: usize) -> Result<Duration> {
    let (count, lanes) = (u32::try_from(count)?, u32::try_from(at_once)?);
    Ok(tokio::task::spawn_blocking(move || bare_spawn_loop(count, lanes)).await??)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

const TRUE: &str = "process: {command: [\"/bin/true\"]}";

fn parallel(name: &str, tasks: usize) -> String {
    let mut text = format!("name: {name}\ntasks:\n");
    for task in 0..tasks {
        text.push_str(&format!("  t{task}: {{{TRUE}}}\n"));
    }
    text
}

fn chain(tasks: usize) -> String {
    let mut text = format!("name: bench-w3\ntasks:\n  t0: {{{TRUE}}}\n");
    for task in 1..tasks {
        text.push_str(&format!("  t{task}: {{needs: [t{}], {TRUE}}}\n", task - 1));
    }
    text
}

fn fan(width: usize) -> String {
    let mut text = format!("name: bench-w4\ntasks:\n  first: {{{TRUE}}}\n");
    let mut names = Vec::with_capacity(width);
    for task in 0..width {
        text.push_str(&format!("  t{task}: {{needs: [first], {TRUE}}}\n"));
        names.push(format!("t{task}"));
    }
    text.push_str(&format!("  last: {{needs: [{}], {TRUE}}}\n", names.join(", ")));
    text
}
