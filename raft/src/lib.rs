//! openraft and redb turned into `propose`, `view` and `feed`: the only crate that names either.
//!
//! Owns: the replicated log, consensus, the durable state, snapshots, proposals and linearizable reads, over seams for
//! network, clock and disk. Must not: know what a command means (that is `clawhive-statemachine`), or listen on a
//! socket (that is `clawhive-node`).
#![forbid(unsafe_code)]

mod codec;
mod error;
mod fatal;
mod feed;
mod merge;
mod options;
mod overlay;
mod replica;
mod rowkey;
mod seams;
mod statefile;
mod status;
mod transport;
mod types;
mod view;

pub use error::{HandleError, MemberError, OpenError, ProposeError, ReadError};
pub use feed::{Feed, FeedClosed, Tick};
pub use options::Options;
pub use replica::{Committed, Replica};
pub use seams::{AbortHook, Clock, Seams};
pub use status::Status;
pub use transport::{Peer, Transport, TransportError};
pub use view::View;
