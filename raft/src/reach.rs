//! Who answered lately. Fed by everything that passes between peers; asked when there is no quorum, to say why.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When each peer was last heard of, and whether the newest attempt to reach it failed.
#[derive(Debug, Default)]
pub(crate) struct Reach(Mutex<BTreeMap<u64, Seen>>);

#[derive(Debug, Default)]
struct Seen {
    heard: Option<Instant>,
    failed: Option<Instant>,
}

impl Reach {
    fn with<T>(&self, peer: u64, update: impl FnOnce(&mut Seen) -> T) -> T {
        update(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(peer).or_default())
    }

    /// The peer answered, or asked us something.
    pub(crate) fn heard(&self, peer: u64) {
        self.with(peer, |seen| seen.heard = Some(Instant::now()));
    }

    /// The peer could not be reached.
    pub(crate) fn failed(&self, peer: u64) {
        self.with(peer, |seen| seen.failed = Some(Instant::now()));
    }

    /// How long ago the peer was heard of.
    pub(crate) fn age(&self, peer: u64) -> Option<Duration> {
        self.with(peer, |seen| seen.heard.map(|at| at.elapsed()))
    }

    /// True when the peer was heard of within `window`, and since the last failure.
    pub(crate) fn reachable(&self, peer: u64, window: Duration) -> bool {
        self.with(peer, |seen| {
            seen.heard.is_some_and(|heard| {
                heard.elapsed() < window && seen.failed.is_none_or(|failed| failed < heard)
            })
        })
    }
}
