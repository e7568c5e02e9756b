//! An occurrence has one run or one record; the index of what is due and the counts of runs agree with the rows.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec::Vec;
use clawhive_proto::{OccurrenceRow, ScheduleRow, ScheduleState};
use core::ops::ControlFlow;

use crate::invariant::Findings;
use crate::invariant::snapshot::Snapshot;
use crate::read::sound;
use crate::{ReadStore, Table, key, state};

pub(super) fn check(view: &dyn ReadStore, snapshot: &Snapshot, findings: &mut Findings) {
    // By key of the schedule and uid: runs that have not ended; by key of the occurrence: its run.
    let mut active: BTreeMap<(Vec<u8>, u64), u32> = BTreeMap::new();
    let mut made: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (run, row) in snapshot.runs.iter().filter(|(_, row)| row.schedule_uid > 0) {
        let schedule = key::schedule(&row.namespace, &row.workflow, &row.schedule);
        if row.nominal_ms > 0 {
            let twice = made.insert(key::occurrence(&schedule, row.nominal_ms), run.0);
            findings.expect(twice.is_none(), "an occurrence has one run", || format!("{twice:?} and {run}"));
        }
        *active.entry((schedule, row.schedule_uid)).or_default() += u32::from(!state::run_ended(row.state()));
    }
    let mut due = BTreeSet::new();
    view.scan(Table::Schedules, &[], None, &mut |row_key, value| {
        let row: ScheduleRow = sound(Table::Schedules, row_key, value.clone());
        let place = || format!("{:?}: {row:?}", key::parse_schedule(row_key));
        if row.state() == ScheduleState::Active && !row.never {
            due.insert(key::schedule_due(row.next_ms, row_key));
        }
        let counted = active.get(&(row_key.to_vec(), row.uid)).copied().unwrap_or_default();
        findings.expect(row.active == counted, "runs of a schedule that have not ended are counted", place);
        let ahead = row.next_ms == 0 || row.next_ms > row.cursor_ms;
        findings.expect(ahead, "the next occurrence is after the cursor", place);
        let rests = row.state() != ScheduleState::Active || row.never;
        findings.expect(!rests || row.next_ms == 0, "what does not fire has no next occurrence", place);
        ControlFlow::Continue(())
    });
    let stored = keys(view, Table::ScheduleDue);
    findings.expect(stored == due, "the index of due schedules holds those that fire", || {
        format!("{stored:02x?} but {due:02x?}")
    });
    records(view, &made, findings);
}

fn records(view: &dyn ReadStore, made: &BTreeMap<Vec<u8>, u64>, findings: &mut Findings) {
    let mut expiry = BTreeSet::new();
    view.scan(Table::Occurrences, &[], None, &mut |row_key, value| {
        let row: OccurrenceRow = sound(Table::Occurrences, row_key, value.clone());
        expiry.insert(key::occurrence_expiry(row.recorded_at_ms, row_key));
        findings.expect((row.run > 0) == (row.skipped == 0), "a run or a reason", || format!("{row:?}"));
        // The run may have been dropped from the history before.
        let agrees = made.get(row_key).is_none_or(|run| *run == row.run);
        findings.expect(agrees, "an occurrence and its run agree", || format!("{row_key:02x?}: {row:?}"));
        ControlFlow::Continue(())
    });
    let stored = keys(view, Table::OccurrenceExpiry);
    findings
        .expect(stored == expiry, "occurrences and their index of ends agree", || format!("{stored:02x?}"));
}

fn keys(view: &dyn ReadStore, table: Table) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    view.scan(table, &[], None, &mut |row_key, _| {
        found.insert(row_key.to_vec());
        ControlFlow::Continue(())
    });
    found
}
