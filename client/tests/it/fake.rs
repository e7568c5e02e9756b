//! A clawhive server that does what a script says, in this process, on a real port.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::clawhive_client::Client;
use ::clawhive_client::proto::clawhive_server::{Clawhive, ClawhiveServer};
use ::clawhive_client::proto::prost::Message;
use ::clawhive_client::proto::*;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

/// What a call meets.
#[derive(Debug, Clone)]
pub enum Do {
    /// The call is answered.
    Answer,
    /// It fails with this code.
    Fail(ErrorCode),
    /// It fails, and may have been applied.
    FailUnclear(ErrorCode),
    /// No answer, ever.
    Hang,
}

#[derive(Default)]
pub struct State {
    /// For the calls to come, first in first out; `Answer` when empty.
    pub script: VecDeque<Do>,
    /// What calls after the script meet.
    pub then: Option<Do>,
    /// Request ids of writes, as they came.
    pub request_ids: Vec<Vec<u8>>,
    pub calls: usize,
    /// The streams to come: items, then how they end (`Some`: with an error).
    pub runs: VecDeque<(Vec<RunView>, Option<ErrorCode>)>,
    pub events: VecDeque<(Vec<EventView>, Option<ErrorCode>)>,
    pub logs: VecDeque<(Vec<LogChunk>, Option<ErrorCode>)>,
    pub event_requests: Vec<ListEventsRequest>,
    pub log_requests: Vec<ReadLogsRequest>,
    /// How many puts each stream answers before it breaks; unlimited when empty.
    pub puts: VecDeque<usize>,
    /// Keys in the order of their first put, by request id.
    pub applied: Vec<(Vec<u8>, String)>,
}

#[derive(Clone, Default)]
pub struct Fake(pub Arc<Mutex<State>>);

pub struct Running {
    pub fake: Fake,
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

impl Running {
    /// On a runtime of its own, so that stopping it breaks its connections as the end of a process does.
    pub async fn start() -> Self {
        let fake = Fake::default();
        let service = ClawhiveServer::new(fake.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, address) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                bound.send(listener.local_addr().expect("bound")).expect("the test waits");
                let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
                let serve = Server::builder().add_service(service).serve_with_incoming(incoming);
                tokio::select! { _ = serve => {}, _ = stopped => {} }
            });
        });
        let address = address.await.expect("the server is bound");
        Self { fake, address, stop: Some(stop) }
    }

    pub fn script(&self, script: impl IntoIterator<Item = Do>) -> &Self {
        self.state(|state| state.script.extend(script));
        self
    }

    pub fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.fake.0.lock().expect("no test panics while it looks"))
    }

    pub fn stop(&mut self) {
        self.stop = None;
    }
}

pub fn client(servers: &[&Running], timeout: Duration) -> Client {
    Client::builder()
        .servers(servers.iter().map(|server| server.address.to_string()))
        .timeout(timeout)
        .patience(timeout)
        .connect_lazy()
        .expect("addresses of sockets are addresses")
}

/// A port where nothing listens.
pub async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("bound").to_string()
}

pub fn status(code: ErrorCode, message: &str, may_have_been_applied: bool) -> Status {
    let info = ErrorInfo { code: code.into(), may_have_been_applied, ..Default::default() };
    Status::with_details(Code::Unavailable, message, info.encode_to_vec().into())
}

impl Fake {
    async fn meet(&self, request_id: &[u8]) -> Result<(), Status> {
        let next = {
            let mut state = self.0.lock().expect("not poisoned");
            state.calls += 1;
            if !request_id.is_empty() {
                state.request_ids.push(request_id.to_vec());
            }
            let then = state.then.clone();
            state.script.pop_front().or(then).unwrap_or(Do::Answer)
        };
        match next {
            Do::Answer => Ok(()),
            Do::Fail(code) => Err(status(code, "as told", false)),
            Do::FailUnclear(code) => Err(status(code, "as told", true)),
            Do::Hang => std::future::pending().await,
        }
    }
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// The next stream of the script: its items, then its end.
fn next_stream<T: Send + 'static>(from: &mut VecDeque<(Vec<T>, Option<ErrorCode>)>) -> Answers<T> {
    let Some((items, end)) = from.pop_front() else { return stream::pending().boxed() };
    let end = stream::iter(end.map(|code| Err(status(code, "broken off", false))));
    stream::iter(items.into_iter().map(Ok)).chain(end).boxed()
}

#[tonic::async_trait]
impl Clawhive for Fake {
    type WatchRunStream = Answers<RunView>;
    type ListEventsStream = Answers<EventView>;
    type ReadLogsStream = Answers<LogChunk>;
    type PutKeysStream = Answers<PutKeyResponse>;

    async fn put_workflow(
        &self,
        request: Request<PutWorkflowRequest>,
    ) -> Result<Response<PutWorkflowResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(PutWorkflowResponse { name: "etl".into(), version: 1, ..Default::default() }))
    }

    async fn submit_run(
        &self,
        request: Request<SubmitRunRequest>,
    ) -> Result<Response<SubmitRunResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(SubmitRunResponse { run: 7, ..Default::default() }))
    }

    async fn submit_runs(
        &self,
        request: Request<SubmitRunsRequest>,
    ) -> Result<Response<SubmitRunsResponse>, Status> {
        self.meet(&[]).await?;
        let results = (request.into_inner().runs.into_iter()).map(|one| {
            let result = match one.what {
                Some(submit_run_request::What::Workflow(name)) if name == "unknown" => {
                    let info = ErrorInfo { code: ErrorCode::NotFound.into(), ..Default::default() };
                    submit_result::Result::Error(SubmitError { message: "no such".into(), info: Some(info) })
                }
                _ => submit_result::Result::Run(SubmitRunResponse { run: 1, ..Default::default() }),
            };
            SubmitResult { result: Some(result) }
        });
        Ok(Response::new(SubmitRunsResponse { results: results.collect() }))
    }

    async fn get_run(&self, request: Request<GetRunRequest>) -> Result<Response<RunView>, Status> {
        self.meet(&[]).await?;
        let run = RunRow { state: RunState::Succeeded.into(), ..Default::default() };
        Ok(Response::new(RunView { id: request.get_ref().run, run: Some(run), ..Default::default() }))
    }

    async fn list_runs(
        &self,
        _request: Request<ListRunsRequest>,
    ) -> Result<Response<ListRunsResponse>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(ListRunsResponse::default()))
    }

    async fn watch_run(
        &self,
        _request: Request<WatchRunRequest>,
    ) -> Result<Response<Self::WatchRunStream>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(next_stream(&mut self.0.lock().expect("not poisoned").runs)))
    }

    async fn cancel_run(
        &self,
        request: Request<CancelRunRequest>,
    ) -> Result<Response<CancelRunResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(CancelRunResponse::default()))
    }

    async fn list_events(
        &self,
        request: Request<ListEventsRequest>,
    ) -> Result<Response<Self::ListEventsStream>, Status> {
        self.meet(&[]).await?;
        let mut state = self.0.lock().expect("not poisoned");
        state.event_requests.push(request.into_inner());
        Ok(Response::new(next_stream(&mut state.events)))
    }

    async fn read_logs(
        &self,
        request: Request<ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Status> {
        self.meet(&[]).await?;
        let mut state = self.0.lock().expect("not poisoned");
        state.log_requests.push(request.into_inner());
        Ok(Response::new(next_stream(&mut state.logs)))
    }

    async fn list_nodes(
        &self,
        _request: Request<ListNodesRequest>,
    ) -> Result<Response<ListNodesResponse>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(ListNodesResponse::default()))
    }

    async fn cluster_status(
        &self,
        _request: Request<ClusterStatusRequest>,
    ) -> Result<Response<ClusterStatusResponse>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(ClusterStatusResponse { node: 1, ..Default::default() }))
    }

    async fn put_key(&self, request: Request<PutKeyRequest>) -> Result<Response<PutKeyResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(PutKeyResponse { log_index: 9 }))
    }

    async fn put_keys(
        &self,
        request: Request<Streaming<PutKeyRequest>>,
    ) -> Result<Response<Self::PutKeysStream>, Status> {
        self.meet(&[]).await?;
        let fake = self.clone();
        let limit = self.0.lock().expect("not poisoned").puts.pop_front().unwrap_or(usize::MAX);
        let answers = request.into_inner().enumerate().map(move |(place, put)| {
            let put = put?;
            let mut state = fake.0.lock().expect("not poisoned");
            let known = state.applied.iter().position(|(id, _)| *id == put.request_id);
            let index = known.unwrap_or_else(|| {
                state.applied.push((put.request_id, put.key));
                state.applied.len() - 1
            });
            // Applied, but the answer is lost with the connection.
            if place >= limit {
                return Err(status(ErrorCode::Unavailable, "broken off", true));
            }
            Ok(PutKeyResponse { log_index: index as u64 + 1 })
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn get_key(&self, _request: Request<GetKeyRequest>) -> Result<Response<GetKeyResponse>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(GetKeyResponse::default()))
    }

    type SaveSnapshotStream = BoxStream<'static, Result<SnapshotChunk, Status>>;

    async fn save_snapshot(
        &self,
        _request: Request<SaveSnapshotRequest>,
    ) -> Result<Response<Self::SaveSnapshotStream>, Status> {
        self.meet(&[]).await?;
        let first = SnapshotChunk { total_bytes: 3, applied_index: 9, ..Default::default() };
        let rest = SnapshotChunk { data: "abc".into(), ..Default::default() };
        Ok(Response::new(stream::iter([Ok(first), Ok(rest)]).boxed()))
    }

    async fn check_digests(
        &self,
        request: Request<CheckDigestsRequest>,
    ) -> Result<Response<CheckDigestsResponse>, Status> {
        self.meet(&request.into_inner().request_id).await?;
        Ok(Response::new(CheckDigestsResponse { log_index: 7, equal: true, nodes: Vec::new() }))
    }

    async fn resume_cluster(
        &self,
        request: Request<ResumeClusterRequest>,
    ) -> Result<Response<ResumeClusterResponse>, Status> {
        self.meet(&request.into_inner().request_id).await?;
        Ok(Response::new(ResumeClusterResponse { resumed: true }))
    }

    async fn list_keys(
        &self,
        _request: Request<ListKeysRequest>,
    ) -> Result<Response<ListKeysResponse>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(ListKeysResponse::default()))
    }

    async fn txn_keys(&self, request: Request<TxnKeysRequest>) -> Result<Response<TxnKeysResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(TxnKeysResponse { log_index: 9, succeeded: true, results: Vec::new() }))
    }

    async fn acquire_lock(
        &self,
        request: Request<AcquireLockRequest>,
    ) -> Result<Response<AcquireLockResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(AcquireLockResponse { token: 9, ..Default::default() }))
    }

    async fn renew_lock(
        &self,
        request: Request<RenewLockRequest>,
    ) -> Result<Response<RenewLockResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(RenewLockResponse {}))
    }

    async fn release_lock(
        &self,
        request: Request<ReleaseLockRequest>,
    ) -> Result<Response<ReleaseLockResponse>, Status> {
        self.meet(&request.get_ref().request_id).await?;
        Ok(Response::new(ReleaseLockResponse {}))
    }

    async fn list_locks(
        &self,
        _request: Request<ListLocksRequest>,
    ) -> Result<Response<ListLocksResponse>, Status> {
        self.meet(&[]).await?;
        Ok(Response::new(ListLocksResponse::default()))
    }
}
