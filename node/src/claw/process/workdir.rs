//! The working directory of one attempt: `work/<run>-<task>-<attempt>`, empty when it starts and gone after it. A
//! directory that an attempt leaves as it found it is kept under another name and renamed for a later attempt: making and
//! removing one costs ten times the CPU, and waits for the disk while others fsync.

use super::super::logs::AttemptId;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest content of CLAWHIVE_OUTPUT.
pub(crate) const MAX_OUTPUT: usize = 64 * 1024;

const OUTPUT: &str = ".clawhive-output";

/// Empty directories that are kept.
const MAX_SPARE: usize = 64;

/// All working directories of this node.
pub(super) struct WorkDirs {
    parent: PathBuf,
    spare: Mutex<Vec<Spare>>,
    next: AtomicU64,
}

struct Spare {
    path: PathBuf,
    /// Mode and owner when it was made.
    made: (u32, u32, u32),
}

impl WorkDirs {
    /// Below this directory, which must be absolute and without links.
    pub(super) fn new(parent: PathBuf) -> Arc<Self> {
        Arc::new(Self { parent, spare: Mutex::default(), next: AtomicU64::new(0) })
    }

    pub(super) fn parent(&self) -> &Path {
        &self.parent
    }

    pub(super) fn create(self: &Arc<Self>, id: AttemptId) -> io::Result<WorkDir> {
        let path = self.parent.join(id.to_string());
        let output = path.join(OUTPUT);
        let spare = self.spare().pop();
        // A rename onto something that is not an empty directory fails; then all is made anew.
        if let Some(Spare { path: old, made }) = spare
            && std::fs::rename(&old, &path).is_ok()
        {
            return Ok(WorkDir { dirs: self.clone(), path, output, made });
        }
        let mut builder = DirBuilder::new();
        builder.mode(0o750);
        match builder.create(&path) {
            // Left by an attempt that could not be cleaned up.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_dir_all(&path)?;
                builder.create(&path)?;
            }
            other => other?,
        }
        let made = mode_and_owner(&path)?;
        Ok(WorkDir { dirs: self.clone(), path, output, made })
    }

    /// Removes everything that an earlier process left. Before anything is created.
    pub(super) fn clean_up(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.parent)? {
            let path = entry?.path();
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot remove an old working directory");
            }
        }
        Ok(())
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkDirs {
    fn drop(&mut self) {
        for spare in self.spare().drain(..) {
            // What stays is removed at the next start.
            drop(std::fs::remove_dir(&spare.path));
        }
    }
}

fn mode_and_owner(path: &Path) -> io::Result<(u32, u32, u32)> {
    let data = std::fs::metadata(path)?;
    Ok((data.mode(), data.uid(), data.gid()))
}

pub(super) struct WorkDir {
    dirs: Arc<WorkDirs>,
    path: PathBuf,
    output: PathBuf,
    made: (u32, u32, u32),
}

impl WorkDir {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file for CLAWHIVE_OUTPUT; the task makes it.
    pub(super) fn output(&self) -> &Path {
        &self.output
    }

    /// What the task wrote; empty when it wrote nothing. Never follows a link, never waits on a pipe, never takes more
    /// than the limit into memory.
    pub(super) fn read_output(&self) -> Result<Vec<u8>, String> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let file = match File::options().read(true).custom_flags(flags.cast_signed()).open(&self.output) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| format!("cannot read the file of CLAWHIVE_OUTPUT: {error}"))?,
        };
        let data =
            file.metadata().map_err(|error| format!("cannot read the file of CLAWHIVE_OUTPUT: {error}"))?;
        if !data.is_file() {
            return Err("CLAWHIVE_OUTPUT is not a regular file any more".to_owned());
        }
        let mut bytes = Vec::new();
        file.take(MAX_OUTPUT as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| format!("cannot read the file of CLAWHIVE_OUTPUT: {error}"))?;
        if bytes.len() > MAX_OUTPUT {
            return Err(format!("the output is larger than {MAX_OUTPUT} bytes ({} written)", data.len()));
        }
        Ok(bytes)
    }

    /// Removes the directory with all that is in it.
    pub(super) fn remove(self) {
        if self.keep() {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the working directory of an attempt");
        }
    }

    /// Keeps it for a later attempt when it is as it was made.
    fn keep(&self) -> bool {
        // Nearly all that write anything write only this.
        drop(std::fs::remove_file(&self.output));
        let empty = std::fs::read_dir(&self.path).is_ok_and(|mut entries| entries.next().is_none());
        let same = mode_and_owner(&self.path).is_ok_and(|now| now == self.made);
        if !empty || !same || self.dirs.spare().len() >= MAX_SPARE {
            return false;
        }
        let number = self.dirs.next.fetch_add(1, Ordering::Relaxed);
        let path = self.dirs.parent.join(format!("spare-{number}"));
        if std::fs::rename(&self.path, &path).is_err() {
            return false;
        }
        self.dirs.spare().push(Spare { path, made: self.made });
        true
    }
}
