//! Which occurrences are due, and what comes after them. The calendar (cron, zones) is the leader's: it is handed in, and
//! what it says travels in the command.

use alloc::string::String;
use alloc::vec::Vec;
use clawhive_proto::command::Kind;
use clawhive_proto::{
    FireSchedule, MissedPolicy, PlanSchedule, Schedule, ScheduleRef, ScheduleRow, SkipReason, Skipped,
    SuspendSchedule,
};
use core::ops::ControlFlow;

use crate::read::{self, sound_key};
use crate::{ReadStore, Table, key, names};

/// How late an occurrence may be fired without having been missed: an election, a restart, a busy machine. Within it all
/// that is due fires, in order; what is later is for the `missed` policy.
pub const GRACE_MS: u64 = 30_000;

/// Occurrences that one command passes over, at most.
pub const MOST_SKIPPED: u64 = 10_000;

/// Computes the occurrence after a time (milliseconds since the Unix epoch). None: there is none.
pub type Calendar<'a> = dyn Fn(&Schedule, u64) -> Result<Option<u64>, String> + 'a;

/// What to propose now, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulePlan {
    /// `FireSchedule` (without parameters: the caller adds them), `PlanSchedule` and `SuspendSchedule`; at most one for
    /// each schedule.
    pub commands: Vec<Kind>,
    /// When the first schedule that `commands` do not name is due.
    pub next_due_ms: Option<u64>,
}

/// Plans for at most `limit` schedules, the earliest first.
pub fn plan(view: &dyn ReadStore, now_ms: u64, limit: usize, calendar: &Calendar<'_>) -> SchedulePlan {
    let mut due: Vec<Vec<u8>> = Vec::new();
    let mut next_due_ms = None;
    view.scan(Table::ScheduleDue, &[], None, &mut |row_key, _| {
        let due_ms = sound_key(Table::ScheduleDue, row_key, key::u64_at(row_key, 0));
        if due_ms > now_ms || due.len() >= limit {
            next_due_ms = Some(due_ms);
            return ControlFlow::Break(());
        }
        due.push(row_key[8..].to_vec());
        ControlFlow::Continue(())
    });
    let decide = |row_key: Vec<u8>| {
        let (namespace, workflow, schedule) =
            sound_key(Table::Schedules, &row_key, key::parse_schedule(&row_key));
        let of =
            ScheduleRef { namespace: namespace.into(), workflow: workflow.into(), schedule: schedule.into() };
        let row = read::schedule(view, &of)?;
        let version = read::workflow(view, namespace, workflow).map_or(0, |row| row.latest_version);
        Some(One { of, row, version, now_ms, calendar }.decide())
    };
    SchedulePlan { commands: due.into_iter().filter_map(decide).collect(), next_due_ms }
}

/// One schedule that is due, or to be planned.
struct One<'a> {
    of: ScheduleRef,
    row: ScheduleRow,
    version: u64,
    now_ms: u64,
    calendar: &'a Calendar<'a>,
}

impl One<'_> {
    fn decide(&self) -> Kind {
        self.try_decide().unwrap_or_else(|message| {
            Kind::SuspendSchedule(SuspendSchedule {
                of: Some(self.of.clone()),
                revision: self.row.revision,
                message,
            })
        })
    }

    fn try_decide(&self) -> Result<Kind, String> {
        let row = &self.row;
        let planned = row.next_ms != 0;
        let first = match planned {
            true => Some(row.next_ms),
            false => self.after(row.cursor_ms)?,
        };
        let Some(first) = first else { return Ok(self.move_to(None, None)) };
        if first <= row.paused_until_ms {
            return self.pass_over(first, row.paused_until_ms, SkipReason::Paused);
        }
        if !planned {
            return Ok(self.move_to(None, Some(first)));
        }
        if self.now_ms.saturating_sub(first) > GRACE_MS {
            return self.pass_over(first, self.now_ms, SkipReason::Missed);
        }
        self.fire(first)
    }

    /// The occurrence after `after`, which is later.
    fn after(&self, after_ms: u64) -> Result<Option<u64>, String> {
        let definition = self.row.definition.as_ref().ok_or("it has no definition")?;
        let next = (self.calendar)(definition, after_ms)?;
        match next {
            Some(next) if next <= after_ms => Err(alloc::format!(
                "the occurrence after {} was computed as {}, which is not later",
                names::time(after_ms),
                names::time(next)
            )),
            next => Ok(next),
        }
    }

    /// Fires an occurrence. One whose successor cannot be told is fired as well; `apply` then raises the alarm.
    fn fire(&self, nominal_ms: u64) -> Result<Kind, String> {
        let definition = self.row.definition.as_ref().ok_or("it has no definition")?;
        Ok(Kind::FireSchedule(FireSchedule {
            of: Some(self.of.clone()),
            revision: self.row.revision,
            nominal_ms,
            next_ms: (self.calendar)(definition, nominal_ms)?.unwrap_or(0),
            version: self.version,
            ..FireSchedule::default()
        }))
    }

    fn move_to(&self, skipped: Option<Skipped>, next_ms: Option<u64>) -> Kind {
        Kind::PlanSchedule(PlanSchedule {
            of: Some(self.of.clone()),
            revision: self.row.revision,
            cursor_ms: self.row.cursor_ms,
            skipped,
            next_ms: next_ms.unwrap_or(0),
        })
    }

    /// Passes over what was due from `first` to `until`; under `latest` the newest of it is left to be fired, when it is
    /// within the window.
    fn pass_over(&self, first: u64, until: u64, reason: SkipReason) -> Result<Kind, String> {
        let (mut before_last, mut last, mut count) = (None, first, 1);
        let mut next = self.after(last)?;
        while let Some(time) = next.filter(|time| *time <= until && count < MOST_SKIPPED) {
            (before_last, last) = (Some(last), time);
            count += 1;
            next = self.after(last)?;
        }
        if self.makes_up_for(last) {
            // More of them may follow after the most that one command passes over; then this is not the newest.
            let newest = next.is_none_or(|next| next > until);
            match before_last {
                _ if !newest => {}
                Some(before_last) => {
                    let skipped = Skipped {
                        first_ms: first,
                        last_ms: before_last,
                        count: count - 1,
                        reason: reason as i32,
                    };
                    return Ok(self.move_to(Some(skipped), Some(last)));
                }
                None if self.row.next_ms == 0 => return Ok(self.move_to(None, Some(last))),
                None => return self.fire(last),
            }
        }
        let skipped = Skipped { first_ms: first, last_ms: last, count, reason: reason as i32 };
        Ok(self.move_to(Some(skipped), next))
    }

    fn makes_up_for(&self, nominal_ms: u64) -> bool {
        let Some(definition) = &self.row.definition else { return false };
        let late = self.now_ms.saturating_sub(nominal_ms);
        let window = definition.missed_window_ms;
        definition.missed() == MissedPolicy::Latest && (window == 0 || late <= window)
    }
}
