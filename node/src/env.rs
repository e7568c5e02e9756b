//! The only file of this crate that names the system's clock or randomness.
//!
//! Owns: the wall clock as the rest of the node sees it (steady, never backwards), the monotonic clock, and random bytes.
//! Must not: hold global state; several nodes of one process each have their own [`Clock`].
#![allow(clippy::disallowed_methods)]

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the wall clock is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The fastest correction forwards, in millionths: no wait measured with this clock is shorter than it says by more than
/// that, however far the wall clock jumped.
const FASTER_PPM: i64 = 500;

/// The fastest correction backwards: waits only become longer by it.
const SLOWER_PPM: i64 = 100_000;

/// For testing only: names a file that holds the milliseconds by which this node's wall clock is to be off. Read again
/// each second, so that a test can step the clock of one node.
pub(crate) const TEST_CLOCK: &str = "CLAWHIVE_TEST_CLOCK";

/// Milliseconds since the Unix epoch that pass steadily: the wall clock at the start plus the monotonic time since, slewed
/// slowly towards the wall clock. A step of the wall clock neither ends a lease early nor fires everything at once.
#[derive(Debug)]
pub struct Clock {
    origin: Instant,
    origin_us: i64,
    state: Mutex<Slew>,
}

#[derive(Debug)]
struct Slew {
    /// Added to origin plus elapsed.
    offset_us: i64,
    looked_at: Duration,
    last_us: i64,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl Clock {
    /// A clock that starts at the wall clock.
    pub fn new() -> Clock {
        let origin_us = wall_us();
        Clock {
            origin: Instant::now(),
            origin_us,
            state: Mutex::new(Slew { offset_us: 0, looked_at: Duration::ZERO, last_us: origin_us }),
        }
    }

    /// Milliseconds since the Unix epoch. Never less than an earlier answer.
    pub fn now_ms(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_us = state.advance(self.origin_us, elapsed, wall_us);
        u64::try_from(now_us / 1_000).unwrap_or(0)
    }

    /// From now on not less than this: a leader goes on from the time that the log has reached, instead of standing still
    /// until its own clock has. Then it is slower than the wall clock until they are one again.
    pub fn not_before(&self, floor_ms: u64) {
        let floor_us = i64::try_from(floor_ms).unwrap_or(i64::MAX).saturating_mul(1_000);
        let elapsed = self.origin.elapsed();
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_us = state.advance(self.origin_us, elapsed, wall_us);
        state.raise(floor_us.saturating_sub(now_us));
    }

    /// Time since this clock was made; what leases and deadlines are measured with.
    pub fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

impl Slew {
    fn raise(&mut self, by_us: i64) {
        self.offset_us = self.offset_us.saturating_add(by_us.max(0));
        self.last_us = self.last_us.saturating_add(by_us.max(0));
    }

    fn advance(&mut self, origin_us: i64, elapsed: Duration, wall_us: impl FnOnce() -> i64) -> i64 {
        let steady_us = origin_us.saturating_add(micros(elapsed));
        let since = elapsed.saturating_sub(self.looked_at);
        if since >= LOOK_EVERY {
            let behind_us = wall_us().saturating_sub(steady_us.saturating_add(self.offset_us));
            let limit_us = |ppm: i64| micros(since).saturating_mul(ppm) / 1_000_000;
            let step_us = behind_us.clamp(-limit_us(SLOWER_PPM), limit_us(FASTER_PPM));
            self.offset_us = self.offset_us.saturating_add(step_us);
            self.looked_at = elapsed;
        }
        self.last_us = self.last_us.max(steady_us.saturating_add(self.offset_us));
        self.last_us
    }
}

fn micros(of: Duration) -> i64 {
    i64::try_from(of.as_micros()).unwrap_or(i64::MAX)
}

fn wall_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, micros).saturating_add(test_offset_us())
}

fn test_offset_us() -> i64 {
    let Some(path) = std::env::var_os(TEST_CLOCK) else { return 0 };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse::<i64>().map_or(0, |offset_ms| offset_ms.saturating_mul(1_000))
}

/// The wall clock as it is, in milliseconds since the Unix epoch: for telling people how far clocks are apart.
pub fn wall_ms() -> u64 {
    u64::try_from(wall_us() / 1_000).unwrap_or(0)
}

/// The wall clock, for what people read (the time of a log line). Nothing is decided by it.
pub fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// The monotonic clock, for code that has no [`Clock`] (measuring how long something took).
pub fn monotonic() -> Instant {
    Instant::now()
}

/// 16 random bytes: a cluster id, a join id, the incarnation of a claw.
pub fn random_id() -> [u8; 16] {
    *uuid::Uuid::new_v4().as_bytes()
}

/// 16 bytes that sort by time (UUID v7): a request id.
pub fn request_id() -> [u8; 16] {
    *uuid::Uuid::now_v7().as_bytes()
}

/// A random number, for jitter of waits.
pub fn random_u64() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slew() -> Slew {
        Slew { offset_us: 0, looked_at: Duration::ZERO, last_us: 0 }
    }

    #[test]
    fn a_step_back_only_slows_the_clock() {
        let mut slew = slew();
        let mut last = 0;
        for second in 1..=100 {
            let elapsed = Duration::from_secs(second);
            let wall = micros(elapsed) - 3_600_000_000;
            let now = slew.advance(0, elapsed, || wall);
            assert!(now - last >= 900_000, "second {second} took {} us", now - last);
            assert!(now - last < 1_000_000);
            last = now;
        }
    }

    #[test]
    fn a_leader_goes_on_from_the_time_of_the_log_and_comes_back_to_its_own() {
        let mut slew = slew();
        let mut last = 0;
        let mut lead_us = 0;
        for second in 1..=100 {
            let elapsed = Duration::from_secs(second);
            let now = slew.advance(0, elapsed, || micros(elapsed));
            assert!(second < 2 || now - last >= 900_000, "it stood still");
            lead_us = now - micros(elapsed);
            assert!((0..=5_000_000).contains(&lead_us));
            last = now;
            if second == 1 {
                slew.raise(5_000_000);
                last += 5_000_000;
            }
        }
        assert_eq!(lead_us, 0, "five seconds ahead are worked off in fifty");
    }

    #[test]
    fn a_step_forward_is_followed_slowly_and_reached() {
        let mut slew = slew();
        let mut now = 0;
        for second in 1..=10 {
            let elapsed = Duration::from_secs(second);
            now = slew.advance(0, elapsed, || micros(elapsed) + 2_000);
        }
        assert_eq!(now, 10_002_000);
    }

    #[test]
    fn it_never_answers_less_than_before() {
        let clock = Clock::new();
        let mut last = 0;
        for _ in 0..1_000 {
            let now = clock.now_ms();
            assert!(now >= last);
            last = now;
        }
    }
}
