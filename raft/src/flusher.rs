//! The thread that moves the overlay to disk.
//!
//! Owns: when. About once a second while there is something, earlier when many entries or bytes wait. Must not: decide
//! how; that is [`State::flush`].

use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::state::State;

/// A running flusher. Dropped, it ends without a last commit, as in a crash.
pub(crate) struct Flusher {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn start(state: Arc<State>, interval: Duration) -> io::Result<Flusher> {
        let shared = state.clone();
        let thread = std::thread::Builder::new()
            .name("clawhive-flush".to_owned())
            .spawn(move || run(&shared, interval))?;
        Ok(Flusher { state, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.state.orders.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.state.ordered.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.state.fatal.raise("the flusher panicked");
        }
    }
}

/// Between two steps of reading all rows again, and between two readings.
const READING: Duration = Duration::from_millis(50);
const READ_AGAIN: Duration = Duration::from_secs(24 * 3_600);

fn run(state: &State, interval: Duration) {
    let mut reading = true;
    let mut read_at = Instant::now();
    let mut flush_at = Instant::now() + interval;
    loop {
        let due = if reading { flush_at.min(Instant::now() + READING) } else { flush_at };
        let mut orders = state.orders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if orders.stop {
                return;
            }
            let left = due.saturating_duration_since(Instant::now());
            if orders.flush || left.is_zero() {
                break;
            }
            orders = state.ordered.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let ordered = std::mem::take(&mut orders.flush);
        drop(orders);
        if ordered || Instant::now() >= flush_at {
            // A failure has been raised as fatal there; whoever applies next is told.
            if state.flush().is_err() {
                return;
            }
            flush_at = Instant::now() + interval;
        }
        if reading && !ordered {
            match state.read_on() {
                Ok(more) => reading = more,
                Err(_) => return,
            }
        } else if !reading && read_at.elapsed() >= READ_AGAIN {
            state.read_again();
            (reading, read_at) = (true, Instant::now());
        }
    }
}
