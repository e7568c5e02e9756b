//! The renewals that reached the leader in one tick. Only a claw that holds something has a lease to renew.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, RenewLeases};

use crate::Touched;
use crate::halt::Step;
use crate::ids::ClawId;
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &RenewLeases) -> Step<Answer> {
    for renewal in &command.renewals {
        let claw = ClawId(renewal.claw);
        let holds =
            work.claw(claw)?.is_some_and(|row| row.incarnation == renewal.incarnation && row.used > 0);
        if holds {
            let now = work.now;
            let row = work.claw_mut(claw)?;
            row.renewed_at_ms = now;
            row.renew_seq += 1;
            row.remaining_ms = None;
            work.touched.add(Touched::CLAWS);
        }
    }
    Ok(Answer::Done(Done {}))
}
