//! openraft's storage suite over the real log and the real state, once as they are and once opened again before every
//! single call.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tempfile::TempDir;

use super::*;
use crate::disk::RealDisk;
use crate::log::LogOptions;
use crate::log::store::LogStore;
use crate::state::tests::{dump, entry, fatal, options};

fn machine(dir: &Path) -> Machine {
    let options = options(dir);
    let state = Arc::new(State::open(&options, None, fatal().0).unwrap());
    Machine::new(state, Shelf::open(dir.join("snapshots"), options.cluster_id).unwrap())
}

fn log(dir: &Path) -> LogStore {
    let options = LogOptions { segment_bytes: 1 << 16, ..LogOptions::default() };
    LogStore::open(Arc::new(RealDisk), &dir.join("log"), options, Arc::new(|error| panic!("{error}")))
        .unwrap()
}

struct Real;

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for Real {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let (log, machine) = (log(dir.path()), machine(dir.path()));
        Ok((dir, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_suite_passes() {
    Suite::test_all(Real).await.unwrap();
}

/// Flushed, closed and opened again before each call: what it answers must all be on the disk.
struct Reopened {
    dir: std::path::PathBuf,
    now: Mutex<Option<Machine>>,
}

impl Reopened {
    fn again(&self) -> Machine {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = now.take() {
            old.state.flush().unwrap();
        }
        now.insert(machine(&self.dir)).clone()
    }
}

impl RaftStateMachine<TypeConfig> for Reopened {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = ReopenedBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        self.again().applied_state().await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        self.again().apply(entries).await
    }

    async fn get_snapshot_builder(&mut self) -> ReopenedBuilder {
        ReopenedBuilder(Some(self.again()), self.dir.clone())
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotFile) -> io::Result<()> {
        self.again().install_snapshot(meta, snapshot).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        self.again().get_current_snapshot().await
    }
}

/// Lets go of the state before the next call opens it again.
struct ReopenedBuilder(Option<Machine>, std::path::PathBuf);

impl RaftSnapshotBuilder<TypeConfig> for ReopenedBuilder {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        match self.0.take() {
            Some(mut machine) => machine.build_snapshot().await,
            None => Err(io::Error::other(format!("built twice in {}", self.1.display()))),
        }
    }
}

struct Reopening;

impl StoreBuilder<TypeConfig, LogStore, Reopened, TempDir> for Reopening {
    async fn build(&self) -> Result<(TempDir, LogStore, Reopened), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let log = log(dir.path());
        let reopened = Reopened { dir: dir.path().to_owned(), now: Mutex::new(None) };
        Ok((dir, log, reopened))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_suite_passes_with_the_state_opened_again_before_each_call() {
    Suite::test_all(Reopening).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_the_new_state_and_its_snapshot_is_survived() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut from = machine(here.path());
    for n in 1..=30 {
        from.state.apply(&[entry(n, &[(n as u8, Some(1))])]).unwrap();
    }
    let snapshot = from.build_snapshot().await.unwrap();
    let to = machine(there.path());
    let incoming = to.shelf.part_path(&[7; 32]);
    std::fs::copy(&snapshot.snapshot.path, &incoming).unwrap();
    let mut reader = Reader::open(File::open(&incoming).unwrap(), to.shelf.cluster_id()).unwrap();
    let facts = reader.facts.clone();
    to.state.replace(facts, || reader.next_row().map_err(io::Error::other)).unwrap();
    // Here it crashes: the state is new, the snapshot still has its scratch name.
    drop((to, reader));
    let mut again = machine(there.path());
    assert!(again.get_current_snapshot().await.unwrap().is_none());
    assert_eq!(again.applied_state().await.unwrap().0, snapshot.meta.last_log_id);
    assert_eq!(dump(&again.state.view()), dump(&from.state.view()));
}
