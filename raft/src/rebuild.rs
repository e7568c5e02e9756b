//! A damaged state or snapshot, made anew from what is whole.
//!
//! Owns: the proof that nothing can be missing. The log is the durable truth, the state is what comes of it: as long as
//! the log reaches back to the beginning, or to a snapshot that is whole, a state can be thrown away. Must not: mend the
//! log, or guess. What was damaged is kept beside, under another name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, Room};
use crate::error::OpenError;
use crate::fatal::Fatal;
use crate::log::store::LogStore;
use crate::log::{LogError, LogOptions};
use crate::options::Options;
use crate::snapshot::{Reader, Shelf, SnapshotError};
use crate::state::{STATE_FILE, State};
use crate::statefile::{Backend, VERIFY_UP_TO, sync_parent};

/// State and log, opened together: each says what the other must have.
pub(crate) struct Parts<'a> {
    pub(crate) options: &'a Options,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) room: Arc<Room>,
    pub(crate) backend: Option<Backend>,
    pub(crate) shelf: &'a Shelf,
    pub(crate) fatal: Arc<Fatal>,
}

impl Parts<'_> {
    /// Opens both. A damaged state is made anew where that is safe.
    pub(crate) fn open(&self) -> Result<(State, LogStore), OpenError> {
        self.check_snapshot()?;
        let what = match State::open(self.options, self.backend.clone(), self.fatal.clone()) {
            Ok(state) => {
                let log = self.log(self.known_committed(&state)?, false)?;
                match log.purged() {
                    Some(purged) if state.applied().0.is_none_or(|applied| applied < purged) => {
                        drop((state, log));
                        format!("it lacks what the log no longer has, up to entry {}", purged.index)
                    }
                    _ => return Ok((state, log)),
                }
            }
            Err(OpenError::DamagedState { what, .. }) => what,
            Err(error) => return Err(error),
        };
        self.anew(what)
    }

    /// Where the log's end is torn, it must not end below what is known to be committed.
    fn known_committed(&self, state: &State) -> Result<Option<u64>, OpenError> {
        let applied = state.applied().0;
        let snapshot =
            self.shelf.current().map_err(|error| OpenError::State(format!("the snapshot: {error}")))?;
        // A state that came as a snapshot says nothing about the log: it may have come in its place.
        let installed = snapshot.is_some_and(|(meta, _)| meta.last_log_id >= applied);
        Ok(applied.filter(|_| !installed).map(|id| id.index))
    }

    fn log(&self, known_committed: Option<u64>, refuse_torn: bool) -> Result<LogStore, OpenError> {
        let fatal = self.fatal.clone();
        let options = LogOptions {
            segment_bytes: self.options.segment_bytes,
            known_committed,
            refuse_torn,
            room: Some(self.room.clone()),
            ..LogOptions::default()
        };
        let hook = Arc::new(move |error: &LogError| fatal.raise(format!("the log failed: {error}")));
        LogStore::open(self.disk.clone(), &self.options.dir.join("log"), options, hook)
            .map_err(|error| OpenError::Log(error.to_string()))
    }

    /// A damaged snapshot is only a copy of the state: it is laid aside, and built again when one is needed.
    fn check_snapshot(&self) -> Result<(), OpenError> {
        let checked = match self.shelf.current() {
            Ok(Some((_, found))) => {
                let small = found.file.metadata().is_ok_and(|file| file.len() <= VERIFY_UP_TO);
                let verify = || Reader::open(found.file, self.shelf.cluster_id())?.verify().map(drop);
                if small { verify() } else { Ok(()) }
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match checked {
            Err(SnapshotError::Damaged(what)) => {
                let path = self.shelf.current_path();
                let aside = lay_aside(&path, &self.options.dir.join("snapshot.damaged"))?;
                tracing::warn!(
                    file = %path.display(), what, kept_as = %aside.display(),
                    "the snapshot is damaged; it is laid aside, another is built when it is needed"
                );
                Ok(())
            }
            Err(error) => Err(OpenError::State(format!("the snapshot: {error}"))),
            Ok(()) => Ok(()),
        }
    }

    /// Throws a damaged state away, if log and snapshot have all that made it.
    fn anew(&self, what: String) -> Result<(State, LogStore), OpenError> {
        let path = self.options.dir.join(STATE_FILE);
        let log = self.log(None, true)?;
        let snapshot =
            self.shelf.current().map_err(|error| OpenError::State(format!("the snapshot: {error}")))?;
        let base = snapshot.as_ref().and_then(|(meta, _)| meta.last_log_id);
        if let Some(purged) = log.purged()
            && base.is_none_or(|base| base < purged)
        {
            let what = format!(
                "{what}; and no snapshot is here for the {} entries that the log has given up",
                purged.index
            );
            return Err(OpenError::DamagedState { file: path, what });
        }
        let aside = lay_aside(&path, &self.options.dir.join("state.redb.damaged"))?;
        let state = State::open(self.options, self.backend.clone(), self.fatal.clone())?;
        if let Some((_, found)) = snapshot {
            let broken = |error: SnapshotError| OpenError::State(format!("the snapshot: {error}"));
            let mut reader = Reader::open(found.file, self.shelf.cluster_id()).map_err(broken)?;
            let facts = reader.facts.clone();
            let filled = state.replace(facts, || reader.next_row().map_err(std::io::Error::other));
            filled.map_err(|error| OpenError::State(format!("the state from the snapshot: {error}")))?;
        }
        tracing::warn!(
            file = %path.display(), what, kept_as = %aside.display(), from = base.map_or(0, |id| id.index),
            "the state is damaged; it is made anew from snapshot and log, which are whole"
        );
        Ok((state, log))
    }
}

/// Gives a file another name, durably.
fn lay_aside(path: &Path, to: &Path) -> Result<PathBuf, OpenError> {
    std::fs::rename(path, to)
        .and_then(|()| sync_parent(path))
        .and_then(|()| sync_parent(to))
        .map_err(|source| OpenError::Io { what: path.display().to_string(), source })?;
    Ok(to.to_owned())
}
