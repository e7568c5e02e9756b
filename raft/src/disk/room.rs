//! Waiting for room on a full disk.
//!
//! Owns: the difference between a write that found no room, of which nothing is lost and which may be tried again, and a
//! failed sync, which may not: a sync never comes here. Must not: free anything, or wait before whoever starts a node
//! was told that its disk is full.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often it is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Makes operations wait while there is no room on the disk. One per replica.
#[derive(Debug, Default)]
pub struct Room {
    /// Off at first: a node that cannot start for want of room says so instead of waiting.
    patient: AtomicBool,
    waiting: AtomicUsize,
    closed: Mutex<bool>,
    wake: Condvar,
}

/// The disk, or this user's share of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Room {
    /// From now on operations wait for room.
    pub fn be_patient(&self) {
        self.patient.store(true, Ordering::Release);
    }

    /// Ends every wait with the error that caused it: the replica stops.
    pub fn close(&self) {
        self.patient.store(false, Ordering::Release);
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_all();
    }

    /// Whether something waits for room right now.
    pub fn is_lacking(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Does something until it fails for another reason than want of room, or succeeds.
    ///
    /// # Errors
    /// Every other error, and want of room before [`Room::be_patient`] and after [`Room::close`].
    pub fn wait<T, E>(
        &self,
        what: &str,
        lacks_room: impl Fn(&E) -> bool,
        mut operation: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: std::fmt::Display,
    {
        let mut waits = None;
        loop {
            match operation() {
                Err(error) if lacks_room(&error) && self.patient.load(Ordering::Acquire) => {
                    if waits.is_none() {
                        tracing::error!(what, %error, "no room on the disk: waiting until there is");
                        waits = Some(Waiting::new(&self.waiting));
                    }
                    let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
                    if *closed {
                        return Err(error);
                    }
                    drop(self.wake.wait_timeout(closed, PAUSE).unwrap_or_else(PoisonError::into_inner));
                }
                other => {
                    if waits.is_some() && other.is_ok() {
                        tracing::info!(what, "there is room on the disk again");
                    }
                    return other;
                }
            }
        }
    }
}

/// Counts one that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn full() -> io::Error {
        ErrorKind::StorageFull.into()
    }

    #[test]
    fn it_waits_for_room_and_for_nothing_else() {
        let room = Arc::new(Room::default());
        let fails = || room.wait("test", is_full, || Err::<(), _>(full()));
        assert_eq!(fails().unwrap_err().kind(), ErrorKind::StorageFull, "not patient yet");
        room.be_patient();
        let mut tries = 0;
        let third = room.wait("test", is_full, || {
            tries += 1;
            if tries < 3 { Err(full()) } else { Ok(tries) }
        });
        assert_eq!(third.unwrap(), 3);
        assert!(!room.is_lacking());
        let other = room.wait("test", is_full, || Err::<(), _>(io::Error::from_raw_os_error(5)));
        assert_eq!(other.unwrap_err().raw_os_error(), Some(5));
        let waits = {
            let room = room.clone();
            std::thread::spawn(move || room.wait("test", is_full, || Err::<(), _>(full())))
        };
        while !room.is_lacking() {
            std::thread::yield_now();
        }
        room.close();
        assert_eq!(waits.join().unwrap().unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(!room.is_lacking());
    }
}
