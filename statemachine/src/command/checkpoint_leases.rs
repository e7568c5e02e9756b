//! A leader writes down what is left of leases that nobody renews. Only ever less than before, and only of the lease that
//! it counted: a renewal in between makes it void.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{CheckpointLeases, ClawState, Done};

use crate::Touched;
use crate::halt::Step;
use crate::ids::ClawId;
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &CheckpointLeases) -> Step<Answer> {
    for left in &command.leases {
        let claw = ClawId(left.claw);
        let counts = work.claw(claw)?.is_some_and(|row| {
            row.incarnation == left.incarnation
                && row.renew_seq == left.renew_seq
                && row.state() != ClawState::Down
                && row.used > 0
                && left.remaining_ms < row.remaining_ms.unwrap_or(row.lease_ms)
        });
        if counts {
            work.claw_mut(claw)?.remaining_ms = Some(left.remaining_ms);
            work.touched.add(Touched::CLAWS);
        }
    }
    Ok(Answer::Done(Done {}))
}
