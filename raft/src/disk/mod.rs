//! The file layer under the Raft log: what it needs of a file system, as two small traits.
//!
//! Owns: the traits, the real file system behind them ([`RealDisk`]) and a simulated one ([`SimDisk`]).
//! Must not: know what is written. Nothing here retries, buffers or repairs; an error goes up as it came.

use std::io;
use std::path::Path;
use std::sync::Arc;

mod real;
mod room;
mod sim;
mod sim_file;

pub use real::RealDisk;
pub use room::{Room, is_full};
pub use sim::{Fault, SimDisk};
pub use sim_file::Tear;

/// The smallest unit a disk writes whole: after a power cut a sector holds its old or its new bytes.
pub const SECTOR: usize = 512;

/// A directory tree of files. Paths mean what the implementation says; only exact names are used.
pub trait Disk: Send + Sync + 'static {
    /// Tells disks apart that know the same path: two opens of one path on one disk are refused by it.
    fn id(&self) -> u64;

    /// Makes a directory, and those above it; no error if it is there.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes an empty file for reading and writing. The name is durable only after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `AlreadyExists`, or whatever the disk says.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that exists for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, or whatever the disk says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// The names of the files in a directory, sorted.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Gives a file another name, atomically replacing what has that name.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name; open handles go on.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// An open file. All methods take `&self`: the log has one writer but many readers.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads at most `buf.len()` bytes; fewer, down to zero, only at the end of the file.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`. Not durable before [`DiskFile::sync_data`].
    ///
    /// # Errors
    /// Whatever the disk says; then any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes everything written before durable, with the length of the file. After an error nothing is
    /// known of what was written, and asking again would lie: the caller must give up the file.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn sync_data(&self) -> io::Result<()>;

    /// Cuts or extends the file; an extension reads as zeroes.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Extends the file to at least `len` with its space reserved, so that later writes can't lack it.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn reserve(&self, len: u64) -> io::Result<()>;

    /// The length of the file.
    ///
    /// # Errors
    /// Whatever the disk says.
    fn size(&self) -> io::Result<u64>;
}

/// Reads until `buf` is full or the file ends; the rest of `buf` is zeroes. Returns what the file had.
///
/// # Errors
/// Whatever the disk says.
pub fn read_full(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    buf[done..].fill(0);
    Ok(done)
}
