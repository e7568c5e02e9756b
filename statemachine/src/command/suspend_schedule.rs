//! The leader cannot tell the next occurrence of a schedule: it stands still, with an alarm; others go on.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, ScheduleState, SuspendSchedule};

use crate::halt::Step;
use crate::schedule::{self, stale};
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &SuspendSchedule) -> Step<Answer> {
    let mut known = schedule::known(work, command.of.as_ref())?;
    if known.row.state() != ScheduleState::Active || known.row.revision != command.revision {
        return stale(alloc::format!("schedule {} has changed", known.name()));
    }
    known.suspend(work, &command.message);
    known.store(work);
    Ok(Answer::Done(Done {}))
}
