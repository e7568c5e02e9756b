//! The state as openraft's state machine.
//!
//! Owns: taking batches from openraft, answering entries, building and installing snapshots. Must not: keep openraft's
//! workers busy; what takes long goes to a thread of its own.

use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder, Snapshot};

use crate::background;
use crate::snapshot::{self, Reader, Shelf, SnapshotError, SnapshotFile};
use crate::state::State;
use crate::statefile::remove_if_there;
use crate::types::{LogEntry, LogId, SnapshotMeta, StoredMembership, TypeConfig};

/// A batch at most this long is applied where it arrives: handing it to a thread would take longer.
const INLINE_ENTRIES: usize = 16;
/// Entries that become visible together, at most: bounds how long a view is behind what is applied.
const BATCH_ENTRIES: usize = 256;

/// How often a full disk is looked at again.
const ROOM: Duration = Duration::from_secs(2);

/// A snapshot in openraft's terms.
pub(crate) type RaftSnapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>;

/// openraft's handle of the state.
#[derive(Clone)]
pub(crate) struct Machine {
    state: Arc<State>,
    shelf: Shelf,
}

impl Machine {
    pub(crate) fn new(state: Arc<State>, shelf: Shelf) -> Machine {
        Machine { state, shelf }
    }

    /// A thread of its own for what takes long.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machine) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let machine = self.clone();
        match tokio::task::spawn_blocking(move || work(&machine)).await {
            Ok(done) => done,
            Err(error) => {
                self.state.fatal.raise(format!("a storage thread failed: {error}"));
                Err(io::Error::other(error))
            }
        }
    }

    async fn apply_batch(&self, batch: Vec<EntryResponder<TypeConfig>>) -> io::Result<()> {
        let (entries, responders): (Vec<LogEntry>, Vec<_>) = batch.into_iter().unzip();
        let applied = if entries.len() <= INLINE_ENTRIES && self.state.has_room() {
            self.state.apply(&entries)?
        } else {
            self.aside(move |machine| machine.state.apply(&entries)).await?
        };
        self.state.answered(applied, |outcomes| {
            for (responder, outcome) in responders.into_iter().zip(outcomes) {
                if let Some(responder) = responder {
                    responder.send(outcome);
                }
            }
        });
        Ok(())
    }

    /// Bulk work, which everything else goes before.
    async fn behind<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&Machine) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let machine = self.clone();
        background::run(what, move || work(&machine)).await?
    }

    async fn build(&self) -> io::Result<RaftSnapshot> {
        // Not in the background: apply may come to wait for this flush.
        let durable = self.aside(|machine| machine.state.flushed()).await?;
        self.behind("clawhive-build", move |machine| {
            let scratch = machine.shelf.scratch("building.snap");
            let written = snapshot::write(&scratch, machine.shelf.cluster_id(), &durable);
            if let Err(error) = written {
                // The room it took is needed by others.
                let _removed_at_next_start = remove_if_there(&scratch);
                return Err(error);
            }
            machine.shelf.put(&scratch, durable.facts.applied).map_err(io::Error::other)?;
            let index = durable.facts.applied.map_or(0, |id| id.index);
            tracing::info!(index, "a snapshot is built");
            machine.current()?.ok_or_else(|| io::Error::other("the snapshot just built is gone"))
        })
        .await
    }

    /// The result, unless the disk was full: then waits a while, and it is to be done again. Nothing of the old state has
    /// changed, and room may come back.
    async fn unless_full<T>(&self, what: &str, done: io::Result<T>) -> Option<io::Result<T>> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                if let Err(stopped) = self.state.fatal.check() {
                    return Some(Err(stopped));
                }
                tracing::warn!(%error, "{what} waits until there is room on the disk");
                tokio::time::sleep(ROOM).await;
                None
            }
            done => Some(done),
        }
    }

    fn current(&self) -> io::Result<Option<RaftSnapshot>> {
        let current = self.shelf.current().map_err(io::Error::other)?;
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }

    fn install(&self, mut file: File, path: &Path) -> Result<(), SnapshotError> {
        file.rewind()?;
        let mut reader = Reader::open(file, self.shelf.cluster_id())?;
        let facts = reader.facts.clone();
        self.state.replace(facts.clone(), || {
            reader.next_row().map_err(|error| match error {
                SnapshotError::Io(error) => error,
                other => io::Error::other(other),
            })
        })?;
        if path.exists() {
            self.shelf.put(path, facts.applied)?;
        }
        Ok(())
    }

    /// A storage error ends the replica: openraft would stop, and the process would stay up without it.
    fn fatal<T>(&self, what: &str, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.state.fatal.raise(format!("{what}: {error}"));
        }
        result
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok(self.state.applied())
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut batches = entries.ready_chunks(BATCH_ENTRIES);
        while let Some(batch) = batches.next().await {
            let batch: io::Result<Vec<_>> = batch.into_iter().collect();
            let batch = self.fatal("reading the log to apply it failed", batch)?;
            let applied = self.apply_batch(batch).await;
            self.fatal("applying failed", applied)?;
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, _meta: &SnapshotMeta, snapshot: SnapshotFile) -> io::Result<()> {
        let SnapshotFile { path, file } = snapshot;
        let installed = loop {
            let (again, path) = (file.try_clone()?, path.clone());
            let installed = self.behind("clawhive-install", move |machine| {
                machine.install(again, &path).map_err(|error| match error {
                    SnapshotError::Io(error) => error,
                    other => io::Error::other(other),
                })
            });
            if let Some(done) = self.unless_full("installing a snapshot", installed.await).await {
                break done;
            }
        };
        self.fatal("installing a snapshot failed", installed)
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        let current = self.aside(Machine::current).await;
        self.fatal("reading the snapshot failed", current)
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        let built = loop {
            let built = self.build().await;
            if let Some(done) = self.unless_full("building a snapshot", built).await {
                break done;
            }
        };
        self.fatal("building a snapshot failed", built)
    }
}

/// Opens a received snapshot that was found good.
pub(crate) fn received(path: std::path::PathBuf) -> io::Result<SnapshotFile> {
    Ok(SnapshotFile { file: File::open(&path)?, path })
}

#[cfg(test)]
mod tests;
