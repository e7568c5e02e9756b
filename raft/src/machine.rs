//! The state as openraft's state machine.
//!
//! Owns: taking batches from openraft, answering entries, building and installing snapshots. Must not: keep openraft's
//! workers busy; what takes long goes to a thread of its own.

use std::fs::File;
use std::io::{self, Seek};
use std::sync::Arc;

use futures::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{OptionalSend, RaftSnapshotBuilder, Snapshot};

use crate::disk::{Room, is_full};
use crate::snapshot::{self, Reader, Shelf, SnapshotError, SnapshotFile};
use crate::state::State;
use crate::types::{LogEntry, LogId, SnapshotMeta, StoredMembership, TypeConfig};

/// A batch at most this long is applied where it arrives: handing it to a thread would take longer.
const INLINE_ENTRIES: usize = 16;
/// Entries that become visible together, at most: bounds how long a view is behind what is applied.
const BATCH_ENTRIES: usize = 256;

/// A snapshot in openraft's terms.
pub(crate) type RaftSnapshot = openraft::alias::SnapshotOf<TypeConfig, SnapshotFile>;

/// openraft's handle of the state.
#[derive(Clone)]
pub(crate) struct Machine {
    state: Arc<State>,
    shelf: Shelf,
    /// Where a snapshot in the making waits on a full disk.
    room: Arc<Room>,
}

impl Machine {
    pub(crate) fn new(state: Arc<State>, shelf: Shelf) -> Machine {
        Machine { state, shelf, room: Arc::default() }
    }

    /// Lets it wait there for room on a full disk, instead of failing.
    pub(crate) fn with_room(mut self, room: Arc<Room>) -> Machine {
        self.room = room;
        self
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

    fn build(&self) -> io::Result<RaftSnapshot> {
        let durable = self.state.flushed()?;
        let scratch = self.shelf.scratch("building.snap");
        self.room
            .wait("a snapshot", is_full, || snapshot::write(&scratch, self.shelf.cluster_id(), &durable))?;
        self.shelf.put(&scratch, durable.facts.applied).map_err(io::Error::other)?;
        self.current()?.ok_or_else(|| io::Error::other("the snapshot just built is gone"))
    }

    fn current(&self) -> io::Result<Option<RaftSnapshot>> {
        let current = self.shelf.current().map_err(io::Error::other)?;
        Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }

    fn install(&self, mut snapshot: SnapshotFile) -> Result<(), SnapshotError> {
        snapshot.file.rewind()?;
        let mut reader = Reader::open(snapshot.file, self.shelf.cluster_id())?;
        let facts = reader.facts.clone();
        self.state.replace(facts.clone(), || reader.next_row().map_err(io::Error::other))?;
        if snapshot.path.exists() {
            self.shelf.put(&snapshot.path, facts.applied)?;
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
        let installed = self.aside(move |machine| machine.install(snapshot).map_err(io::Error::other)).await;
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
        let built = self.aside(Machine::build).await;
        self.fatal("building a snapshot failed", built)
    }
}

/// Opens a received snapshot that was found good.
pub(crate) fn received(path: std::path::PathBuf) -> io::Result<SnapshotFile> {
    Ok(SnapshotFile { file: File::open(&path)?, path })
}

#[cfg(test)]
mod tests;
