//! Moves the cursor of a schedule without a run: to the first occurrence of a new one, or over what is not made up for.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, PlanSchedule, RejectionCode, ScheduleState, SkipReason, Skipped};

use crate::halt::{Step, rejected};
use crate::schedule::{self, Known, Skip, stale};
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &PlanSchedule) -> Step<Answer> {
    let mut known = schedule::known(work, command.of.as_ref())?;
    let row = &known.row;
    let moved = row.cursor_ms != command.cursor_ms || row.revision != command.revision;
    if row.state() != ScheduleState::Active || row.never || moved {
        return stale(alloc::format!("schedule {} has changed", known.name()));
    }
    match &command.skipped {
        None if row.next_ms != 0 => return stale(alloc::format!("{} is planned already", known.name())),
        None => {}
        Some(skipped) => skip(work, &mut known, skipped)?,
    }
    known.set_next(work, command.next_ms);
    known.store(work);
    Ok(Answer::Done(Done {}))
}

fn skip(work: &mut Work<'_>, known: &mut Known, skipped: &Skipped) -> Step<()> {
    let row = &known.row;
    let Skipped { first_ms, last_ms, count, .. } = *skipped;
    let reason = skipped.reason();
    let ordered = row.cursor_ms < first_ms && first_ms <= last_ms && last_ms <= work.now && count > 0;
    let first = row.next_ms == 0 || row.next_ms == first_ms;
    if !ordered || !first || !matches!(reason, SkipReason::Paused | SkipReason::Missed) {
        return rejected(RejectionCode::Invalid, alloc::format!("nothing of {} is skipped so", known.name()));
    }
    known.row.cursor_ms = last_ms;
    known.skip(work, first_ms, &Skip { last_ms, count, reason, detail: "" });
    Ok(())
}
