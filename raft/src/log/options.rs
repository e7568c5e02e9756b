//! How a log is set up.

use std::sync::Arc;
use std::time::Duration;

use crate::disk::Room;

/// Who does the writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// A thread that groups what queues up, and another that prepares files.
    Threads,
    /// The caller: each call writes, syncs and answers before it returns. For simulation, where nothing may
    /// happen besides what the simulator does.
    Inline,
}

/// The settings of a log. The defaults are for a node; tests make things small.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The size of a segment file. A larger entry gets a larger segment.
    pub segment_bytes: u64,
    /// How many bytes of entries stay in memory.
    pub tail_bytes: usize,
    /// How many bytes of entries may wait for the disk before appending waits.
    pub queue_bytes: usize,
    /// How many bytes are written and synced together at most, unless one append has more.
    pub batch_bytes: usize,
    /// How many bytes one read for replication returns at most, unless one entry has more.
    pub read_bytes: usize,
    /// How long to wait for more appends if the last batch had more than one.
    pub linger: Duration,
    /// How many unused files are kept besides the one that is made ready.
    pub spare_segments: usize,
    /// An index up to which entries are known to have been committed and synced here, if the caller knows
    /// one: a log whose torn end lies below it does not open. See [`SegmentLog::sync`](super::SegmentLog::sync)
    /// for how to know one.
    pub known_committed: Option<u64>,
    /// A torn end is refused too: nothing is left that could tell whether what was there had been committed.
    pub refuse_torn: bool,
    /// With threads: where to wait for room on a full disk. Without, want of room ends the log like any other error.
    pub room: Option<Arc<Room>>,
    /// Who does the writing.
    pub drive: Drive,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            tail_bytes: 32 << 20,
            queue_bytes: 32 << 20,
            batch_bytes: 4 << 20,
            read_bytes: 1 << 20,
            linger: Duration::from_micros(15),
            spare_segments: 2,
            known_committed: None,
            refuse_torn: false,
            room: None,
            drive: Drive::Threads,
        }
    }
}
