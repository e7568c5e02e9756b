//! The operating system's files.
//!
//! Owns: the mapping of [`Disk`] to system calls. Must not: hide an error or skip a sync.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::{Disk, DiskFile};

/// The real file system. All values of this type are the same disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

struct RealFile(File);

impl Disk for RealDisk {
    fn id(&self) -> u64 {
        0
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // A name that isn't UTF-8 is not one of ours.
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        // fdatasync, through the C library like every other call here: a test that slows it down slows this too.
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        if self.size()? >= len {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // Not every file system reserves space; there the length must do.
            Err(rustix::io::Errno::OPNOTSUPP) => self.0.set_len(len),
            Err(error) => Err(error.into()),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::read_full;

    #[test]
    fn files_live_through_write_rename_and_list() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = RealDisk;
        let sub = dir.path().join("a/b");
        disk.create_dir(&sub).expect("create_dir");
        let file = disk.create(&sub.join("x")).expect("create");
        assert!(disk.create(&sub.join("x")).is_err(), "create must refuse a name in use");
        file.reserve(4096).expect("reserve");
        file.write_at(b"hello", 10).expect("write");
        file.sync_data().expect("sync");
        disk.rename(&sub.join("x"), &sub.join("y")).expect("rename");
        disk.sync_dir(&sub).expect("sync_dir");
        assert_eq!(disk.list(&sub).expect("list"), ["y"]);
        let mut buf = [1; 20];
        let again = disk.open(&sub.join("y")).expect("open");
        assert_eq!(read_full(&*again, &mut buf, 0).expect("read"), 20);
        assert_eq!(&buf[10..15], b"hello");
        again.set_len(12).expect("set_len");
        assert_eq!(read_full(&*again, &mut buf, 0).expect("read"), 12);
        assert_eq!(&buf[10..], [b'h', b'e', 0, 0, 0, 0, 0, 0, 0, 0]);
        disk.remove(&sub.join("y")).expect("remove");
        assert!(disk.list(&sub).expect("list").is_empty());
    }
}
