//! How a replica is set up, with the defaults that measurements gave.

use std::path::PathBuf;

use crate::error::OpenError;

/// How a replica is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that holds log, state and snapshots; made when missing.
    pub dir: PathBuf,
    /// This node. Never reused in the life of a cluster.
    pub node_id: u64,
    /// The cluster; checked against what the directory says.
    pub cluster_id: [u8; 16],
    /// How often a leader shows that it lives.
    pub heartbeat_ms: u64,
    /// Shortest election timeout.
    pub election_min_ms: u64,
    /// Longest election timeout, and the leader's lease.
    pub election_max_ms: u64,
    /// redb's page cache.
    pub cache_bytes: usize,
    /// Applied rows kept in memory until they are durable in the state file; beyond it apply waits.
    pub overlay_bytes: usize,
    /// Applied entries kept in memory until they are durable in the state file; beyond it apply waits.
    pub overlay_entries: u64,
    /// The flusher commits at the latest after this long.
    pub flush_interval_ms: u64,
    /// The flusher commits when this many entries wait.
    pub flush_entries: u64,
    /// A snapshot is built each time the log grew by this many entries.
    pub snapshot_entries: u64,
    /// Entries kept in the log behind a snapshot, so that a follower that was away briefly needs no snapshot.
    pub keep_entries: u64,
    /// The size of a log segment: less on a small volume, so that what is prepared ahead does not fill it.
    pub segment_bytes: u64,
    /// Worker threads of Raft's own runtime.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            dir: PathBuf::new(),
            node_id: 0,
            cluster_id: [0; 16],
            heartbeat_ms: 50,
            election_min_ms: 300,
            election_max_ms: 600,
            cache_bytes: 64 << 20,
            overlay_bytes: 64 << 20,
            overlay_entries: 100_000,
            flush_interval_ms: 1_000,
            flush_entries: 20_000,
            snapshot_entries: 200_000,
            keep_entries: 50_000,
            segment_bytes: 64 << 20,
            workers: 2,
        }
    }
}

impl Options {
    /// Checks what openraft would only find later, or never.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what: &str| Err(OpenError::Options(what.to_owned()));
        if self.node_id == 0 {
            return wrong("node_id must not be 0");
        }
        if self.heartbeat_ms == 0 || self.election_min_ms <= 2 * self.heartbeat_ms {
            return wrong("election_min_ms must be more than two heartbeats");
        }
        if self.election_max_ms <= self.election_min_ms {
            return wrong("election_max_ms must be more than election_min_ms");
        }
        if self.workers == 0 || self.snapshot_entries == 0 || self.flush_entries == 0 {
            return wrong("workers, snapshot_entries and flush_entries must not be 0");
        }
        Ok(())
    }
}
