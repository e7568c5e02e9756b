//! The working directory of one attempt: `work/<run>-<task>-<attempt>`, made for it and removed after it.

use super::super::logs::AttemptId;
use rustix::fs::OFlags;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest content of CLAWHIVE_OUTPUT.
pub(crate) const MAX_OUTPUT: usize = 64 * 1024;

const OUTPUT: &str = ".clawhive-output";

pub(super) struct WorkDir {
    path: PathBuf,
    output: PathBuf,
}

impl WorkDir {
    pub(super) fn path_in(parent: &Path, id: AttemptId) -> PathBuf {
        parent.join(id.to_string())
    }

    pub(super) fn create(parent: &Path, id: AttemptId) -> io::Result<Self> {
        let path = Self::path_in(parent, id);
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
        let output = path.join(OUTPUT);
        Ok(Self { path, output })
    }

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
        // Nearly always it is empty: one call.
        if std::fs::remove_dir(&self.path).is_ok() {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the working directory of an attempt");
        }
    }
}
