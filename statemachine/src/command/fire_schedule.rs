//! Makes the run of an occurrence, or records why it has none. Once: the occurrence must be the next of the row, and the
//! row moves on in the same entry.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{FireSchedule, OccurrenceRow, ScheduleFired, ScheduleState, SkipReason, WorkflowRow};

use crate::halt::Step;
use crate::schedule::{self, Skip, stale};
use crate::work::Work;
use crate::{Table, key, names};

pub(crate) fn apply(work: &mut Work<'_>, command: &FireSchedule) -> Step<Answer> {
    let mut known = schedule::known(work, command.of.as_ref())?;
    let nominal_ms = command.nominal_ms;
    let row = &known.row;
    if row.state() != ScheduleState::Active || row.never || row.revision != command.revision {
        return stale(alloc::format!("schedule {} has changed", known.name()));
    }
    if nominal_ms == 0 || row.next_ms != nominal_ms {
        let next = names::time(row.next_ms);
        return stale(alloc::format!("the next occurrence of {} is {next}", known.name()));
    }
    if work.now < nominal_ms {
        return stale(alloc::format!("{} is not due before {}", known.name(), names::time(nominal_ms)));
    }
    let name_key = key::workflow(&known.of.namespace, &known.of.workflow);
    let latest = work.get::<WorkflowRow>(Table::Workflows, &name_key)?.map(|row| row.latest_version);
    if latest != Some(command.version) {
        return stale(alloc::format!("{} has another version now", known.name()));
    }
    let occurrence = key::occurrence(&known.key, nominal_ms);
    if work.get::<OccurrenceRow>(Table::Occurrences, &occurrence)?.is_some() {
        return stale(alloc::format!("{} has fired at {} already", known.name(), names::time(nominal_ms)));
    }

    known.row.cursor_ms = nominal_ms;
    let mut fired = ScheduleFired::default();
    if !command.params_error.is_empty() {
        fired.set_skipped(SkipReason::Params);
        known.skip(work, nominal_ms, &Skip::one(nominal_ms, SkipReason::Params, &command.params_error));
    } else if let Some(overlap) = known.overlaps() {
        fired.set_skipped(SkipReason::Overlap);
        known.skip(work, nominal_ms, &Skip::one(nominal_ms, SkipReason::Overlap, &overlap));
    } else {
        fired.run = known.make_run(work, nominal_ms, command.version, &command.params)?.0.0;
    }
    known.set_next(work, command.next_ms);
    known.store(work);
    Ok(Answer::ScheduleFired(fired))
}
