//! The holder of a lock keeps it.

use alloc::format;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, LockRow, RejectionCode, RenewLock};

use crate::halt::{Step, rejected};
use crate::lock::{self, Name};
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &RenewLock) -> Step<Answer> {
    let name = Name::checked(&command.namespace, &command.name)?;
    let held = lock::load(work, name)?.filter(|row| row.token == command.token);
    let lease = held.as_ref().and_then(|row| row.lease.clone());
    match (held, lease) {
        (Some(held), Some(mut lease)) if lease.session == command.session => {
            lock::renew(work, name, 0, &mut lease);
            lock::put(work, name, &LockRow { lease: Some(lease), ..held });
            Ok(Answer::Done(Done {}))
        }
        _ => lost(name, command.token),
    }
}

pub(super) fn lost<T>(name: Name<'_>, token: u64) -> Step<T> {
    rejected(RejectionCode::LockLost, format!("token {token} is not the current one of lock {name}"))
}
