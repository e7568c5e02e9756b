//! How old this node's own state may be: when it was last known to hold everything that was acknowledged.
//!
//! A read index says so: the state at that index holds all that was acknowledged before the question was sent. Rounds of
//! readers tell it on the way; when nobody reads, a round is made once a second. Nothing here asks anybody, so a stale read
//! never waits.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Answers closer together than this are one.
const APART: Duration = Duration::from_millis(20);
/// Answers kept that are newer than what is applied here.
const KEPT: usize = 256;

/// Read indexes with when they were asked for, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Confirmations(Mutex<VecDeque<(Instant, u64)>>);

impl Confirmations {
    /// The answer to a question sent at `asked`; `applied` is what this node has applied at least.
    pub(crate) fn note(&self, asked: Instant, index: u64, applied: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while known.get(1).is_some_and(|(_, index)| *index <= applied) {
            known.pop_front();
        }
        let news = known.back().is_none_or(|(at, _)| asked.saturating_duration_since(*at) >= APART);
        if news && known.len() < KEPT {
            known.push_back((asked, index));
        }
    }

    /// The state at `applied` holds at least everything that was acknowledged so long ago; none when that is not known.
    pub(crate) fn age(&self, applied: u64) -> Option<Duration> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = known.iter().rev().find(|(_, index)| *index <= applied);
        newest.map(|(asked, _)| asked.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_from_its_question_and_once_it_is_applied() {
        let known = Confirmations::default();
        assert_eq!(known.age(100), None, "nothing is known at the start");
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(30)).await;
        known.note(asked, 7, 5);
        assert_eq!(known.age(6), None, "not applied yet");
        assert_eq!(known.age(7), Some(Duration::from_millis(30)));
        let asked = Instant::now();
        known.note(asked, 9, 7);
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(known.age(8), Some(Duration::from_millis(35)), "the older answer still holds");
        assert_eq!(known.age(9), Some(Duration::from_millis(5)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_applied_is_remembered_however_many_answers_come() {
        let known = Confirmations::default();
        for index in 0..10_000 {
            known.note(Instant::now(), index, 3);
            tokio::time::advance(Duration::from_millis(25)).await;
        }
        let age = known.age(3).expect("still known");
        assert_eq!(age, Duration::from_millis(25 * 9_997));
        assert!(known.age(10_000).is_some_and(|newer| newer < age));
    }
}
