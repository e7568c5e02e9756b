//! Cancels a run. One that is being stopped already, or has ended, is left as it is.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{CancelRun, Done, Reason, RunState, Stop};

use crate::graph::stop;
use crate::halt::Step;
use crate::ids::RunId;
use crate::work::Work;
use crate::{row, state};

pub(crate) fn apply(work: &mut Work<'_>, command: &CancelRun) -> Step<Answer> {
    let run = RunId(command.run);
    let row = work.known_run(run)?;
    if row.stop.is_none() && !state::run_ended(row.state()) {
        let message = row::cut(&command.reason, 1_024);
        let (state, reason) = (RunState::Cancelled as i32, Reason::Cancelled as i32);
        stop::run(work, run, Stop { state, reason, message })?;
    }
    Ok(Answer::Done(Done {}))
}
