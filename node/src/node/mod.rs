//! A whole node: wiring of data directory, replica, peers, leader loops, claw and API; its start and its end.
//!
//! Several nodes can live in one process. Must not: hold global state, install a logger, or handle signals (that is the
//! binary's).

mod builder;
mod claw_deps;
mod cut;
mod desk;
mod disk;
mod error;
mod handover;
mod presence;
mod serve;
mod shutdown;
mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::claw::{ClawHandle, LogStore};
use crate::context::Context;
use crate::identity::{DataDir, format_id};
use claw_deps::NodeClaw;

pub use builder::Builder;
pub use error::{StartError, TO_COME_BACK};
pub(crate) use start::RAFT_DIR;

/// A running node. Dropping it ends it at once, as a crash would; [`Node::shutdown`] ends it well.
pub struct Node {
    ctx: Arc<Context>,
    claw: ClawHandle,
    /// What the context's weak one points to.
    logs: Arc<LogStore>,
    claw_deps: Arc<NodeClaw>,
    listen: SocketAddr,
    peer_listen: SocketAddr,
    /// Told `true` when the servers are to stop.
    stop: watch::Sender<bool>,
    /// Told `true` when every connection is to break.
    cut: watch::Sender<bool>,
    servers: JoinSet<()>,
    tasks: JoinSet<()>,
    /// Told why when its state was found to be wrong.
    diverges: watch::Receiver<Option<String>>,
    data: Arc<Mutex<DataDir>>,
    data_dir: PathBuf,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).field("listen", &self.listen).finish_non_exhaustive()
    }
}

impl Node {
    /// Describes a node to start.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.ctx.me.node
    }

    /// The cluster it belongs to, as 32 hexadecimal digits.
    pub fn cluster_id(&self) -> String {
        format_id(&self.ctx.me.cluster_id)
    }

    /// Where it listens for clients.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Where it listens for peers.
    pub fn peer_listen(&self) -> SocketAddr {
        self.peer_listen
    }

    /// Its data directory.
    pub fn data_dir(&self) -> &std::path::Path {
        &self.data_dir
    }

    /// The node that leads, as far as this one knows.
    pub fn leader(&self) -> Option<u64> {
        self.ctx.replica.status().borrow().leader
    }

    /// True while this node leads and its loops run.
    pub fn is_leader(&self) -> bool {
        self.ctx.replica.status().borrow().is_leader && self.ctx.scheduler()
    }

    /// Tasks that run on this node right now.
    pub fn running(&self) -> u32 {
        self.claw.status().borrow().running
    }

    /// How many voters the cluster has, as far as this node knows.
    pub fn voters(&self) -> usize {
        self.ctx.replica.status().borrow().voters.len()
    }

    /// Whether it serves right now: a leader answers, its own loops are alive when it leads itself, and its claw is
    /// registered.
    pub async fn is_ready(&self) -> bool {
        let leads = self.ctx.replica.status().borrow().is_leader;
        let registered = self.claw.status().borrow().registered_at.is_some();
        registered
            && (!leads || self.ctx.scheduler())
            && self.ctx.replica.linearizable_view(Duration::from_millis(500)).await.is_ok()
    }

    /// Returns when its state was found to be wrong, with the reason. It does not serve or vote any more; started again
    /// after [`Node::crash`], it gets the state of a peer first.
    pub async fn diverged(&self) -> String {
        let mut diverges = self.diverges.clone();
        match diverges.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            // The replica is gone without having differed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns when this node was removed from its cluster, with the words for it. It keeps quiet then; end it.
    pub fn removed(&self) -> impl Future<Output = String> + Send + 'static {
        presence::removed(self.ctx.clone())
    }

    /// Returns when it serves.
    pub async fn ready(&self) {
        let mut claw = self.claw.status();
        // An error means that the claw has ended, and then the node never gets ready.
        if claw.wait_for(|status| status.registered_at.is_some()).await.is_err() {
            std::future::pending::<()>().await;
        }
        while !self.is_ready().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
