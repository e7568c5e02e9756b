//! A session gives up a lock, or its place in the queue.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, EventKind, ReleaseLock};

use crate::command::acquire_lock::check_session;
use crate::command::renew_lock::lost;
use crate::halt::Step;
use crate::lock::{self, Name};
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &ReleaseLock) -> Step<Answer> {
    let name = Name::checked(&command.namespace, &command.name)?;
    check_session(&command.session)?;
    let held = lock::load(work, name)?;
    let Some(row) = held else {
        return if command.token == 0 { Ok(Answer::Done(Done {})) } else { lost(name, command.token) };
    };
    let holds = lock::lease(row.lease.clone(), name)?.session == command.session;
    if holds && (command.token == 0 || command.token == row.token) {
        lock::may_end(work, name, &row)?;
        lock::end(work, name, row, EventKind::LockReleased)?;
    } else if command.token != 0 {
        return lost(name, command.token);
    } else if let Some((_, seq, waiter)) = lock::waiter_of(work, name, &command.session)? {
        lock::leave(work, name, row, seq, &waiter);
    }
    Ok(Answer::Done(Done {}))
}
