//! The rows of schedules: the cursor and the next occurrence, the index of what is due, the record of what became of an
//! occurrence, and what a new version, a pause and the end of a run do to them.
//!
//! Must not: know what a cron expression or a time zone is. The next occurrence comes with the command.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use clawhive_proto::schedule::When;
use clawhive_proto::{
    Event, EventKind, OccurrenceRow, Overlap, RejectionCode, Schedule, ScheduleRef, ScheduleRow,
    ScheduleState, SkipReason, Workflow,
};
use core::ops::ControlFlow;

use crate::command::submit_run::{self, NewRun, OfSchedule};
use crate::halt::{Step, rejected};
use crate::ids::RunId;
use crate::work::Work;
use crate::{Table, Touched, key, names, row};

/// The longest text kept for why a schedule stands still or skipped.
const MESSAGE_BYTES: usize = 1_024;

/// A schedule that exists, with its key.
pub(crate) struct Known {
    pub of: ScheduleRef,
    pub key: Vec<u8>,
    pub row: ScheduleRow,
    /// As it is in the store.
    stored: ScheduleRow,
}

impl Known {
    fn new(of: ScheduleRef, key: Vec<u8>, row: ScheduleRow) -> Known {
        Known { of, key, stored: row.clone(), row }
    }

    /// How people name it.
    pub fn name(&self) -> String {
        names::schedule(&self.of.namespace, &self.of.workflow, &self.of.schedule)
    }

    /// Writes the row, and its place in the index of what is due.
    pub fn store(self, work: &mut Work<'_>) {
        if let Some(due_ms) = due_ms(&self.stored) {
            work.delete(Table::ScheduleDue, &key::schedule_due(due_ms, &self.key));
        }
        if let Some(due_ms) = due_ms(&self.row) {
            work.put_raw(Table::ScheduleDue, &key::schedule_due(due_ms, &self.key), &[]);
        }
        work.put(Table::Schedules, &self.key, &self.row);
        work.touched.add(Touched::SCHEDULES);
    }

    fn event(&self, work: &mut Work<'_>, kind: EventKind, run: RunId, detail: String) {
        work.event(Event { kind: kind as i32, run: run.0, detail, ..Event::default() });
    }

    /// It stands still until someone looks.
    pub fn suspend(&mut self, work: &mut Work<'_>, message: &str) {
        self.row.set_state(ScheduleState::Suspended);
        self.row.message = row::cut(message, MESSAGE_BYTES);
        self.row.revision = work.log_index;
        self.row.next_ms = 0;
        let detail = alloc::format!("{}: {}", self.name(), self.row.message);
        self.event(work, EventKind::ScheduleSuspended, RunId(0), detail);
    }

    /// Stops firing until it is resumed.
    pub fn pause(&mut self, work: &mut Work<'_>, reason: &str) {
        self.row.set_state(ScheduleState::Paused);
        self.row.message = row::cut(reason, MESSAGE_BYTES);
        self.row.revision = work.log_index;
        self.row.next_ms = 0;
        let because =
            if reason.is_empty() { String::new() } else { alloc::format!(": {}", self.row.message) };
        let detail = alloc::format!("{}{because}", self.name());
        self.event(work, EventKind::SchedulePaused, RunId(0), detail);
    }

    /// Fires again. What was due until now counts as paused; the leader passes over it when it plans.
    pub fn resume(&mut self, work: &mut Work<'_>) {
        self.row.set_state(ScheduleState::Active);
        self.row.message.clear();
        self.row.revision = work.log_index;
        self.row.next_ms = 0;
        self.row.never = false;
        self.row.paused_until_ms = work.now;
        let detail = self.name();
        self.event(work, EventKind::ScheduleResumed, RunId(0), detail);
    }

    /// The next occurrence, or the alarm that there is no telling. `cursor_ms` is set already.
    pub fn set_next(&mut self, work: &mut Work<'_>, next_ms: u64) {
        self.row.next_ms = next_ms;
        self.row.never = next_ms == 0;
        if next_ms > 0 && next_ms <= self.row.cursor_ms {
            let message = alloc::format!(
                "the occurrence after {} was computed as {}, which is not later",
                names::time(self.row.cursor_ms),
                names::time(next_ms)
            );
            return self.suspend(work, &message);
        }
        if next_ms == 0 || next_ms > self.row.paused_until_ms {
            self.row.paused_until_ms = 0;
        }
    }

    /// Records that occurrences have no run.
    pub fn skip(&mut self, work: &mut Work<'_>, first_ms: u64, skip: &Skip<'_>) {
        self.row.skipped += skip.count;
        let until = match skip.count {
            1 => String::new(),
            count => alloc::format!(" until {} ({count} occurrences)", names::time(skip.last_ms)),
        };
        let because = match skip.detail {
            "" => String::new(),
            detail => alloc::format!(": {detail}"),
        };
        let (at, reason) = (names::time(first_ms), names::skip_reason(skip.reason));
        let detail = alloc::format!("{} at {at}{until}: {reason}{because}", self.name());
        self.event(work, EventKind::ScheduleSkipped, RunId(0), detail);
        let record = OccurrenceRow {
            run: 0,
            skipped: skip.reason as i32,
            detail: row::cut(skip.detail, MESSAGE_BYTES),
            last_ms: skip.last_ms,
            count: skip.count,
            recorded_at_ms: work.now,
        };
        self.record(work, first_ms, &record);
    }

    /// Makes a run of it; `nominal_ms` 0 is by hand.
    pub fn make_run(
        &mut self,
        work: &mut Work<'_>,
        nominal_ms: u64,
        version: u64,
        params: &alloc::collections::BTreeMap<String, String>,
    ) -> Step<(RunId, crate::ids::Version)> {
        let (run, version) = submit_run::create(
            work,
            &NewRun {
                namespace: &self.of.namespace,
                workflow: &self.of.workflow,
                version,
                params,
                labels: &Default::default(),
                idempotency_key: "",
                of_schedule: Some(OfSchedule { uid: self.row.uid, name: &self.of.schedule, nominal_ms }),
            },
        )?;
        self.row.active += 1;
        self.row.last_run = run.0;
        let at = match nominal_ms {
            0 => String::from("by hand"),
            nominal_ms => alloc::format!("at {}", names::time(nominal_ms)),
        };
        let detail = alloc::format!("{} {at}", self.name());
        self.event(work, EventKind::ScheduleFired, run, detail);
        if nominal_ms > 0 {
            self.row.fired += 1;
            let recorded_at_ms = work.now;
            let record = OccurrenceRow {
                run: run.0,
                last_ms: nominal_ms,
                count: 1,
                recorded_at_ms,
                ..OccurrenceRow::default()
            };
            self.record(work, nominal_ms, &record);
        }
        Ok((run, version))
    }

    fn record(&self, work: &mut Work<'_>, nominal_ms: u64, record: &OccurrenceRow) {
        let key = key::occurrence(&self.key, nominal_ms);
        work.put(Table::Occurrences, &key, record);
        let expiry = key::occurrence_expiry(record.recorded_at_ms, &key);
        work.put_raw(Table::OccurrenceExpiry, &expiry, &[]);
        work.touched.add(Touched::EXPIRY);
    }

    /// Why its overlap policy forbids another run now.
    pub fn overlaps(&self) -> Option<String> {
        if self.row.overlap() != Overlap::Skip || self.row.active == 0 {
            return None;
        }
        Some(match self.row.active {
            1 => alloc::format!("run {} has not ended", self.row.last_run),
            more => {
                alloc::format!("{more} runs have not ended, the newest made is {}", self.row.last_run)
            }
        })
    }
}

/// What is skipped and why.
pub(crate) struct Skip<'a> {
    pub last_ms: u64,
    pub count: u64,
    pub reason: SkipReason,
    pub detail: &'a str,
}

impl<'a> Skip<'a> {
    /// One occurrence.
    pub fn one(nominal_ms: u64, reason: SkipReason, detail: &'a str) -> Skip<'a> {
        Skip { last_ms: nominal_ms, count: 1, reason, detail }
    }
}

/// Where a row stands in the index of what is due: only what fires is there.
pub(crate) fn due_ms(row: &ScheduleRow) -> Option<u64> {
    (row.state() == ScheduleState::Active && !row.never).then_some(row.next_ms)
}

/// The schedule, or a rejection.
pub(crate) fn known(work: &Work<'_>, of: Option<&ScheduleRef>) -> Step<Known> {
    let Some(of) = of else { return rejected(RejectionCode::Invalid, "no schedule is named") };
    let key = key::schedule(&of.namespace, &of.workflow, &of.schedule);
    // Names with a NUL would read as those of another schedule.
    let plain = [&of.namespace, &of.workflow, &of.schedule].iter().all(|name| !name.contains('\0'));
    match work.get::<ScheduleRow>(Table::Schedules, &key)?.filter(|_| plain) {
        Some(row) => Ok(Known::new(of.clone(), key, row)),
        None => {
            let name = names::schedule(&of.namespace, &of.workflow, &of.schedule);
            rejected(RejectionCode::NotFound, alloc::format!("there is no schedule {name}"))
        }
    }
}

/// A plan that was made from an older state.
pub(crate) fn stale<T>(what: impl Into<String>) -> Step<T> {
    rejected(RejectionCode::StaleSchedule, what)
}

/// Brings the schedules of a workflow in line with its definition. Never fires: a schedule that is new or asks for
/// other times begins now, one that asks for the same times goes on as it is.
pub(crate) fn sync(work: &mut Work<'_>, workflow: &Workflow) -> Step<()> {
    let wanted: BTreeSet<&str> = workflow.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    for old in all_of(work, &workflow.namespace, &workflow.name)? {
        if !wanted.contains(old.of.schedule.as_str()) {
            remove(work, old);
        }
    }
    for schedule in &workflow.schedules {
        set(work, workflow, schedule)?;
    }
    Ok(())
}

fn all_of(work: &Work<'_>, namespace: &str, workflow: &str) -> Step<Vec<Known>> {
    let prefix = key::schedule(namespace, workflow, "");
    let mut found = Vec::new();
    row::scan_prefix(work.view(), Table::Schedules, &prefix, &mut |key, value| {
        found.push((key.to_vec(), value.clone()));
        ControlFlow::Continue(())
    });
    found.into_iter().map(|(key, value)| decode(key, value)).collect()
}

fn decode(key: Vec<u8>, value: crate::Value) -> Step<Known> {
    let row = row::decode(Table::Schedules, &key, value)?;
    let Some((namespace, workflow, schedule)) = key::parse_schedule(&key) else {
        return Err(row::damaged(Table::Schedules, &key).into());
    };
    let of =
        ScheduleRef { namespace: namespace.into(), workflow: workflow.into(), schedule: schedule.into() };
    Ok(Known::new(of, key, row))
}

/// What was due and is not fired any more, because the schedule changed.
fn skip_due(work: &mut Work<'_>, known: &mut Known, why: &str) {
    let next_ms = known.row.next_ms;
    if next_ms > 0 && next_ms <= work.now {
        known.skip(work, next_ms, &Skip::one(next_ms, SkipReason::Changed, why));
    }
}

fn remove(work: &mut Work<'_>, mut known: Known) {
    skip_due(work, &mut known, "the schedule was removed");
    if let Some(due_ms) = due_ms(&known.stored) {
        work.delete(Table::ScheduleDue, &key::schedule_due(due_ms, &known.key));
    }
    work.delete(Table::Schedules, &known.key);
    work.touched.add(Touched::SCHEDULES);
    let detail = known.name();
    known.event(work, EventKind::ScheduleRemoved, RunId(0), detail);
}

fn set(work: &mut Work<'_>, workflow: &Workflow, schedule: &Schedule) -> Step<()> {
    let of = ScheduleRef {
        namespace: workflow.namespace.clone(),
        workflow: workflow.name.clone(),
        schedule: schedule.name.clone(),
    };
    let key = key::schedule(&of.namespace, &of.workflow, &of.schedule);
    let stored: Option<ScheduleRow> = work.get(Table::Schedules, &key)?;
    let fresh = stored.is_none();
    let row = stored.unwrap_or_else(|| ScheduleRow { uid: work.log_index, ..ScheduleRow::default() });
    let mut known = Known::new(of, key, row);
    if known.row.definition.as_ref() == Some(schedule) && known.row.overlap == workflow.overlap {
        return Ok(());
    }
    if fresh || !known.row.definition.as_ref().is_some_and(|old| same_times(old, schedule)) {
        skip_due(work, &mut known, "the schedule was changed");
        known.row.cursor_ms = work.now;
        known.row.next_ms = 0;
        known.row.never = false;
        known.row.paused_until_ms = 0;
        if known.row.state() == ScheduleState::Suspended {
            known.row.set_state(ScheduleState::Active);
            known.row.message.clear();
        }
    }
    known.row.revision = work.log_index;
    known.row.definition = Some(schedule.clone());
    known.row.overlap = workflow.overlap;
    let detail = alloc::format!("{}: {}", known.name(), times(schedule));
    known.event(work, EventKind::ScheduleSet, RunId(0), detail);
    if fresh {
        // Nothing of it is in the index yet, not even at 0.
        known.stored.never = true;
    }
    known.store(work);
    Ok(())
}

fn same_times(a: &Schedule, b: &Schedule) -> bool {
    a.when == b.when && a.timezone == b.timezone
}

/// In words, for the event.
fn times(schedule: &Schedule) -> String {
    match &schedule.when {
        Some(When::Cron(text)) => alloc::format!("cron {text:?} in {}", schedule.timezone),
        Some(When::EveryMs(ms)) => alloc::format!("every {ms} ms"),
        None => String::new(),
    }
}

/// A run has ended: it no longer counts for the overlap policy of the schedule that made it.
pub(crate) fn run_ended(work: &mut Work<'_>, run: RunId) -> Step<()> {
    let row = work.run(run)?;
    if row.schedule_uid == 0 {
        return Ok(());
    }
    let uid = row.schedule_uid;
    let key = key::schedule(&row.namespace, &row.workflow, &row.schedule);
    // It may have been removed, and another one made under its name.
    let Some(mut row) = work.get::<ScheduleRow>(Table::Schedules, &key)?.filter(|row| row.uid == uid) else {
        return Ok(());
    };
    row.active = row
        .active
        .checked_sub(1)
        .ok_or_else(|| crate::halt::broken("more runs of a schedule ended than it has"))?;
    work.put(Table::Schedules, &key, &row);
    Ok(())
}

/// Pauses every schedule that there is: what a restored cluster starts with, so that it does not fire beside the one
/// that the backup was taken of.
pub(crate) fn pause_all(work: &mut Work<'_>, reason: &str) -> Step<()> {
    let mut found = Vec::new();
    work.view().scan(Table::Schedules, &[], None, &mut |key, value| {
        found.push((key.to_vec(), value.clone()));
        ControlFlow::Continue(())
    });
    for (key, value) in found {
        let mut known = decode(key, value)?;
        if known.row.state() != ScheduleState::Paused {
            known.pause(work, reason);
            known.store(work);
        }
    }
    Ok(())
}
