//! Every member can do the next level: see [`crate::level`].

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, Event, EventKind, RaiseLevel, RejectionCode};

use crate::halt::{Halt, Refusal, Step, rejected};
use crate::work::Work;
use crate::{Touched, level};

pub(crate) fn apply(work: &mut Work<'_>, command: &RaiseLevel) -> Step<Answer> {
    if command.level > level::LEVEL {
        let (log_index, level) = (work.log_index, command.level);
        return Err(Refusal::Halted(Halt::UnknownLevel { log_index, level }));
    }
    if command.level < work.level() {
        let message = alloc::format!("the cluster is at level {} already", work.level());
        return rejected(RejectionCode::Conflict, message);
    }
    if command.level > work.level() {
        work.meta.level = command.level;
        work.touched.add(Touched::NODES);
        let detail = alloc::format!("level {}", command.level);
        work.event(Event { kind: EventKind::LevelRaised as i32, detail, ..Event::default() });
    }
    Ok(Answer::Done(Done {}))
}
