//! What the log's handles, its writer and its helper thread have in common.
//!
//! Owns: the state in memory under one short lock, and the log's end of life. Must not: do I/O under the lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::catalog::{Catalog, Mark, Span};
use super::error::LogError;
use super::ledger::Ledger;
use super::segment::Segment;
use super::tail::Tail;
use super::types::LogEntry;

/// Called once, with the error that ends a log. A node ends its process here: what was promised can no
/// longer be kept by it.
pub type FatalHook = Arc<dyn Fn(&LogError) + Send + Sync>;

pub(crate) struct State {
    pub ledger: Ledger,
    pub catalog: Catalog,
    pub tail: Tail,
    /// Bytes handed to the writer that are not in a file yet.
    pub queued: usize,
    pub closed: bool,
    fatal: Option<Arc<LogError>>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    tail_bytes: usize,
    on_fatal: FatalHook,
    /// Tells those who wait for room that the writer got on, or died.
    pub progress: Notify,
    /// When the batch began that is being written.
    busy: Mutex<Option<Instant>>,
}

/// Entries to read: some from files, then some from memory.
pub(crate) struct ReadPlan {
    pub spans: Vec<Span>,
    pub from_memory: Vec<LogEntry>,
}

impl Shared {
    pub(crate) fn new(
        ledger: Ledger,
        catalog: Catalog,
        tail: Tail,
        tail_bytes: usize,
        on_fatal: FatalHook,
    ) -> Self {
        let state = State { ledger, catalog, tail, queued: 0, closed: false, fatal: None };
        Self {
            state: Mutex::new(state),
            tail_bytes,
            on_fatal,
            progress: Notify::new(),
            busy: Mutex::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock is a bug that ends the process anyway; others need not fail differently.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the log is alive.
    pub(crate) fn alive(&self) -> Result<MutexGuard<'_, State>, LogError> {
        let state = self.lock();
        if let Some(fatal) = &state.fatal {
            return Err(LogError::Poisoned(Arc::clone(fatal)));
        }
        if state.closed {
            return Err(LogError::Closed);
        }
        Ok(state)
    }

    pub(crate) fn fatal(&self) -> Option<Arc<LogError>> {
        self.lock().fatal.clone()
    }

    /// Ends the log. Only the first error counts.
    pub(crate) fn poison(&self, error: &LogError) {
        {
            let mut state = self.lock();
            if state.fatal.is_some() {
                return;
            }
            state.fatal = Some(Arc::new(error.clone()));
        }
        tracing::error!(%error, "the log failed");
        (self.on_fatal)(error);
        self.progress.notify_waiters();
    }

    /// Does the work of one batch; meanwhile [`Shared::busy_for`] tells for how long.
    pub(crate) fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        let set = |to| *self.busy.lock().unwrap_or_else(PoisonError::into_inner) = to;
        set(Some(Instant::now()));
        let done = work();
        set(None);
        done
    }

    pub(crate) fn busy_for(&self) -> Option<Duration> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    /// Takes in what the writer wrote: entries before serial `entries` are in files up to `end`.
    pub(crate) fn written(&self, marks: &mut Vec<Mark>, end: u64, entries: u64, bytes: usize) {
        let mut state = self.lock();
        state.catalog.written(marks, end);
        state.tail.evict(self.tail_bytes, entries);
        state.queued = state.queued.saturating_sub(bytes);
        drop(state);
        self.progress.notify_waiters();
    }

    pub(crate) fn rolled(&self, segment: Arc<Segment>, base: Option<u64>, end: u64) {
        self.lock().catalog.add(segment, base, end);
    }

    pub(crate) fn retire(&self, purged: u64) -> Vec<Arc<Segment>> {
        self.lock().catalog.retire(purged)
    }

    /// Looks up entries from `from` up to but without `to`, within about `budget` bytes, one at least.
    pub(crate) fn plan_read(&self, from: u64, to: u64, budget: usize) -> Result<ReadPlan, LogError> {
        let state = self.lock();
        if let Some(fatal) = &state.fatal {
            return Err(LogError::Poisoned(Arc::clone(fatal)));
        }
        let mut plan = ReadPlan { spans: Vec::new(), from_memory: Vec::new() };
        let (Some(first), Some(next)) = (state.ledger.first(), state.ledger.next()) else {
            return Ok(plan);
        };
        let (from, to) = (from.max(first), to.min(next));
        if from >= to {
            return Ok(plan);
        }
        let memory = state.tail.first().unwrap_or(to).min(to);
        if from < memory {
            plan.spans = state.catalog.spans(from, memory, budget);
            let complete = plan.spans.first().is_some_and(|span| span.first == from);
            if !complete {
                return Err(LogError::Refused(super::error::Refusal::Gap { index: memory, expected: from }));
            }
        }
        let reached = plan.spans.last().map_or(from, |span| span.end);
        let left = budget.saturating_sub(plan.spans.iter().map(Span::bytes).sum());
        if reached >= memory && reached < to && (left > 0 || plan.spans.is_empty()) {
            state.tail.copy(reached, to, left, &mut plan.from_memory);
        }
        Ok(plan)
    }
}

impl ReadPlan {
    /// Whether files must be read.
    pub(crate) fn needs_files(&self) -> bool {
        !self.spans.is_empty()
    }

    /// Does the reading.
    pub(crate) fn run(self) -> Result<Vec<LogEntry>, LogError> {
        let mut entries = Vec::new();
        for span in &self.spans {
            span.read(&mut entries)?;
        }
        entries.extend(self.from_memory);
        Ok(entries)
    }
}
