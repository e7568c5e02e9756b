//! The claw's lease on its own monotonic clock: it runs from when the last confirmed beat was *sent*, and the claw gives
//! it up a margin earlier than the cluster does.

use super::deps::{BeatReply, ClawDeps};
use super::executor::Executor;
use clawhive_proto::Delivery;
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

    /// When an attempt of this delivery is killed: one that must not overlap its successor is given twice the margin.
    fn deadline_of(&self, delivery: Delivery) -> Instant {
        match delivery {
            Delivery::StrictSingle => self.deadline() - self.margin,
            Delivery::AtLeastOnce | Delivery::AtMostOnce => self.deadline(),
        }
    }

    /// Until when an attempt of this delivery may be started: one that must not overlap needs half of the lease ahead.
    pub(super) fn start_until(&self, delivery: Delivery) -> Instant {
        match delivery {
            Delivery::StrictSingle => *self.confirmed.borrow() + self.length / 2,
            Delivery::AtLeastOnce | Delivery::AtMostOnce => self.deadline(),
        }
    }

    /// Returns when an attempt of this delivery may be started with some time to do it in; never when the lease is not
    /// confirmed again.
    pub(super) async fn fresh(&self, delivery: Delivery) {
        let mut confirmed = self.confirmed.subscribe();
        let time = match delivery {
            Delivery::StrictSingle => self.length / 4,
            Delivery::AtLeastOnce | Delivery::AtMostOnce => Duration::ZERO,
        };
        while Instant::now() + time > self.start_until(delivery) {
            if confirmed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns when attempts of this delivery have to end.
    pub(super) async fn over(&self, delivery: Delivery) {
        while Instant::now() < self.deadline_of(delivery) {
            sleep_until(self.deadline_of(delivery)).await;
        }
    }

    /// The moment by which a second watcher ends what the claw itself did not: told now and after each confirmed beat.
    pub(super) async fn tell_guards(self: Arc<Self>, executors: Vec<Arc<dyn Executor>>) {
        let mut confirmed = self.confirmed.subscribe();
        loop {
            let until = *confirmed.borrow_and_update() + self.length.saturating_sub(self.margin / 2);
            executors.iter().for_each(|executor| executor.keep_until(until));
            if confirmed.changed().await.is_err() {
                return;
            }
        }
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
                Ok((sent, Ok(Ok(BeatReply::Confirmed)))) => {
                    // For a test that compares when a lease ended with when its tasks ran elsewhere.
                    let age_ms = u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX);
                    let sent_ms = deps.now_ms().saturating_sub(age_ms);
                    tracing::debug!(sent_ms, "a beat is confirmed");
                    lease.confirm(sent);
                }
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
