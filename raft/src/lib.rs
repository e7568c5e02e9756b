//! openraft and redb turned into `propose`, `view` and `feed`: the only crate that names either.
//!
//! Owns: the replicated log, consensus, the durable state, snapshots, proposals and linearizable reads, over seams for
//! network, clock and disk. Must not: know what a command means (that is `clawhive-statemachine`), or listen on a
//! socket (that is `clawhive-node`).
#![forbid(unsafe_code)]

mod audit;
mod background;
mod backup;
mod batcher;
mod codec;
mod config;
mod digest;
pub mod disk;
mod error;
mod export;
mod fatal;
mod feed;
mod flusher;
mod fresh;
pub mod log;
mod machine;
mod members;
mod merge;
mod network;
mod options;
mod overlay;
mod propose;
mod reach;
mod reads;
mod receive;
mod replica;
mod rowkey;
mod seams;
mod send;
mod serve;
mod snapshot;
mod solo;
mod state;
mod statefile;
mod status;
mod status_task;
mod transport;
mod types;
mod view;
mod wire;

pub use audit::{Digest, DivergeHook, Divergence, TakenOut};
pub use backup::{BackupError, BackupInfo, NewCluster, inspect, replace_by, restore};
pub use error::{HandleError, MemberError, OpenError, ProposeError, ReadError};
pub use export::{Export, ExportError};
pub use feed::{Feed, FeedClosed, Tick};
pub use options::Options;
pub use replica::{Committed, Replica};
pub use seams::{AbortHook, Clock, PrepareHook, Seams};
pub use solo::SoloState;
#[doc(hidden)]
pub use statefile::damage_row;
pub use status::Status;
pub use transport::{Peer, Transport, TransportError};
pub use view::View;
