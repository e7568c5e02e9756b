//! The replica: everything that the rest of clawhive uses of consensus.
//!
//! Owns: starting and stopping the parts in order. Raft runs on a runtime of its own, so that neither apply nor load on
//! the process's other runtime can stall it into an election.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::{FrameKind, Outcome, Proposal};
use futures::stream::BoxStream;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, watch};

use crate::batcher::{self, Pending};
use crate::digest::StateDigest;
use crate::disk::Disk;
use crate::error::{HandleError, MemberError, OpenError, ProposeError, ReadError};
use crate::export::{Export, ExportError};
use crate::fatal::Fatal;
use crate::feed::Feed;
use crate::flusher::Flusher;
use crate::fresh::Confirmations;
use crate::log::store::LogStore;
use crate::log::{LogError, LogOptions};
use crate::machine::Machine;
use crate::network::Network;
use crate::options::Options;
use crate::reach::Reach;
use crate::reads::{self, Rounds, Waiting};
use crate::seams::{PrepareHook, Seams};
use crate::snapshot::Shelf;
use crate::state::State;
use crate::status::Status;
use crate::status_task::{Observer, Raft};
use crate::transport::Transport;
use crate::view::View;

/// A proposal's answer: it is committed and applied on the node that answers for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// Its place in the log; for a repeated request id, that of the first time.
    pub log_index: u64,
    /// One outcome per command, in order. For a repeated request id, those of the first time.
    pub outcomes: Vec<Outcome>,
}

/// One member of the cluster, running. Cheap to clone; all clones are the same replica, which stops when the last is
/// dropped. Stop it with [`Replica::shutdown`] to keep the state's way to the disk short next time.
#[derive(Clone)]
pub struct Replica {
    core: Arc<Core>,
    life: Arc<Life>,
}

/// What requests need.
pub(crate) struct Core {
    pub(crate) node_id: u64,
    pub(crate) raft: Raft,
    log: LogStore,
    pub(crate) state: Arc<State>,
    pub(crate) shelf: Shelf,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) prepare: PrepareHook,
    pub(crate) reach: Arc<Reach>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) queue: mpsc::Sender<Pending>,
    pub(crate) reads: mpsc::Sender<Waiting>,
    confirmed: Arc<Confirmations>,
    pub(crate) runtime: Handle,
    /// Held by the transfer of a snapshot that comes in.
    pub(crate) incoming: tokio::sync::Mutex<()>,
}

/// What must be stopped.
struct Life {
    raft: Raft,
    flusher: Mutex<Option<Flusher>>,
    runtime: Mutex<Option<Runtime>>,
    stopped: AtomicBool,
}

impl Drop for Life {
    fn drop(&mut self) {
        // A runtime must not be dropped where blocking is not allowed; this one is told to end by itself.
        if let Some(runtime) = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            runtime.shutdown_background();
        }
    }
}

impl Replica {
    /// Starts a replica over `options.dir`, or recovers the one that is there. It belongs to no cluster until
    /// [`Replica::bootstrap`], or until a leader adds it.
    pub async fn open(options: Options, seams: Seams) -> Result<Replica, OpenError> {
        options.check()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.workers)
            .thread_name("clawhive-raft")
            .enable_all()
            .build()
            .map_err(|source| OpenError::Io { what: "start a runtime".to_owned(), source })?;
        let handle = runtime.handle().clone();
        match handle.spawn(start(options, seams, handle.clone())).await {
            Ok(Ok((core, flusher))) => {
                let life = Life {
                    raft: core.raft.clone(),
                    flusher: Mutex::new(Some(flusher)),
                    runtime: Mutex::new(Some(runtime)),
                    stopped: AtomicBool::new(false),
                };
                Ok(Replica { core: Arc::new(core), life: Arc::new(life) })
            }
            Ok(Err(error)) => {
                runtime.shutdown_background();
                Err(error)
            }
            Err(panic) => {
                runtime.shutdown_background();
                Err(OpenError::Raft(panic.to_string()))
            }
        }
    }

    /// Makes this node a cluster of one, reachable at `peer_addr`, and waits until it leads. Does nothing when it
    /// already belongs to a cluster.
    pub async fn bootstrap(&self, peer_addr: &str) -> Result<(), MemberError> {
        self.core.bootstrap(peer_addr).await
    }

    /// Proposes on any peer: forwards to the leader, waits through elections until the deadline. Same request id, same
    /// outcomes. Without a quorum it fails within the timeout, and at the latest after 5 s.
    ///
    /// A proposal without a request id is not repeated once it may have been taken: then the answer is
    /// [`ProposeError::LeaderLost`].
    pub async fn propose(&self, proposal: Proposal, timeout: Duration) -> Result<Committed, ProposeError> {
        self.core.propose(proposal, timeout).await
    }

    /// As [`Replica::propose`], but only when this node leads; never forwards. For the leader's loops.
    pub async fn propose_local(
        &self,
        proposal: Proposal,
        timeout: Duration,
    ) -> Result<Committed, ProposeError> {
        self.core.propose_local(proposal, timeout).await
    }

    /// The state as applied here so far, possibly behind the cluster. Never waits.
    pub fn view(&self) -> View {
        self.core.state.view()
    }

    /// As [`Replica::view`], with how old it may be: it includes every write acknowledged anywhere so long ago. None when
    /// this node has not been told anything about that since it was opened.
    pub fn stale_view(&self) -> (View, Option<Duration>) {
        let view = self.core.state.view();
        let age = self.core.confirmed.age(view.applied_index());
        (view, age)
    }

    /// A view that includes every write acknowledged anywhere before this call. On any peer.
    pub async fn linearizable_view(&self, timeout: Duration) -> Result<View, ReadError> {
        self.core.linearizable_view(timeout).await
    }

    /// Waits until this node has applied `index`, and gives a view that includes it.
    pub async fn wait_applied(&self, index: u64, timeout: Duration) -> Result<View, ReadError> {
        self.core.wait_applied(index, timeout).await
    }

    /// Waits until this node has caught up with what the cluster had committed before it was opened.
    pub async fn wait_recovered(&self, timeout: Duration) -> Result<(), ReadError> {
        let mut status = self.core.status.clone();
        match tokio::time::timeout(timeout, status.wait_for(|status| status.recovered)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ReadError::Shutdown),
            Err(_) => Err(ReadError::Timeout),
        }
    }

    /// A fresh reader of the feed.
    pub fn feed(&self) -> Feed {
        self.core.state.subscribe()
    }

    /// Where this replica stands, now and on every change. Numbers may lag by some tens of milliseconds; leadership
    /// does not.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.core.status.clone()
    }

    /// Adds a member without a vote and waits until it has nearly caught up; one that is a member gets another address.
    /// Leader only.
    pub async fn add_learner(&self, id: u64, addr: &str, timeout: Duration) -> Result<(), MemberError> {
        self.core.add_learner(id, addr, timeout).await
    }

    /// Tells the cluster where a member listens now. Leader only.
    pub async fn set_addr(&self, id: u64, addr: &str, timeout: Duration) -> Result<(), MemberError> {
        self.core.set_addr(id, addr, timeout).await
    }

    /// Gives a learner a vote. Leader only.
    pub async fn promote(&self, id: u64, timeout: Duration) -> Result<(), MemberError> {
        self.core.promote(id, timeout).await
    }

    /// Removes a member, with or without a vote. Leader only; a leader may remove itself.
    pub async fn remove(&self, id: u64, timeout: Duration) -> Result<(), MemberError> {
        self.core.remove(id, timeout).await
    }

    /// Asks `to` to take over. Leader only; returns when it was asked, not when it leads.
    pub async fn transfer_leader(&self, to: u64) -> Result<(), MemberError> {
        self.core.transfer_leader(to).await
    }

    /// Answers a peer's frame: VOTE, PRE_VOTE, APPEND, TRANSFER_LEADER, PROPOSE, READ_INDEX,
    /// SNAPSHOT_OFFER.
    pub async fn handle_call(&self, kind: FrameKind, payload: Bytes) -> Result<Bytes, HandleError> {
        self.core.handle_call(kind, payload).await
    }

    /// Answers a peer's stream of log entries: one reply for each frame, in order. Ends after the first that is not a
    /// plain acknowledgement.
    pub fn handle_append(
        &self,
        frames: BoxStream<'static, Bytes>,
    ) -> BoxStream<'static, Result<Bytes, HandleError>> {
        self.core.handle_append(frames)
    }

    /// Takes a peer's snapshot and answers once it is installed. An error item, or an end before the whole, installs
    /// nothing; what had come so far is gone on with next time.
    pub async fn handle_snapshot(
        &self,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, HandleError> {
        self.core.handle_snapshot(chunks).await
    }

    /// The digest of the state here right after `index`, which must be that of a `TakeDigest` entry; waits for it. None
    /// when it is not known here (any more).
    pub async fn digest_at(&self, index: u64, timeout: Duration) -> Option<[u8; 16]> {
        let mut notes = self.core.state.audit.notes();
        let passed = |notes: &VecDeque<(u64, StateDigest)>| notes.back().is_some_and(|(at, _)| *at >= index);
        let notes = tokio::time::timeout(timeout, notes.wait_for(passed)).await.ok()?.ok()?;
        notes.iter().find(|(at, _)| *at == index).map(|(_, digest)| digest.bytes())
    }

    /// Makes a snapshot for one reader. It covers `at_least`; without one, everything acknowledged before this call.
    pub async fn export(&self, at_least: Option<u64>, timeout: Duration) -> Result<Export, ExportError> {
        self.core.export(at_least, timeout).await
    }

    /// Builds a snapshot now, which lets the log be purged up to it.
    pub async fn trigger_snapshot(&self) -> Result<(), MemberError> {
        self.core.raft.trigger().snapshot().await.map_err(|_| MemberError::Shutdown)
    }

    /// Stops: no more elections, no more answers; what is applied is made durable first. The directory can be opened
    /// again once all clones of this replica and all its views are dropped.
    pub async fn shutdown(&self) {
        self.stop(true).await;
    }

    /// Stops as a crash would: nothing more is made durable. For tests of recovery.
    pub async fn halt(&self) {
        self.stop(false).await;
    }

    async fn stop(&self, flush: bool) {
        if self.life.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        let _already_down = self.life.raft.shutdown().await;
        if flush && let Err(error) = self.core.log.close().await {
            tracing::error!(%error, "closing the log failed");
        }
        let flusher = self.life.flusher.lock().unwrap_or_else(PoisonError::into_inner).take();
        let runtime = self.life.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        let state = self.core.state.clone();
        let stopping = tokio::task::spawn_blocking(move || {
            drop(flusher);
            if flush && let Err(error) = state.flush() {
                tracing::error!(%error, "the last flush failed; the log has what it would have moved");
            }
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(Duration::from_secs(5));
            }
        });
        let _panicked = stopping.await;
    }
}

/// Opens the log. Where its end is torn, it must not end below what is known to be committed.
fn open_log(
    options: &Options,
    disk: Arc<dyn Disk>,
    state: &State,
    shelf: &Shelf,
    fatal: Arc<Fatal>,
) -> Result<LogStore, OpenError> {
    let applied = state.applied().0;
    let snapshot = shelf.current().map_err(|error| OpenError::State(format!("the snapshot: {error}")))?;
    // A state that came as a snapshot says nothing about the log: it may have come in its place.
    let installed = snapshot.is_some_and(|(meta, _)| meta.last_log_id >= applied);
    let known_committed = applied.filter(|_| !installed).map(|id| id.index);
    let log_options = LogOptions { known_committed, ..LogOptions::default() };
    let hook = Arc::new(move |error: &LogError| fatal.raise(format!("the log failed: {error}")));
    LogStore::open(disk, &options.dir.join("log"), log_options, hook)
        .map_err(|error| OpenError::Log(error.to_string()))
}

/// Opens the parts, on Raft's runtime.
async fn start(options: Options, seams: Seams, runtime: Handle) -> Result<(Core, Flusher), OpenError> {
    let io = |what: &str| {
        let what = what.to_owned();
        move |source| OpenError::Io { what, source }
    };
    std::fs::create_dir_all(&options.dir).map_err(io("make the directory"))?;
    crate::statefile::sync_parent(&options.dir).map_err(io("sync the directory's name"))?;
    let fatal = Arc::new(Fatal::new(seams.abort));
    let state = Arc::new(State::open(&options, seams.state_backend, fatal.clone())?);
    state.on_divergence(seams.diverge);
    let shelf =
        Shelf::open(options.dir.join("snapshots"), options.cluster_id).map_err(io("open the snapshots"))?;
    let interval = Duration::from_millis(options.flush_interval_ms);
    let flusher = Flusher::start(state.clone(), interval).map_err(io("start the flusher"))?;
    let machine = Machine::new(state.clone(), shelf.clone());
    let log = open_log(&options, seams.disk, &state, &shelf, fatal)?;
    state.follows(log.clone());
    let window = Duration::from_millis(2 * options.election_max_ms);
    let reach = Arc::new(Reach::default());
    let network = Network { transport: seams.transport.clone(), reach: reach.clone(), stall: window };
    let config = crate::config::raft_config(&options)?;
    let raft = Raft::new(options.node_id, Arc::new(config), network, log.clone(), machine)
        .await
        .map_err(|error| OpenError::Raft(error.to_string()))?;
    let (recovered, recovery) = watch::channel(false);
    let recovering = raft.clone();
    tokio::spawn(async move {
        if recovering.wait_for_recovery(None).await.is_ok() {
            recovered.send_replace(true);
        }
        // Kept, so that who watches it does not take its end for news.
        recovered.closed().await;
    });
    let (status_sender, status) = watch::channel(Status { node_id: options.node_id, ..Status::default() });
    let observer = Observer {
        node_id: options.node_id,
        raft: raft.clone(),
        state: state.clone(),
        transport: seams.transport.clone(),
        reach: reach.clone(),
        window,
        recovered: recovery,
    };
    tokio::spawn(observer.run(status_sender));
    let (queue, proposals) = mpsc::channel(batcher::QUEUE);
    tokio::spawn(batcher::run(raft.clone(), seams.clock, proposals));
    let (reads, readers) = mpsc::channel(reads::QUEUE);
    let confirmed = Arc::new(Confirmations::default());
    let rounds = Rounds {
        node_id: options.node_id,
        raft: raft.clone(),
        status: status.clone(),
        transport: seams.transport.clone(),
        reach: reach.clone(),
        timeout: window,
        confirmed: confirmed.clone(),
    };
    tokio::spawn(rounds.run(readers));
    let core = Core {
        node_id: options.node_id,
        raft,
        log,
        state,
        shelf,
        transport: seams.transport,
        prepare: seams.prepare,
        reach,
        status,
        queue,
        reads,
        confirmed,
        runtime,
        incoming: tokio::sync::Mutex::new(()),
    };
    Ok((core, flusher))
}
