//! Waits of the leader loops. No loop polls: it sleeps until the state changes, or until something is due.

use std::future::pending;
use std::time::Duration;

use tokio::time::sleep;

/// After a proposal without an answer, and between two terms.
pub(super) async fn breathe() {
    sleep(Duration::from_millis(50)).await;
}

/// Sleeps until `due_ms` on a clock that shows `now_ms`; for ever when nothing is due. Wakes once a minute in between:
/// the clock is slewed, a sleep is not.
pub(super) async fn until(now_ms: u64, due_ms: Option<u64>) {
    match due_ms {
        None => pending().await,
        Some(due_ms) => sleep(Duration::from_millis(due_ms.saturating_sub(now_ms).clamp(1, 60_000))).await,
    }
}
