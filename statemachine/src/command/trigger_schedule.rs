//! Makes a run of a schedule by hand: no occurrence of it, and yet under its overlap policy, unless forced.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{RejectionCode, RunSubmitted, TriggerSchedule};

use crate::halt::{Step, rejected};
use crate::schedule;
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &TriggerSchedule) -> Step<Answer> {
    let mut known = schedule::known(work, command.of.as_ref())?;
    if let Some(overlap) = known.overlaps().filter(|_| !command.force) {
        let name = known.name();
        let message = alloc::format!("schedule {name} skips what overlaps, and {overlap}");
        return rejected(RejectionCode::Overlap, message);
    }
    let (run, version) = known.make_run(work, 0, command.version, &command.params)?;
    known.store(work);
    Ok(Answer::RunSubmitted(RunSubmitted { run: run.0, replayed: false, version: version.0 }))
}
