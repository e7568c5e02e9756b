//! Nodes and clients of the tests.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clawhive_node::{Builder, Node};
use clawhive_proto::clawhive_client::ClawhiveClient;
use clawhive_proto::prost::Message;
use clawhive_proto::submit_run_request::What;
use clawhive_proto::{
    ErrorInfo, EventView, GetRunRequest, ListEventsRequest, LogChunk, ReadLogsRequest, RunState, RunView,
    SubmitRunRequest, SubmitRunResponse, TaskView, WatchRunRequest,
};
use tempfile::TempDir;
use tonic::Status;
use tonic::transport::Channel;

pub type Client = ClawhiveClient<Channel>;

/// Longer than anything here should take, so that a hang is a failure and not a hang.
pub const LONG: Duration = Duration::from_secs(60);

pub fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// A free port that stays free while a node is down: not one that the system gives to whoever asks for any.
fn fixed() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (std::process::id().wrapping_mul(61) + step) % 20_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap()));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

pub fn builder(data: &Path) -> Builder {
    Node::builder()
        .data(data)
        .listen(loopback())
        .peer_listen(loopback())
        .slots(4)
        .lease(Duration::from_secs(5))
        .cache(4 << 20)
        // The machine may be busy with other tests.
        .election(Duration::from_millis(50), Duration::from_millis(300), Duration::from_millis(600))
}

pub async fn client(address: SocketAddr) -> Client {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    Client::new(endpoint.tcp_nodelay(true).connect_lazy()).max_decoding_message_size(64 << 20)
}

/// Waits until something holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < LONG, "not within {LONG:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A cluster of nodes, each with a directory that outlives it.
pub struct Hive {
    pub dirs: Vec<TempDir>,
    pub nodes: Vec<Option<Node>>,
    addresses: Vec<SocketAddr>,
    peer_addresses: Vec<SocketAddr>,
}

impl Hive {
    /// Starts so many nodes that form one cluster of voters.
    pub async fn start(count: usize) -> Hive {
        let dirs: Vec<TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let first =
            builder(dirs[0].path()).listen(fixed()).peer_listen(fixed()).bootstrap().start().await.unwrap();
        let seed = first.peer_listen().to_string();
        let mut hive = Hive {
            dirs,
            addresses: vec![first.listen()],
            peer_addresses: vec![first.peer_listen()],
            nodes: vec![Some(first)],
        };
        for index in 1..count {
            let node = builder(hive.dirs[index].path())
                .listen(fixed())
                .peer_listen(fixed())
                .join([seed.clone()])
                .start()
                .await
                .unwrap();
            hive.addresses.push(node.listen());
            hive.peer_addresses.push(node.peer_listen());
            hive.nodes.push(Some(node));
        }
        hive.ready(count).await;
        hive
    }

    /// Waits until every running node is ready and knows so many voters.
    pub async fn ready(&self, voters: usize) {
        for node in self.nodes.iter().flatten() {
            tokio::time::timeout(LONG, node.ready()).await.expect("ready in time");
            eventually("all voters are known", || async { node.voters() == voters }).await;
        }
    }

    pub fn node(&self, index: usize) -> &Node {
        self.nodes[index].as_ref().unwrap()
    }

    /// Where clients reach a node.
    pub fn address(&self, index: usize) -> SocketAddr {
        self.addresses[index]
    }

    pub async fn client(&self, index: usize) -> Client {
        client(self.addresses[index]).await
    }

    /// The place of the node that leads.
    pub async fn leader(&self) -> usize {
        let started = Instant::now();
        loop {
            let leads = |node: &Option<Node>| node.as_ref().is_some_and(Node::is_leader);
            if let Some(index) = self.nodes.iter().position(leads) {
                return index;
            }
            assert!(started.elapsed() < LONG, "nobody leads");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops a node, without waiting for what runs.
    pub async fn stop(&mut self, index: usize) {
        let node = self.nodes[index].take().unwrap();
        node.shutdown(Duration::ZERO).await;
    }

    /// Ends a node as a crash would.
    pub async fn crash(&mut self, index: usize) {
        self.nodes[index].take().unwrap().crash().await;
    }

    /// Starts a stopped node again, at the same addresses.
    pub async fn restart(&mut self, index: usize) {
        let builder = builder(self.dirs[index].path());
        let builder = builder.listen(self.addresses[index]).peer_listen(self.peer_addresses[index]);
        self.nodes[index] = Some(builder.start().await.unwrap());
    }

    /// Starts a stopped node again, at other addresses.
    pub async fn restart_elsewhere(&mut self, index: usize) {
        let builder = builder(self.dirs[index].path()).listen(fixed()).peer_listen(fixed());
        let node = builder.start().await.unwrap();
        self.addresses[index] = node.listen();
        self.peer_addresses[index] = node.peer_listen();
        self.nodes[index] = Some(node);
    }

    pub async fn shutdown(mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_some() {
                self.stop(index).await;
            }
        }
    }
}

pub fn submit_request(definition: &str) -> SubmitRunRequest {
    SubmitRunRequest {
        what: Some(What::Definition(definition.as_bytes().to_vec())),
        ..SubmitRunRequest::default()
    }
}

pub async fn submit(client: &mut Client, definition: &str) -> SubmitRunResponse {
    client.submit_run(submit_request(definition)).await.unwrap().into_inner()
}

/// Follows a run to its end.
pub async fn end_of(client: &mut Client, run: u64) -> RunView {
    let watch = async {
        let mut views = client.watch_run(WatchRunRequest { run, brief: false }).await.unwrap().into_inner();
        let mut last = None;
        while let Some(view) = views.message().await.unwrap() {
            last = Some(view);
        }
        last.expect("a watch sends the run at least once")
    };
    tokio::time::timeout(LONG, watch).await.expect("the run ends in time")
}

pub async fn get(client: &mut Client, run: u64) -> RunView {
    client.get_run(GetRunRequest { run, ..GetRunRequest::default() }).await.unwrap().into_inner()
}

pub fn state(view: &RunView) -> RunState {
    view.run.as_ref().unwrap().state()
}

pub fn task<'a>(view: &'a RunView, name: &str) -> &'a TaskView {
    view.tasks.iter().find(|task| task.name == name).unwrap()
}

pub async fn events(client: &mut Client, run: u64) -> Vec<EventView> {
    let request = ListEventsRequest { run, ..ListEventsRequest::default() };
    let mut stream = client.list_events(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        events.push(event);
    }
    events
}

pub async fn logs(client: &mut Client, request: ReadLogsRequest) -> Vec<LogChunk> {
    let read = async {
        let mut stream = client.read_logs(request).await.unwrap().into_inner();
        let mut chunks = Vec::new();
        while let Some(chunk) = stream.message().await.unwrap() {
            chunks.push(chunk);
        }
        chunks
    };
    tokio::time::timeout(LONG, read).await.expect("the logs end in time")
}

pub fn text(chunks: &[LogChunk]) -> String {
    let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.data.to_vec()).collect();
    String::from_utf8(bytes).unwrap()
}

pub fn info(status: &Status) -> ErrorInfo {
    ErrorInfo::decode(status.details()).unwrap()
}
