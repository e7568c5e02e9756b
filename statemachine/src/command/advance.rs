//! Goes on with the backlog.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Advance, Progress};

use crate::graph::backlog;
use crate::halt::Step;
use crate::work::Work;

/// The most steps that one entry does, whatever it asks for.
const MAX_STEPS: u32 = 10_000;

pub(crate) fn apply(work: &mut Work<'_>, command: &Advance) -> Step<Answer> {
    let asked = command.limit.clamp(1, MAX_STEPS);
    work.steps = asked;
    let more = backlog::run_stored(work)?;
    let done = asked - work.steps;
    Ok(Answer::Progress(Progress { done, more }))
}
