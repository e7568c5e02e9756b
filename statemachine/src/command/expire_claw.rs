//! The lease of a claw has run out: what it held runs elsewhere.

use alloc::vec::Vec;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{AttemptState, ClawState, Done, Event, EventKind, ExpireClaw, Reason, RejectionCode};
use core::ops::ControlFlow;

use crate::graph::attempt::{self, AttemptEnd, Ran};
use crate::halt::{Step, rejected};
use crate::ids::{ClawId, RunId, TaskIndex};
use crate::work::Work;
use crate::{Table, Touched, key, row};

pub(crate) fn apply(work: &mut Work<'_>, command: &ExpireClaw) -> Step<Answer> {
    let claw = ClawId(command.claw);
    let Some(current) = work.claw(claw)? else {
        return rejected(RejectionCode::UnknownClaw, alloc::format!("there is no claw {claw}"));
    };
    if current.incarnation != command.incarnation || current.renew_seq != command.renew_seq {
        return rejected(RejectionCode::Renewed, alloc::format!("claw {claw} was renewed meanwhile"));
    }
    if current.state() == ClawState::Down {
        return Ok(Answer::Done(Done {}));
    }
    lose_all(work, claw)?;
    work.claw_mut(claw)?.set_state(ClawState::Down);
    work.touched.add(Touched::CLAWS);
    let kind = EventKind::ClawExpired as i32;
    work.event(Event { kind, claw: claw.0, ..Event::default() });
    Ok(Answer::Done(Done {}))
}

/// Ends every attempt that a claw holds as lost: at most its slots.
pub(crate) fn lose_all(work: &mut Work<'_>, claw: ClawId) -> Step<()> {
    let mut held: Vec<Option<(RunId, TaskIndex)>> = Vec::new();
    row::scan_prefix(work.view(), Table::Assignments, &key::claw(claw), &mut |key, _| {
        held.push(key::parse_assignment(key).map(|(_, _, run, task)| (run, task)));
        ControlFlow::Continue(())
    });
    let end = AttemptEnd {
        state: AttemptState::Failed,
        reason: Reason::LostClaw,
        exit_code: None,
        signal: None,
        message: "",
    };
    for place in held {
        let (run, task) = place.ok_or_else(|| row::damaged(Table::Assignments, &key::claw(claw)))?;
        let row = work.task(run, task)?;
        attempt::lose(work, run, task, row, &end, Ran::Perhaps)?;
    }
    Ok(())
}
