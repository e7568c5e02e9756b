//! The payload-free wake-up: who waits on it looks at the state again.
//!
//! A feed says which areas were touched since its owner last looked, never what changed. A fresh one starts with all
//! bits set, so that start-up, recovery and the happy path are one path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clawhive_statemachine::Touched;
use tokio::sync::watch;

/// Areas, each with the newest entry that touched it.
const AREAS: usize = 32;

/// The newest entry that touched each area. Readers compare it with where they last looked.
#[derive(Debug, Default)]
pub(crate) struct Areas([AtomicU64; AREAS]);

/// The writing end, owned by apply.
#[derive(Debug)]
pub(crate) struct FeedSender {
    areas: Arc<Areas>,
    applied: watch::Sender<u64>,
}

/// One reader's place in the stream of applied entries.
#[derive(Clone, Debug)]
pub struct Feed {
    areas: Arc<Areas>,
    applied: watch::Receiver<u64>,
    seen: Option<u64>,
}

/// What a reader is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Everything up to here is visible in a view taken now.
    pub applied_index: u64,
    /// Areas touched since the reader last looked.
    pub touched: Touched,
}

/// The replica is gone.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the replica has stopped")]
pub struct FeedClosed;

impl FeedSender {
    pub(crate) fn new(applied: u64) -> FeedSender {
        FeedSender { areas: Arc::default(), applied: watch::Sender::new(applied) }
    }

    /// A reader that has seen nothing.
    pub(crate) fn subscribe(&self) -> Feed {
        Feed { areas: self.areas.clone(), applied: self.applied.subscribe(), seen: None }
    }

    /// Everything up to `applied` is visible and touched `touched`. Called after the view was published.
    pub(crate) fn publish(&self, applied: u64, touched: Touched) {
        for (bit, area) in self.areas.0.iter().enumerate() {
            if touched.0 & (1 << bit) != 0 {
                area.fetch_max(applied, Ordering::Release);
            }
        }
        self.applied.send_replace(applied);
    }
}

impl Feed {
    /// Waits until something was applied that this reader has not seen, and says which areas it touched. The first call
    /// on a fresh feed returns at once with all bits set.
    pub async fn changed(&mut self) -> Result<Tick, FeedClosed> {
        if self.seen.is_some() {
            self.applied.changed().await.map_err(|_| FeedClosed)?;
        }
        Ok(self.look())
    }

    /// As [`Feed::changed`], but returns only when any of `of` was touched.
    pub async fn touched(&mut self, of: Touched) -> Result<Tick, FeedClosed> {
        loop {
            let tick = self.changed().await?;
            if tick.touched.any(of) {
                return Ok(tick);
            }
        }
    }

    /// What is new right now, without waiting. `touched` is empty when nothing is.
    pub fn look(&mut self) -> Tick {
        let applied_index = *self.applied.borrow_and_update();
        let touched = match self.seen {
            None => Touched::ALL,
            Some(seen) => {
                let mut bits = 0;
                for (bit, area) in self.areas.0.iter().enumerate() {
                    if area.load(Ordering::Acquire) > seen {
                        bits |= 1 << bit;
                    }
                }
                Touched(bits)
            }
        };
        self.seen = Some(applied_index);
        Tick { applied_index, touched }
    }

    /// The newest visible entry, without marking anything as seen.
    pub fn applied_index(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Waits until everything up to `index` is visible.
    pub async fn wait_for(&mut self, index: u64) -> Result<(), FeedClosed> {
        self.applied.wait_for(|applied| *applied >= index).await.map(|_| ()).map_err(|_| FeedClosed)
    }
}
