//! Pauses a schedule, or resumes one that is paused or suspended. To do it again changes nothing.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, PauseSchedule, ScheduleState};

use crate::halt::Step;
use crate::schedule;
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &PauseSchedule) -> Step<Answer> {
    let mut known = schedule::known(work, command.of.as_ref())?;
    match (known.row.state(), command.paused) {
        (ScheduleState::Paused, true) | (ScheduleState::Active, false) => return Ok(Answer::Done(Done {})),
        (_, true) => known.pause(work, &command.reason),
        (_, false) => known.resume(work),
    }
    known.store(work);
    Ok(Answer::Done(Done {}))
}
