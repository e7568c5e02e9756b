//! The file under redb, on a disk that may be full.
//!
//! Owns: waiting for room when a page finds none, so that a full disk neither ends the node nor leaves redb with a
//! failure that only opening it again would clear. Must not: retry a sync, or know what a page is.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Room, is_full};
use crate::statefile::Backend;

#[derive(Debug)]
struct RoomyFile {
    file: File,
    room: Arc<Room>,
}

/// Opens state files so that they wait in `room`.
pub(crate) fn backend(room: Arc<Room>) -> Backend {
    Arc::new(move |path: &Path| {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("it is open already, in this process or another"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(Box::new(RoomyFile { file, room: room.clone() }))
    })
}

impl redb::StorageBackend for RoomyFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room.wait("the state file", is_full, || self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room.wait("the state file", is_full, || self.file.write_all_at(data, offset))
    }

    fn close(&self) -> io::Result<()> {
        self.file.unlock()
    }
}
