//! What is left of leases of locks, as their leader counts it. A new leader goes on from there: repeated leader changes do
//! not keep an abandoned lock for ever. Never makes a lease longer.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{CheckpointLocks, LeaseRow, LockRow, Progress};

use crate::command::expire_locks::{Current, current};
use crate::halt::Step;
use crate::lock::{self, Name};
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &CheckpointLocks) -> Step<Answer> {
    let mut done = 0;
    for named in &command.leases {
        let name = Name { namespace: &named.namespace, name: &named.name };
        let shorter = |lease: &LeaseRow| (1..lease.remaining_ms).contains(&named.remaining_ms);
        let remaining_ms = named.remaining_ms;
        match current(work, named)? {
            Some(Current::Holder(row, lease)) if shorter(&lease) => {
                lock::put(work, name, &LockRow { lease: Some(LeaseRow { remaining_ms, ..lease }), ..row });
            }
            Some(Current::Waiter(_, lease)) if shorter(&lease) => {
                lock::put_waiter(work, name, named.seq, LeaseRow { remaining_ms, ..lease });
            }
            _ => continue,
        }
        done += 1;
    }
    Ok(Answer::Progress(Progress { done, more: false }))
}
