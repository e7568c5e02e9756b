//! Closed-loop load: a fixed number of clients, each with one call under way, for a fixed time. Owns the loop and its
//! figures; knows nothing of what is called.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::Instant;

/// What one round of load showed. Latencies in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Clients with one call under way each.
    pub clients: usize,
    /// Calls that were answered.
    pub calls: u64,
    /// Calls that failed; not counted above.
    pub errors: u64,
    /// Answered calls per second.
    pub per_second: f64,
    /// Median latency.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

impl Figures {
    /// From the latencies (microseconds) of `errors + histogram.len()` calls.
    pub fn new(clients: usize, histogram: &Histogram<u64>, errors: u64, elapsed: Duration) -> Figures {
        let ms = |us: u64| us as f64 / 1000.0;
        Figures {
            clients,
            calls: histogram.len(),
            errors,
            per_second: histogram.len() as f64 / elapsed.as_secs_f64(),
            p50_ms: ms(histogram.value_at_quantile(0.5)),
            p99_ms: ms(histogram.value_at_quantile(0.99)),
            max_ms: ms(histogram.max()),
        }
    }

    /// Of several rounds, the one with the median rate.
    ///
    /// # Panics
    /// When `rounds` is empty.
    pub fn median(mut rounds: Vec<Figures>) -> Figures {
        rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        rounds.swap_remove(rounds.len() / 2)
    }
}

/// An empty histogram of microseconds with three significant digits.
///
/// # Panics
/// Never: the bounds are constants that hdrhistogram accepts.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000, 3).expect("constant bounds are valid")
}

/// Runs `clients` loops of `call(client, n)` for `time`; `n` counts up over all clients and never repeats.
pub async fn closed_loop<F, Fut, E>(clients: usize, time: Duration, call: F) -> Figures
where
    F: Fn(usize, u64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Send + 'static,
{
    let call = Arc::new(call);
    let next = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (call, next) = (call.clone(), next.clone());
            tokio::spawn(async move {
                let (mut latencies, mut errors) = (histogram(), 0u64);
                while started.elapsed() < time {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let sent = Instant::now();
                    match call(client, n).await {
                        Ok(()) => latencies.saturating_record(sent.elapsed().as_micros() as u64),
                        Err(_) => errors += 1,
                    }
                }
                (latencies, errors)
            })
        })
        .collect();
    let (mut all, mut errors) = (histogram(), 0);
    for task in tasks {
        if let Ok((latencies, failed)) = task.await {
            all += latencies;
            errors += failed;
        }
    }
    Figures::new(clients, &all, errors, started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn counts_answers_and_errors_apart() {
        let figures = closed_loop(2, Duration::from_millis(50), |_, n| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if n % 2 == 0 { Ok(()) } else { Err(()) }
        })
        .await;
        assert!(figures.calls > 0 && figures.errors > 0, "{figures:?}");
        assert!(figures.p50_ms >= 1.0, "{figures:?}");
    }

    #[test]
    fn the_median_round_is_taken() {
        let round = |per_second| Figures {
            clients: 1,
            calls: 1,
            errors: 0,
            per_second,
            p50_ms: 0.0,
            p99_ms: 0.0,
            max_ms: 0.0,
        };
        let median = Figures::median(vec![round(3.0), round(1.0), round(2.0)]);
        assert_eq!(median.per_second, 2.0);
    }
}
