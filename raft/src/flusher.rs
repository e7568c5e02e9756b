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

fn run(state: &State, interval: Duration) {
    loop {
        let due = Instant::now() + interval;
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
        orders.flush = false;
        drop(orders);
        // A failure has been raised as fatal there; whoever applies next is told.
        if state.flush().is_err() {
            return;
        }
    }
}
