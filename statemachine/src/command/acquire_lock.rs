//! A session takes a lock, or its place in the queue. Asked again, it renews what it has.

use alloc::format;
use alloc::string::String;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{AcquireLock, LockGranted, LockQueued, LockRow, RejectionCode};

use crate::halt::{Step, rejected};
use crate::lock::{self, MAX_OWNER_BYTES, MAX_TTL_MS, MAX_WAITERS, MIN_TTL_MS, Name};
use crate::row;
use crate::work::Work;

pub(crate) fn apply(work: &mut Work<'_>, command: &AcquireLock) -> Step<Answer> {
    let name = Name::checked(&command.namespace, &command.name)?;
    check_session(&command.session)?;
    if !(MIN_TTL_MS..=MAX_TTL_MS).contains(&command.ttl_ms) {
        return rejected(
            RejectionCode::Invalid,
            format!("a lock lives from {MIN_TTL_MS} to {MAX_TTL_MS} ms, not {} ms", command.ttl_ms),
        );
    }
    let owner = row::cut(&command.owner, MAX_OWNER_BYTES);
    let Some(held) = lock::load(work, name)? else {
        let token = lock::grant(work, name, &command.session, command.ttl_ms, &owner, LockRow::default());
        return Ok(Answer::LockGranted(LockGranted { token }));
    };
    let mut holder = lock::lease(held.lease.clone(), name)?;
    if holder.session == command.session {
        lock::renew(work, name, 0, &mut holder);
        let token = held.token;
        lock::put(work, name, &LockRow { lease: Some(holder), ..held });
        return Ok(Answer::LockGranted(LockGranted { token }));
    }
    if !command.wait {
        let by = if holder.owner.is_empty() { String::new() } else { format!(" by {}", holder.owner) };
        let text = format!("lock {name} is held{by} (token {})", held.token);
        return rejected(RejectionCode::LockHeld, text);
    }
    queue(work, name, command, &owner, held, holder.owner)
}

fn queue(
    work: &mut Work<'_>,
    name: Name<'_>,
    command: &AcquireLock,
    owner: &str,
    mut held: LockRow,
    holder: String,
) -> Step<Answer> {
    let position = match lock::waiter_of(work, name, &command.session)? {
        Some((position, seq, mut lease)) => {
            lock::renew(work, name, seq, &mut lease);
            lock::put_waiter(work, name, seq, lease);
            position
        }
        None if held.waiters >= MAX_WAITERS => {
            let text = format!("{} wait for lock {name} already; at most {MAX_WAITERS} may", held.waiters);
            return rejected(RejectionCode::LockHeld, text);
        }
        None => {
            held.last_seq += 1;
            held.waiters += 1;
            let lease = lock::new_lease(work, name, held.last_seq, &command.session, command.ttl_ms, owner);
            lock::put_waiter(work, name, held.last_seq, lease);
            lock::put(work, name, &held);
            held.waiters
        }
    };
    Ok(Answer::LockQueued(LockQueued { position, token: held.token, owner: holder }))
}

pub(super) fn check_session(session: &[u8]) -> Step<()> {
    match session.len() == lock::SESSION_BYTES {
        true => Ok(()),
        false => rejected(
            RejectionCode::Invalid,
            format!("a session has {} bytes, not {}", lock::SESSION_BYTES, session.len()),
        ),
    }
}
