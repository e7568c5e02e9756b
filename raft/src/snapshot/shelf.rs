//! The directory of snapshots: one current; others only while they are made, and parts of one that is being received.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Reader, SnapshotError, SnapshotFile};
use crate::codec;
use crate::statefile::{remove_if_there, sync_parent};
use crate::types::{LogId, SnapshotMeta};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    dir: PathBuf,
    cluster_id: [u8; 16],
}

/// What is there of a snapshot whose transfer broke off.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    /// SHA-256 of these bytes.
    pub(crate) hash: [u8; 32],
}

impl Part {
    /// The first `bytes` of a file.
    pub(crate) fn of(file: &File, bytes: u64) -> io::Result<Part> {
        let mut from = file.try_clone()?;
        from.rewind()?;
        let mut left = from.take(bytes);
        let (mut hash, mut buffer, mut read) = (Sha256::new(), vec![0; 1 << 18], 0);
        loop {
            match left.read(&mut buffer)? {
                0 => return Ok(Part { bytes: read, hash: hash.finalize().into() }),
                some => {
                    hash.update(&buffer[..some]);
                    read += some as u64;
                }
            }
        }
    }
}

impl Shelf {
    /// Opens the directory and removes what a crash left half done. A part of a snapshot that was being received stays:
    /// its sender may go on with it.
    pub(crate) fn open(dir: PathBuf, cluster_id: [u8; 16]) -> io::Result<Shelf> {
        std::fs::create_dir_all(&dir)?;
        sync_parent(&dir)?;
        let shelf = Shelf { dir, cluster_id };
        for entry in std::fs::read_dir(&shelf.dir)? {
            let path = entry?.path();
            if path != shelf.current_path() && !is_part(&path) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(shelf)
    }

    fn current_path(&self) -> PathBuf {
        self.dir.join("current.snap")
    }

    /// A name for a snapshot in the making.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn cluster_id(&self) -> &[u8; 16] {
        &self.cluster_id
    }

    /// Where the bytes of an incoming snapshot are kept.
    pub(crate) fn part_path(&self, id: &[u8]) -> PathBuf {
        let name = codec::hex(&id[..id.len().min(8)]);
        self.dir.join(format!("{PART}{name}.snap"))
    }

    /// What is there of a snapshot.
    pub(crate) fn part(&self, id: &[u8], most: u64) -> io::Result<Part> {
        match File::open(self.part_path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Part { bytes: 0, hash: Sha256::digest([]).into() })
            }
            file => Part::of(&file?, most),
        }
    }

    /// The file that takes the bytes of a snapshot from `offset` on. Parts of others are given up.
    pub(crate) fn go_on(&self, id: &[u8], offset: u64) -> io::Result<File> {
        let path = self.part_path(id);
        self.drop_parts(Some(&path))?;
        let mut file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(&path)?;
        if file.metadata()?.len() < offset {
            return Err(io::Error::other(format!("the first {offset} bytes are not here any more")));
        }
        file.set_len(offset)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(file)
    }

    /// Removes parts of incoming snapshots, but for one.
    pub(crate) fn drop_parts(&self, but: Option<&Path>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if is_part(&path) && Some(path.as_path()) != but {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    /// Makes a complete, synced snapshot the current one, unless that is newer.
    pub(crate) fn put(&self, path: &Path, last: Option<LogId>) -> Result<(), SnapshotError> {
        if let Some((meta, _)) = self.current()?
            && meta.last_log_id > last
        {
            std::fs::remove_file(path)?;
            return Ok(());
        }
        let current = self.current_path();
        std::fs::rename(path, &current)?;
        sync_parent(&current)?;
        Ok(())
    }

    /// The current snapshot, open: it stays readable even when another takes its place.
    pub(crate) fn current(&self) -> Result<Option<(SnapshotMeta, SnapshotFile)>, SnapshotError> {
        let path = self.current_path();
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let meta = Reader::open(file.try_clone()?, &self.cluster_id)?.meta();
        file.rewind()?;
        Ok(Some((meta, SnapshotFile { path, file })))
    }
}

const PART: &str = "part-";

fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PART))
}
