//! Where the logs lie, and which of them are being written by this process.

use super::writer::{LogWriter, Progress};
use super::{AttemptId, Clock, LogError, LogQuery, LogReader};
use crate::storage::Space;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// All attempt logs of this node. Cheap to clone.
#[derive(Clone)]
pub struct LogStore {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    clock: Clock,
    space: Option<Arc<Space>>,
    open: Mutex<HashMap<AttemptId, watch::Receiver<Progress>>>,
}

impl LogStore {
    /// The store in this directory, which is made when missing.
    pub fn open(dir: impl Into<PathBuf>, clock: Clock) -> io::Result<Self> {
        Self::bounded(dir, clock, None)
    }

    /// As [`LogStore::open`]; output is dropped, with a mark, before the volume is full.
    pub fn bounded(dir: impl Into<PathBuf>, clock: Clock, space: Option<Arc<Space>>) -> io::Result<Self> {
        let dir = dir.into();
        std::fs::create_dir_all(&dir)?;
        Ok(Self { inner: Arc::new(Inner { dir, clock, space, open: Mutex::default() }) })
    }

    /// Whether the disk has room for so much output.
    pub(super) fn allows(&self, bytes: usize) -> bool {
        self.inner.space.as_ref().is_none_or(|space| space.allows_output(bytes))
    }

    /// The one writer of an attempt's log. No file is made before the first byte.
    pub(crate) fn writer(&self, id: AttemptId) -> LogWriter {
        let (progress, seen) = watch::channel(Progress::default());
        self.lock().insert(id, seen);
        LogWriter::new(self.clone(), id, progress)
    }

    /// Reads a log from a place on. An attempt without output, or without a log on this node, has an empty one. With
    /// `follow` the reader ends when the writer closes; it does not wait for a writer that has not opened yet.
    pub fn read(&self, query: LogQuery) -> Result<LogReader, LogError> {
        let id = query.id();
        // Before the file is looked at: a writer that closes meanwhile has then written everything.
        let progress = self.lock().get(&id).cloned();
        LogReader::new(self.path(id), progress, query)
    }

    /// Deletes all logs of a run.
    pub fn drop_run(&self, run: u64) -> io::Result<()> {
        match std::fs::remove_dir_all(self.run_dir(run)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Runs that have logs here, in no order.
    pub fn runs(&self) -> io::Result<Vec<u64>> {
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(&self.inner.dir)? {
            if let Some(run) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    pub(super) fn now_ms(&self) -> u64 {
        (self.inner.clock)()
    }

    pub(super) fn run_dir(&self, run: u64) -> PathBuf {
        self.inner.dir.join(run.to_string())
    }

    pub(super) fn path(&self, id: AttemptId) -> PathBuf {
        self.run_dir(id.run).join(Path::new(&format!("{}-{}.log", id.task, id.attempt)))
    }

    pub(super) fn forget(&self, id: AttemptId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<AttemptId, watch::Receiver<Progress>>> {
        // The map is whole after every operation, so a panic elsewhere leaves it usable.
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
