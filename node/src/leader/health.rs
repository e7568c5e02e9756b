//! Whether the loops of a leader run. Part of readiness: a leader without a scheduler is not one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// A loop that fires schedules looks up every few seconds; one that has not for this long hangs.
const SILENCE: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Health {
    run: AtomicBool,
    /// When the loop that fires schedules last looked up, in milliseconds of the monotonic clock.
    looked_ms: AtomicU64,
}

impl Health {
    /// True while this node leads and every loop of it runs; `now` is of the monotonic clock.
    pub(crate) fn loops_run(&self, now: Duration) -> bool {
        self.run.load(Ordering::Relaxed) && !self.hangs(now)
    }

    /// Looked up too long ago.
    pub(super) fn hangs(&self, now: Duration) -> bool {
        let looked = Duration::from_millis(self.looked_ms.load(Ordering::Relaxed));
        now.saturating_sub(looked) > SILENCE
    }

    /// The loops were started, or ended.
    pub(super) fn set(&self, run: bool, now: Duration) {
        self.looked(now);
        self.run.store(run, Ordering::Relaxed);
    }

    /// The loop that fires schedules is awake.
    pub(super) fn looked(&self, now: Duration) {
        self.looked_ms.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_ended_or_hangs_is_seen() {
        let health = Health::default();
        let at = Duration::from_secs;
        assert!(!health.loops_run(at(1)), "not started");
        health.set(true, at(100));
        assert!(health.loops_run(at(110)));
        assert!(!health.loops_run(at(121)) && health.hangs(at(121)), "it has not looked up");
        health.looked(at(121));
        assert!(health.loops_run(at(130)));
        health.set(false, at(131));
        assert!(!health.loops_run(at(131)), "ended");
    }
}
