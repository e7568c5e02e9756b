//! Where a run stands, from its events. Pure: events in, lines to keep out.

use std::collections::BTreeMap;

use clawhive_proto::EventView;

use crate::cli::output::{Hue, duration, escape};

/// A line worth keeping: what happened to one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The state it has now.
    pub(super) word: String,
    pub(super) hue: Hue,
    pub(super) task: String,
    /// Duration, reason, attempt.
    pub(super) rest: String,
    /// The task has ended; otherwise it goes on.
    pub(super) ended: bool,
}

/// The run so far.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) run: u64,
    pub(super) total: u32,
    /// The newest log index.
    pub(super) seen: u64,
    pub(super) running: BTreeMap<String, Running>,
    /// Tasks that have ended, by state.
    ended: BTreeMap<String, String>,
    /// Of the newest failed attempt of each task: why, and how long it took.
    failures: BTreeMap<String, String>,
    pub(super) started_ms: u64,
    pub(super) ended_ms: u64,
}

/// A task that is being run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) since_ms: u64,
    pub(super) attempt: u32,
}

impl Board {
    pub(super) fn new(run: u64, total: u32) -> Self {
        Self {
            run,
            total,
            seen: 0,
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            failures: BTreeMap::new(),
            started_ms: 0,
            ended_ms: 0,
        }
    }

    pub(super) fn done(&self) -> u64 {
        self.ended.len() as u64
    }

    pub(super) fn count(&self, state: &str) -> usize {
        self.ended.values().filter(|one| *one == state).count()
    }

    /// Takes an event; answers with what people shall see of it for good.
    pub(super) fn take(&mut self, event: &EventView) -> Option<Kept> {
        self.seen = self.seen.max(event.log_index);
        if self.started_ms == 0 {
            self.started_ms = event.time_ms;
        }
        if event.task.is_empty() {
            self.ended_ms = event.time_ms;
            return None;
        }
        let task = event.task.clone();
        let state = event.kind.strip_prefix("task_");
        match (event.kind.as_str(), state) {
            ("attempt_failed", _) => {
                self.note_failure(event);
                None
            }
            (_, Some("running" | "dispatched")) => {
                let running = Running { since_ms: event.time_ms, attempt: event.attempt };
                self.running.insert(task, running);
                None
            }
            (_, Some("ready")) => {
                self.running.remove(&task);
                None
            }
            (_, Some("retrying")) => {
                let took = self.took(event);
                let why = self.failures.remove(&task).unwrap_or_else(|| why(event));
                let rest = format!("{}attempt {} failed: {why}", spaced(took), event.attempt.max(1));
                Some(Kept { word: "retrying".into(), hue: Hue::Odd, task, rest, ended: false })
            }
            (_, Some(state)) => self.end(event, state),
            _ => None,
        }
    }

    fn end(&mut self, event: &EventView, state: &str) -> Option<Kept> {
        let took = self.took(event);
        let task = event.task.clone();
        // A repeat after a reconnection is no news.
        if self.ended.insert(task.clone(), state.to_owned()).is_some() {
            return None;
        }
        let hue = match state {
            "succeeded" => Hue::Good,
            "failed" => Hue::Bad,
            _ => Hue::Odd,
        };
        let rest = match state {
            "failed" => {
                let why = self.failures.remove(&task).unwrap_or_else(|| why(event));
                format!("{}{why}", spaced(took))
            }
            _ => took.unwrap_or_default(),
        };
        Some(Kept { word: state.to_owned(), hue, task, rest, ended: true })
    }

    fn note_failure(&mut self, event: &EventView) {
        self.failures.insert(event.task.clone(), why(event));
    }

    /// How long the attempt took that has just ended.
    fn took(&mut self, event: &EventView) -> Option<String> {
        let running = self.running.remove(&event.task)?;
        Some(duration(event.time_ms.saturating_sub(running.since_ms)))
    }

    /// `3 failed, 2 upstream failed, 9 succeeded`.
    pub(super) fn outcome(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for state in self.ended.values() {
            *counts.entry(state).or_default() += 1;
        }
        let order = ["failed", "upstream_failed", "cancelled", "skipped", "succeeded"];
        let parts = order.iter().filter_map(|state| {
            counts.get(state).map(|count| format!("{count} {}", state.replace('_', " ")))
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn why(event: &EventView) -> String {
    match (event.reason.as_str(), event.detail.as_str()) {
        ("", "") => "failed".to_owned(),
        ("", detail) => escape(detail),
        (reason, "") => reason.to_owned(),
        // The detail of an exit or a signal says it in full: "exit code 3", "killed by signal 9".
        ("exit" | "signal", detail) => escape(detail),
        (reason, detail) => format!("{reason}: {}", escape(detail)),
    }
}

fn spaced(took: Option<String>) -> String {
    took.map(|took| format!("{took}  ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_ms: u64, kind: &str, task: &str, attempt: u32) -> EventView {
        EventView {
            log_index: time_ms,
            time_ms,
            kind: kind.into(),
            task: task.into(),
            attempt,
            ..Default::default()
        }
    }

    fn with(mut event: EventView, reason: &str, detail: &str) -> EventView {
        (event.reason, event.detail) = (reason.into(), detail.into());
        event
    }

    #[test]
    fn a_task_that_succeeds_is_told_once_with_its_duration() {
        let mut board = Board::new(7, 2);
        assert_eq!(board.take(&event(1_000, "run_submitted", "", 0)), None);
        assert_eq!(board.take(&event(1_010, "task_dispatched", "a", 1)), None);
        assert_eq!(board.take(&event(1_020, "task_running", "a", 1)), None);
        assert_eq!(board.running["a"], Running { since_ms: 1_020, attempt: 1 });
        let end = event(1_360, "task_succeeded", "a", 1);
        let kept = board.take(&end).unwrap();
        assert_eq!((kept.word.as_str(), kept.rest.as_str(), kept.ended), ("succeeded", "340ms", true));
        assert_eq!(board.take(&end), None);
        assert_eq!((board.done(), board.running.len(), board.seen), (1, 0, 1_360));
    }

    #[test]
    fn retries_and_failures_say_why() {
        let mut board = Board::new(7, 3);
        board.take(&event(100, "task_running", "a", 1));
        board.take(&with(event(200, "attempt_failed", "a", 1), "exit", "exit 3"));
        let kept = board.take(&event(200, "task_retrying", "a", 1)).unwrap();
        assert_eq!((kept.rest.as_str(), kept.ended), ("100ms  attempt 1 failed: exit 3", false));
        board.take(&event(300, "task_running", "a", 2));
        board.take(&with(event(1_400, "attempt_failed", "a", 2), "timeout", ""));
        let kept = board.take(&with(event(1_400, "task_failed", "a", 2), "timeout", "")).unwrap();
        assert_eq!(kept.rest, "1.1s  timeout");
        let kept = board.take(&event(1_400, "task_upstream_failed", "b", 0)).unwrap();
        assert_eq!((kept.word.as_str(), kept.rest.as_str()), ("upstream_failed", ""));
        board.take(&event(1_500, "task_succeeded", "c", 1));
        assert_eq!(board.outcome(), "1 failed, 1 upstream failed, 1 succeeded");
    }

    #[test]
    fn an_attempt_that_is_lost_leaves_the_list_until_it_runs_again() {
        let mut board = Board::new(7, 1);
        board.take(&event(100, "task_running", "a", 1));
        board.take(&with(event(200, "attempt_failed", "a", 1), "lost_claw", ""));
        board.take(&event(200, "task_ready", "a", 1));
        assert!(board.running.is_empty());
        assert_eq!(board.done(), 0);
    }
}
