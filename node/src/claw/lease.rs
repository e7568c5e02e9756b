//! The claw's lease on its own monotonic clock: it runs from when the last confirmed beat was *sent*, and the claw gives
//! it up a margin earlier than the cluster does.

use super::deps::{BeatReply, ClawDeps};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

pub(super) struct Lease {
    length: Duration,
    margin: Duration,
    /// When the last confirmed beat was sent.
    confirmed: watch::Sender<Instant>,
}

/// Beats that may wait for an answer at once.
const IN_FLIGHT: usize = 3;

impl Lease {
    pub(super) fn new(length: Duration, margin: Duration, confirmed: Instant) -> Self {
        Self { length, margin, confirmed: watch::Sender::new(confirmed) }
    }

    /// When everything has to be dead at the latest, less the margin for killing.
    pub(super) fn deadline(&self) -> Instant {
        *self.confirmed.borrow() + self.length.saturating_sub(self.margin)
    }

    pub(super) fn holds(&self) -> bool {
        Instant::now() < self.deadline()
    }

    /// Returns when the lease is over.
    pub(super) async fn lost(&self) {
        while self.holds() {
            sleep_until(self.deadline()).await;
        }
    }

    fn confirm(&self, sent: Instant) {
        self.confirmed.send_if_modified(|confirmed| {
            let newer = sent > *confirmed;
            *confirmed = sent.max(*confirmed);
            newer
        });
    }
}

/// Beats five times a lease, and sooner after one that failed, until the cluster says that it does not know this
/// incarnation.
pub(super) async fn beat(deps: Arc<dyn ClawDeps>, incarnation: [u8; 16], lease: Arc<Lease>) {
    let (interval, retry) = (lease.length / 5, lease.length / 20);
    let mut beats = JoinSet::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            () = sleep_until(next) => {
                let sent = Instant::now();
                next = sent + interval;
                if beats.len() < IN_FLIGHT {
                    let (deps, length) = (deps.clone(), lease.length);
                    beats.spawn(async move { (sent, timeout(length, deps.beat(incarnation)).await) });
                }
            }
            Some(beat) = beats.join_next() => match beat {
                Ok((sent, Ok(Ok(BeatReply::Confirmed)))) => lease.confirm(sent),
                Ok((_, Ok(Ok(BeatReply::Unknown)))) => return,
                Ok((_, Ok(Err(error)))) => {
                    tracing::debug!(%error, "a beat was not answered");
                    next = next.min(Instant::now() + retry);
                }
                Ok((_, Err(_))) => tracing::debug!("a beat was not answered within the lease"),
                Err(error) => tracing::error!(%error, "a beat broke off"),
            },
        }
    }
}
