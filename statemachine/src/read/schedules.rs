//! Schedules and what became of their occurrences.

use alloc::vec::Vec;
use clawhive_proto::{OccurrenceRow, ScheduleRef, ScheduleRow};
use core::ops::ControlFlow;

use crate::read::{one, sound, sound_key};
use crate::{ReadStore, Table, key, row};

/// A schedule.
pub fn schedule(view: &dyn ReadStore, of: &ScheduleRef) -> Option<ScheduleRow> {
    one(view, Table::Schedules, &key::schedule(&of.namespace, &of.workflow, &of.schedule))
}

/// All schedules, by namespace, workflow and name; with a namespace only its own, with a workflow only that one's.
pub fn schedules(view: &dyn ReadStore, namespace: &str, workflow: &str) -> Vec<(ScheduleRef, ScheduleRow)> {
    let mut prefix = Vec::new();
    for part in [namespace, workflow].into_iter().take_while(|part| !part.is_empty()) {
        prefix.extend_from_slice(part.as_bytes());
        prefix.push(0);
    }
    let mut found = Vec::new();
    row::scan_prefix(view, Table::Schedules, &prefix, &mut |row_key, value| {
        let (namespace, workflow, schedule) =
            sound_key(Table::Schedules, row_key, key::parse_schedule(row_key));
        let of =
            ScheduleRef { namespace: namespace.into(), workflow: workflow.into(), schedule: schedule.into() };
        found.push((of, sound(Table::Schedules, row_key, value.clone())));
        ControlFlow::Continue(())
    });
    found
}

/// What became of an occurrence.
#[derive(Clone, Debug, PartialEq)]
pub struct Occurrence {
    /// The first (or only) occurrence.
    pub nominal_ms: u64,
    /// What became of it.
    pub row: OccurrenceRow,
}

/// The newest records of a schedule before `before_ms`, newest first.
pub fn occurrences(view: &dyn ReadStore, of: &ScheduleRef, before_ms: u64, limit: usize) -> Vec<Occurrence> {
    let schedule = key::schedule(&of.namespace, &of.workflow, &of.schedule);
    let (from, until) = (key::occurrence(&schedule, 0), key::occurrence(&schedule, before_ms));
    let mut found = Vec::new();
    if limit == 0 {
        return found;
    }
    view.scan_back(Table::Occurrences, &from, Some(&until), &mut |row_key, value| {
        let nominal_ms = sound_key(Table::Occurrences, row_key, key::u64_at(row_key, schedule.len() + 1));
        found.push(Occurrence { nominal_ms, row: sound(Table::Occurrences, row_key, value.clone()) });
        if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}
