//! openraft's storage suite over the log: on the real disk, on a simulated one, and with the power cut and
//! the log opened again before every single call.

use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use openraft::storage::{
    EntryResponder, IOFlushed, LogState, RaftLogReader, RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine,
};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{EntryPayload, OptionalSend, StorageError};

use super::{Drive, FatalHook, LogOptions, LogStore, decode, encode};
use crate::disk::{Disk, RealDisk, SimDisk, Tear};
use crate::types::{self, LogId, Node, SnapshotMeta, StoredMembership, TypeConfig, Vote, log_id};

/// Remembers only what was applied: the suite needs a state machine, this test doesn't.
#[derive(Clone, Default)]
struct Applied {
    last: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<SnapshotMeta>,
}

type Snapshot = openraft::alias::SnapshotOf<TypeConfig, ()>;

#[derive(Clone, Default)]
struct Machine(Arc<Mutex<Applied>>);

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let mut applied = self.0.lock().expect("not poisoned");
        let meta = SnapshotMeta { last_log_id: applied.last, last_membership: applied.membership.clone() };
        applied.snapshot = Some(meta.clone());
        Ok(Snapshot { meta, snapshot: () })
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = ();
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let applied = self.0.lock().expect("not poisoned");
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: futures::Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            let (entry, _) = entry?;
            let mut applied = self.0.lock().expect("not poisoned");
            applied.last = Some(entry.log_id);
            if let EntryPayload::Membership(membership) = entry.payload {
                applied.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, (): ()) -> io::Result<()> {
        let mut applied = self.0.lock().expect("not poisoned");
        applied.last = meta.last_log_id;
        applied.membership = meta.last_membership.clone();
        applied.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        let meta = self.0.lock().expect("not poisoned").snapshot.clone();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: () }))
    }
}

fn never_fatal() -> FatalHook {
    Arc::new(|error| panic!("the log failed: {error}"))
}

/// Small enough that the suite rolls over segments and reads entries back from files.
fn small(drive: Drive) -> LogOptions {
    LogOptions { segment_bytes: 8192, tail_bytes: 300, read_bytes: 1000, drive, ..LogOptions::default() }
}

fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> LogStore {
    LogStore::open(disk, dir, options, never_fatal()).expect("the log opens")
}

struct OnRealDisk(LogOptions);

impl StoreBuilder<TypeConfig, LogStore, Machine, tempfile::TempDir> for OnRealDisk {
    async fn build(&self) -> Result<(tempfile::TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().expect("a directory");
        let log = open(Arc::new(RealDisk), &dir.path().join("log"), self.0.clone());
        Ok((dir, log, Machine::default()))
    }
}

struct OnSimDisk;

impl StoreBuilder<TypeConfig, LogStore, Machine, ()> for OnSimDisk {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError<TypeConfig>> {
        let log = open(Arc::new(SimDisk::new()), Path::new("/log"), small(Drive::Inline));
        Ok(((), log, Machine::default()))
    }
}

/// Cuts the power and opens the log again before each call.
#[derive(Clone)]
struct Reopened {
    now: Arc<Mutex<(SimDisk, LogStore)>>,
    tear: Tear,
}

impl Reopened {
    fn again(&self) -> LogStore {
        let mut now = self.now.lock().expect("not poisoned");
        let disk = now.0.after_cut(self.tear);
        let log = open(Arc::new(disk.clone()), Path::new("/log"), small(Drive::Inline));
        *now = (disk, log.clone());
        log
    }
}

impl RaftLogReader<TypeConfig> for Reopened {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<types::LogEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.again().try_get_log_entries(range).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        self.again().read_vote().await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<types::LogEntry>> {
        self.again().limited_get_log_entries(start, end).await
    }
}

impl RaftLogStorage<TypeConfig> for Reopened {
    type LogReader = Reopened;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        self.again().get_log_state().await
    }

    async fn get_log_reader(&mut self) -> Reopened {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.again().save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.again().save_committed(committed).await
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        self.again().read_committed().await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = types::LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.again().append(entries, callback).await
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        self.again().truncate_after(last_log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        self.again().purge(log_id).await
    }
}

impl StoreBuilder<TypeConfig, Reopened, Machine, ()> for Tear {
    async fn build(&self) -> Result<((), Reopened, Machine), StorageError<TypeConfig>> {
        let disk = SimDisk::new();
        let log = open(Arc::new(disk.clone()), Path::new("/log"), small(Drive::Inline));
        let log = Reopened { now: Arc::new(Mutex::new((disk, log))), tear: *self };
        Ok(((), log, Machine::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn suite_on_the_real_disk() {
    Suite::test_all(OnRealDisk(small(Drive::Threads))).await.expect("the suite passes");
}

#[tokio::test(start_paused = true)]
async fn suite_on_the_real_disk_all_in_memory() {
    let options = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
    Suite::test_all(OnRealDisk(options)).await.expect("the suite passes");
}

#[tokio::test(start_paused = true)]
async fn suite_on_a_simulated_disk() {
    Suite::test_all(OnSimDisk).await.expect("the suite passes");
}

#[tokio::test(start_paused = true)]
async fn suite_with_a_kill_before_every_call() {
    Suite::test_all(Tear::KeepAll).await.expect("the suite passes");
}

#[tokio::test(start_paused = true)]
async fn suite_with_a_power_cut_before_every_call() {
    Suite::test_all(Tear::LoseAll).await.expect("the suite passes");
}

#[tokio::test(start_paused = true)]
async fn suite_with_a_torn_power_cut_before_every_call() {
    Suite::test_all(Tear::Sectors(7)).await.expect("the suite passes");
}

fn with_payload(payload: types::Payload) -> types::LogEntry {
    types::LogEntry { log_id: log_id(3, 4, 5), payload }
}

#[test]
fn entries_of_every_kind_come_back() {
    let nodes = [1, 2, 9].map(|id| (id, Node { addr: format!("10.0.0.{id}:7000") }));
    let configs = vec![[1, 2].into(), [2].into()];
    let membership = types::Membership::new(configs, std::collections::BTreeMap::from(nodes)).expect("valid");
    for payload in [
        EntryPayload::Blank,
        EntryPayload::Normal(types::EntryBytes(bytes::Bytes::from_static(b"commands"))),
        EntryPayload::Membership(membership),
    ] {
        let entry = with_payload(payload);
        assert_eq!(decode(encode(entry.clone())).expect("decodes"), entry);
    }
    let mut unknown = encode(with_payload(EntryPayload::Blank));
    unknown.tag = 77;
    assert_eq!(decode(unknown).expect_err("refused").kind(), io::ErrorKind::InvalidData);
}

#[tokio::test]
async fn a_stream_gives_every_entry_in_pieces_and_close_refuses_what_comes_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = open(Arc::new(RealDisk), dir.path(), small(Drive::Threads));
    for index in 1..=200 {
        let bytes = bytes::Bytes::from(vec![index as u8; 100]);
        let payload = EntryPayload::Normal(types::EntryBytes(bytes));
        let entry = types::LogEntry { log_id: log_id(1, 1, index), payload };
        log.append([entry], IOFlushed::noop()).await.expect("appends");
    }
    let indexes: Vec<u64> =
        log.entries_stream(17..).await.map(|entry| entry.expect("reads").log_id.index).collect().await;
    assert_eq!(indexes, (17..=200).collect::<Vec<_>>());
    let limited = log.limited_get_log_entries(1, 201).await.expect("reads");
    assert!((1..50).contains(&limited.len()), "{} entries are not what was asked for", limited.len());
    log.close().await.expect("closes");
    log.close().await.expect("closing twice is closing");
    let late = log.save_vote(&Vote::new(1, 1)).await.expect_err("closed");
    assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
}
