//! Which timers are due.

use alloc::vec::Vec;
use clawhive_proto::{FireTimers, TimerKey};
use core::ops::ControlFlow;

use crate::read::{self, sound_key};
use crate::{ReadStore, Table, key};

/// What to fire now, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FirePlan {
    /// None when nothing is due.
    pub command: Option<FireTimers>,
    /// When the first timer that `command` does not fire is due; none without one. In the past when more are due
    /// than `limit` allowed.
    pub next_due_ms: Option<u64>,
}

/// Plans at most `limit` timers, the earliest first.
pub fn plan(view: &dyn ReadStore, now_ms: u64, limit: usize) -> FirePlan {
    if read::cluster(view).suspended {
        return FirePlan::default();
    }
    let mut timers = Vec::new();
    let mut next_due_ms = None;
    view.scan(Table::Timers, &[], None, &mut |row_key, _| {
        let (due_ms, kind, run, task) = sound_key(Table::Timers, row_key, key::parse_timer(row_key));
        if due_ms > now_ms || timers.len() >= limit {
            next_due_ms = Some(due_ms);
            return ControlFlow::Break(());
        }
        timers.push(TimerKey { due_ms, kind: kind as i32, run: run.0, task: task.0 });
        ControlFlow::Continue(())
    });
    let command = if timers.is_empty() { None } else { Some(FireTimers { timers }) };
    FirePlan { command, next_due_ms }
}
