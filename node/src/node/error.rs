//! Why a node cannot start, in words for people.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::claw::ClawError;
use crate::config::ConfigError;
use crate::identity::IdentityError;
use crate::peer::JoinError;
use crate::rebuild::RebuildError;

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data directory.
    #[error(transparent)]
    Data(#[from] IdentityError),
    /// An address.
    #[error("cannot listen on {address} for {whom}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// "clients" or "peers".
        whom: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A new cluster was asked for over an old one.
    #[error("data directory {path} is not empty: it belongs to node {node} of cluster {cluster}; start it without --bootstrap", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        node: u64,
        /// Of which cluster.
        cluster: String,
    },
    /// Nothing to restart.
    #[error("data directory {path} is empty: start with --bootstrap for a new cluster, or with --join for one that exists", path = path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// The identity is there and the log is not.
    #[error("data directory {path} of node {node} has lost its log; this node must not vote again under its old id: start with an empty directory and --join", path = path.display())]
    LogLost {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        node: u64,
    },
    /// Peers of another cluster.
    #[error("data directory {path} belongs to cluster {cluster}, but {reason}", path = path.display())]
    OtherCluster {
        /// The directory.
        path: PathBuf,
        /// Of which cluster.
        cluster: String,
        /// What a peer said; names its cluster.
        reason: String,
    },
    /// No peer let this node in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A peer answered nonsense.
    #[error("a peer's welcome makes no sense: {0}")]
    Welcome(String),
    /// The replica.
    #[error("the replica cannot start: {0}")]
    Replica(String),
    /// Another state is needed, and there is none.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    /// The claw.
    #[error(transparent)]
    Claw(#[from] ClawError),
}
