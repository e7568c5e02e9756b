//! Writes, batched writes, linearizable reads and submits, at several numbers of clients, beside an etcd when one is
//! given: A and B alternate within each round, and the medians are compared.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clawhive_proto::clawhive_client::ClawhiveClient;
use clawhive_proto::{GetKeyRequest, PutKeyRequest, SubmitRunRequest, submit_run_request::What};
use serde::Serialize;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use super::etcd::Etcd;
use super::load::{self, Figures};

/// Keys that both stores are filled with before reads are compared: an empty store answers gets faster.
const FILL: u64 = 20_000;
const VALUE_BYTES: usize = 256;

/// One line of the result: ours, and etcd's with the ratios when it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// "writes", "reads", ...
    pub work: &'static str,
    /// The median round of clawhive.
    pub clawhive: Figures,
    /// The median round of etcd; for `batched` and `submit`, its single puts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Figures>,
    /// Our rate over etcd's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_ratio: Option<f64>,
    /// Our p50 over etcd's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ratio: Option<f64>,
    /// Our p99 over etcd's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ratio: Option<f64>,
}

impl Row {
    fn new(work: &'static str, clawhive: Vec<Figures>, etcd: Vec<Figures>) -> Row {
        let clawhive = Figures::median(clawhive);
        let etcd = (!etcd.is_empty()).then(|| Figures::median(etcd));
        let ratio = |of: fn(&Figures) -> f64| etcd.as_ref().map(|etcd| of(&clawhive) / of(etcd));
        Row {
            work,
            rate_ratio: ratio(|f| f.per_second),
            p50_ratio: ratio(|f| f.p50_ms),
            p99_ratio: ratio(|f| f.p99_ms),
            clawhive,
            etcd,
        }
    }
}

/// Connections to the two stores' leaders.
pub struct Stores {
    clawhive: Vec<ClawhiveClient<Channel>>,
    etcd: Vec<Etcd>,
}

/// Connections per store: one HTTP/2 connection is a bottleneck of its own from some hundred streams on.
const CONNECTIONS: usize = 8;

async fn connect(address: &str) -> Result<Channel> {
    let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let endpoint = tonic::transport::Endpoint::from_shared(uri)?.tcp_nodelay(true);
    endpoint.connect().await.with_context(|| format!("no server at {address}"))
}

impl Stores {
    /// Connects to `clawhive` (the leader's address) and to that member of `etcd` which leads.
    ///
    /// # Errors
    /// When a server does not answer, or no member of etcd leads.
    pub async fn connect(clawhive: &str, etcd: &[String]) -> Result<Stores> {
        let mut stores = Stores { clawhive: Vec::new(), etcd: Vec::new() };
        for _ in 0..CONNECTIONS {
            stores.clawhive.push(ClawhiveClient::new(connect(clawhive).await?));
        }
        let mut leader = None;
        for address in etcd {
            if Etcd::new(connect(address).await?).leads().await? {
                leader = Some(address);
            }
        }
        match leader {
            Some(address) => {
                for _ in 0..CONNECTIONS {
                    stores.etcd.push(Etcd::new(connect(address).await?));
                }
            }
            None if !etcd.is_empty() => bail!("none of the etcd members {} leads", etcd.join(", ")),
            None => {}
        }
        Ok(stores)
    }

    /// Single puts of 256 bytes.
    pub async fn writes(&self, clients: usize, time: Duration, rounds: usize) -> Row {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            ours.push(self.put_round(clients, time, round).await);
            theirs.extend(self.etcd_put_round(clients, time, round).await);
        }
        Row::new("writes", ours, theirs)
    }

    async fn put_round(&self, clients: usize, time: Duration, round: usize) -> Figures {
        let connections = self.clawhive.clone();
        load::closed_loop(clients, time, move |client, n| {
            let mut connection = connections[client % connections.len()].clone();
            let request = put_request(&format!("bench-{round}-{clients}-{n}"));
            async move { connection.put_key(request).await.map(drop) }
        })
        .await
    }

    async fn etcd_put_round(&self, clients: usize, time: Duration, round: usize) -> Option<Figures> {
        if self.etcd.is_empty() {
            return None;
        }
        let connections = self.etcd.clone();
        let load = load::closed_loop(clients, time, move |client, n| {
            let connection = connections[client % connections.len()].clone();
            let key = format!("bench-{round}-{clients}-{n}").into_bytes();
            async move { connection.put(key, vec![b'x'; VALUE_BYTES]).await }
        });
        Some(load.await)
    }

    /// Puts streamed over a few connections with `window` of them under way, beside etcd's single puts with as many
    /// clients.
    ///
    /// # Errors
    /// When the stream breaks.
    pub async fn batched(&self, window: usize, time: Duration, rounds: usize) -> Result<Row> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            let streams = 4;
            let started = Instant::now();
            let tasks: Vec<_> = (0..streams)
                .map(|stream| {
                    let connection = self.clawhive[stream].clone();
                    let prefix = format!("batch-{round}-{stream}");
                    tokio::spawn(stream_puts(connection, prefix, window / streams, time))
                })
                .collect();
            let mut all = load::histogram();
            for task in tasks {
                all += task.await??;
            }
            ours.push(Figures::new(window, &all, 0, started.elapsed()));
            theirs.extend(self.etcd_put_round(window, time, round).await);
        }
        Ok(Row::new("batched writes", ours, theirs))
    }

    /// Linearizable gets from filled stores.
    ///
    /// # Errors
    /// When a store cannot be filled.
    pub async fn reads(&self, clients: usize, time: Duration, rounds: usize) -> Result<Row> {
        self.fill().await?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let connections = self.clawhive.clone();
            let figures = load::closed_loop(clients, time, move |client, n| {
                let mut connection = connections[client % connections.len()].clone();
                let key = format!("fill-{}", n.wrapping_mul(7919) % FILL);
                let request = GetKeyRequest { namespace: "default".into(), key, stale: false };
                async move {
                    let answer = connection.get_key(request).await.map_err(drop)?;
                    if answer.into_inner().found { Ok(()) } else { Err(()) }
                }
            });
            ours.push(figures.await);
            if !self.etcd.is_empty() {
                let connections = self.etcd.clone();
                let figures = load::closed_loop(clients, time, move |client, n| {
                    let connection = connections[client % connections.len()].clone();
                    let key = format!("fill-{}", n.wrapping_mul(7919) % FILL).into_bytes();
                    async move { if connection.get(key).await.map_err(drop)? { Ok(()) } else { Err(()) } }
                });
                theirs.push(figures.await);
            }
        }
        Ok(Row::new("linearizable reads", ours, theirs))
    }

    async fn fill(&self) -> Result<()> {
        let requests = tokio_stream::iter((0..FILL).map(|n| put_request(&format!("fill-{n}"))));
        let mut answers = self.clawhive[0].clone().put_keys(requests).await?.into_inner();
        while answers.next().await.transpose()?.is_some() {}
        if let Some(etcd) = self.etcd.first() {
            let mut puts = tokio::task::JoinSet::new();
            for n in 0..FILL {
                let etcd = etcd.clone();
                puts.spawn(async move {
                    etcd.put(format!("fill-{n}").into_bytes(), vec![b'x'; VALUE_BYTES]).await
                });
                if puts.len() >= 128 {
                    puts.join_next().await.context("a put is under way")???;
                }
            }
            while let Some(put) = puts.join_next().await {
                put??;
            }
        }
        Ok(())
    }

    /// Submits of a stored workflow of five tasks, beside etcd's puts.
    ///
    /// # Errors
    /// When the workflow is refused.
    pub async fn submit(&self, clients: usize, time: Duration, rounds: usize) -> Result<Row> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let definition = five_task_graph();
        for round in 0..rounds {
            let connections = self.clawhive.clone();
            let definition = definition.clone();
            let figures = load::closed_loop(clients, time, move |client, _| {
                let mut connection = connections[client % connections.len()].clone();
                let request = submit_request(&definition);
                async move { connection.submit_run(request).await.map(drop) }
            });
            ours.push(figures.await);
            theirs.extend(self.etcd_put_round(clients, time, round).await);
        }
        Ok(Row::new("submit of a 5-task graph", ours, theirs))
    }
}

impl Stores {
    /// Puts at a fixed rate, each due at its own time whether or not the one before was answered, so that a pause of the
    /// server shows in every write that was due during it.
    ///
    /// # Errors
    /// When a put fails.
    pub async fn paced(&self, per_second: u32, time: Duration) -> Result<Figures> {
        let (started, mut puts) = (Instant::now(), tokio::task::JoinSet::new());
        let (step, mut latencies) = (Duration::from_secs(1) / per_second, load::histogram());
        let mut n = 0u32;
        while started.elapsed() < time {
            let due = started + step * n;
            tokio::time::sleep_until(due).await;
            let mut connection = self.clawhive[n as usize % CONNECTIONS].clone();
            let request = put_request(&format!("paced-{n}"));
            puts.spawn(async move { connection.put_key(request).await.map(|_| due.elapsed()) });
            n += 1;
            while let Some(put) = puts.try_join_next() {
                latencies.saturating_record(put??.as_micros() as u64);
            }
        }
        while let Some(put) = puts.join_next().await {
            latencies.saturating_record(put??.as_micros() as u64);
        }
        Ok(Figures::new(1, &latencies, 0, started.elapsed()))
    }
}

async fn stream_puts(
    mut connection: ClawhiveClient<Channel>,
    prefix: String,
    window: usize,
    time: Duration,
) -> Result<hdrhistogram::Histogram<u64>> {
    let (send, receive) = tokio::sync::mpsc::channel(window);
    let mut latencies = load::histogram();
    let answers = connection.put_keys(tokio_stream::wrappers::ReceiverStream::new(receive));
    let started = Instant::now();
    let (mut sent, mut n) = (std::collections::VecDeque::new(), 0u64);
    let mut fill = |sent: &mut std::collections::VecDeque<Instant>| {
        while sent.len() < window && started.elapsed() < time {
            if send.try_send(put_request(&format!("{prefix}-{n}"))).is_err() {
                break;
            }
            n += 1;
            sent.push_back(Instant::now());
        }
    };
    fill(&mut sent);
    let mut answers = answers.await?.into_inner();
    while let Some(at) = sent.pop_front() {
        answers.next().await.context("the stream ended early")??;
        latencies.saturating_record(at.elapsed().as_micros() as u64);
        fill(&mut sent);
    }
    Ok(latencies)
}

fn put_request(key: &str) -> PutKeyRequest {
    PutKeyRequest {
        request_id: Vec::new(),
        namespace: "default".into(),
        key: key.into(),
        value: vec![b'x'; VALUE_BYTES].into(),
    }
}

fn submit_request(definition: &str) -> SubmitRunRequest {
    SubmitRunRequest {
        request_id: Vec::new(),
        what: Some(What::Definition(definition.as_bytes().to_vec())),
        version: 0,
        params: BTreeMap::new(),
        idempotency_key: String::new(),
        labels: BTreeMap::new(),
    }
}

/// A diamond with a tail.
fn five_task_graph() -> String {
    let mut text = String::from("name: bench-five\ntasks:\n");
    for (name, needs) in [("a", ""), ("b", "a"), ("c", "a"), ("d", "b, c"), ("e", "d")] {
        text.push_str(&format!(
            "  {name}:\n    needs: [{needs}]\n    process: {{command: [\"/bin/true\"]}}\n"
        ));
    }
    text
}
