//! Why a node cannot start, in words for people.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::claw::ClawError;
use crate::config::ConfigError;
use crate::identity::IdentityError;
use crate::peer::JoinError;
use crate::rebuild::RebuildError;

/// What is to be done with the machine of a node that was removed.
pub const TO_COME_BACK: &str =
    "to bring the machine back, empty it and start with --join: the machine joins as a new node";

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
    #[error(
        "data directory {path} of node {node} has lost its log; this node must not vote again under its old id: run \
         `clawhive node remove {node}` on the cluster, empty the directory, and start with --join: it joins as a new node",
        path = path.display()
    )]
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
    /// The node was removed from its cluster.
    #[error("{reason}; data directory {path} is of no use any more: {TO_COME_BACK}", path = path.display())]
    Removed {
        /// The directory.
        path: PathBuf,
        /// What a peer said; names node and cluster.
        reason: String,
    },
    /// No peer let this node in.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A peer answered nonsense.
    #[error("a peer's welcome makes no sense: {0}")]
    Welcome(String),
    /// No room at all.
    #[error("no space left in the data directory {path}: {short}; nothing was changed", path = path.display())]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// What there is, and what would do.
        short: String,
    },
    /// Log or state cannot be used.
    #[error("the storage of node {node} in {path} cannot be used: {reason}", path = path.display())]
    Storage {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        node: u64,
        /// Which file, where, and what is wrong.
        reason: String,
    },
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
