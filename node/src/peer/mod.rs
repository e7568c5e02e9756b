//! What peers say to each other: `peer.proto` over one long-lived HTTP/2 connection for each peer and lane.
//!
//! Owns: connections, framing, the check that a frame is meant for this cluster and this node. Must not: look into the
//! payload of Raft's frames, or decide anything.

mod frame;
mod join;
mod links;
mod places;
mod server;

pub use frame::Identity;
pub use join::{JoinError, join};
pub(crate) use join::{Stranger, look_around};
pub use links::Links;
pub use server::{Desk, PeerService};

/// The largest frame between peers: a batch of entries, each within the limit of clients.
pub const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;
