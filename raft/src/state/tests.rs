//! The state against a model, through crashes and over failing disks. No flusher runs here: the tests say when.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clawhive_proto::{Command, DeleteKey, Entry, PutKey, command};
use clawhive_statemachine::{MemStore, ReadStore, Table};
use proptest::prelude::*;

use super::*;
use crate::rowkey::RowKey;
use crate::types::{EntryBytes, log_id};

/// Every row of every table.
pub(crate) fn dump(view: &dyn ReadStore) -> Vec<(Table, Vec<u8>, Bytes)> {
    let mut rows = Vec::new();
    for table in Table::ALL {
        view.scan(table, &[], None, &mut |key, value| {
            rows.push((table, key.to_vec(), value.clone()));
            ControlFlow::Continue(())
        });
    }
    rows
}

pub(crate) fn options(dir: &Path) -> Options {
    Options {
        dir: dir.to_owned(),
        node_id: 1,
        cluster_id: [9; 16],
        cache_bytes: 1 << 20,
        ..Options::default()
    }
}

/// Collects why the replica would have died.
pub(crate) fn fatal() -> (Arc<Fatal>, Arc<Mutex<Vec<String>>>) {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let told = reasons.clone();
    (Arc::new(Fatal::new(Arc::new(move |reason| told.lock().unwrap().push(reason.to_owned())))), reasons)
}

pub(crate) fn open(dir: &Path) -> State {
    State::open(&options(dir), None, fatal().0).unwrap()
}

/// One entry: puts where there is a value, deletes where there is none.
pub(crate) fn entry(index: u64, changes: &[(u8, Option<u8>)]) -> LogEntry {
    let commands = changes.iter().map(|(key, value)| {
        let (namespace, key) = ("n".to_owned(), format!("key-{key}"));
        let kind = match value {
            Some(value) => command::Kind::PutKey(PutKey { namespace, key, value: vec![*value; 40].into() }),
            None => command::Kind::DeleteKey(DeleteKey { namespace, key }),
        };
        Command { kind: Some(kind) }
    });
    let entry = Entry {
        version: 1,
        time_ms: 1_000 + index,
        request_id: u128::from(index).to_be_bytes().to_vec(),
        actor: "test".to_owned(),
        commands: commands.collect(),
    };
    LogEntry {
        log_id: log_id(1, 1, index),
        payload: EntryPayload::Normal(EntryBytes(entry.encode_to_vec().into())),
    }
}

pub(crate) fn model(entries: &[LogEntry]) -> Vec<(Table, Vec<u8>, Bytes)> {
    let mut store = MemStore::default();
    for entry in entries {
        let EntryPayload::Normal(data) = &entry.payload else { continue };
        let decoded = Entry::decode(data.0.clone()).unwrap();
        clawhive_statemachine::apply(&mut store, entry.log_id.index, &decoded).unwrap();
    }
    dump(&store)
}

fn changes() -> impl Strategy<Value = Vec<(u8, Option<u8>)>> {
    prop::collection::vec((0..12u8, prop::option::of(any::<u8>())), 0..4)
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<Vec<(u8, Option<u8>)>>),
    Flush,
    /// As after a crash: what was not flushed is applied again from the log.
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => prop::collection::vec(changes(), 1..5).prop_map(Step::Apply),
        2 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn equals_a_map_in_memory_whatever_is_flushed_and_replayed(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut state = open(dir.path());
        let mut log: Vec<LogEntry> = Vec::new();
        for step in steps {
            match step {
                Step::Apply(batch) => {
                    let first = log.len();
                    log.extend(batch.iter().zip(first as u64 + 1..).map(|(changes, index)| entry(index, changes)));
                    state.apply(&log[first..]).unwrap();
                }
                Step::Flush => state.flush().unwrap(),
                Step::Reopen => {
                    drop(state);
                    state = open(dir.path());
                    let durable = state.applied().0.map_or(0, |id| id.index) as usize;
                    prop_assert_eq!(dump(&state.view()), model(&log[..durable]));
                    if durable < log.len() {
                        state.apply(&log[durable..]).unwrap();
                    }
                }
            }
            let view = state.view();
            prop_assert_eq!(view.applied_index(), log.len() as u64);
            prop_assert_eq!(dump(&view), model(&log));
            let mut back = Vec::new();
            view.scan_back(Table::Keys, &[], None, &mut |key, _| {
                back.push(key.to_vec());
                ControlFlow::Continue(())
            });
            let mut forth: Vec<Vec<u8>> =
                dump(&view).into_iter().filter(|row| row.0 == Table::Keys).map(|row| row.1).collect();
            forth.reverse();
            prop_assert_eq!(back, forth);
        }
    }

    #[test]
    fn scans_keep_to_their_bounds(rows in prop::collection::btree_set(0..60u8, 0..30), from in 0..60u8, until in 0..60u8) {
        let dir = tempfile::tempdir().unwrap();
        let state = open(dir.path());
        for (place, row) in rows.iter().enumerate() {
            let (batch, third) = (entry(place as u64 + 1, &[(*row, Some(1))]), place % 3);
            state.apply(&[batch]).unwrap();
            if third == 0 {
                state.flush().unwrap();
            }
        }
        let all: Vec<Vec<u8>> =
            dump(&state.view()).into_iter().filter(|row| row.0 == Table::Keys).map(|row| row.1).collect();
        let bound = |n: u8| all.get(usize::from(n) % all.len().max(1)).cloned().unwrap_or_default();
        let (from, until) = (bound(from), bound(until));
        let expected: Vec<_> = all.iter().filter(|key| **key >= from && **key < until).cloned().collect();
        let mut found = Vec::new();
        state.view().scan(Table::Keys, &from, Some(&until), &mut |key, _| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        });
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_row_that_is_back_from_the_dead_stays_dead() {
    // Tables whose keys are unique by contract may drop gravestones, but never over a row on disk.
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let put = |value: Option<&'static [u8]>| {
        let mut live = lock(&state.live);
        let Live { active, frozen, disk, .. } = &mut *live;
        let written = [(RowKey::new(Table::Ready, b"a"), value.map(Bytes::from_static))].into();
        merge(written, active, frozen.as_ref(), disk);
        live.active_entries += 1;
        state.view.store(live.view());
    };
    put(Some(b"first"));
    state.flush().unwrap();
    put(Some(b"again"));
    put(None);
    assert_eq!(state.view().get(Table::Ready, b"a"), None);
    state.flush().unwrap();
    assert_eq!(state.view().get(Table::Ready, b"a"), None);
    // And one that never reached the disk leaves nothing behind.
    put(Some(b"short"));
    put(None);
    assert!(lock(&state.live).active.rows.is_empty() && lock(&state.live).active.bytes == 0);
}

#[test]
fn a_view_is_not_touched_by_what_follows() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let log: Vec<LogEntry> = (1..=9).map(|n| entry(n, &[(n as u8 % 3, Some(n as u8))])).collect();
    state.apply(&log[..3]).unwrap();
    let view = state.view();
    state.flush().unwrap();
    state.apply(&log[3..6]).unwrap();
    state.flush().unwrap();
    state.apply(&log[6..]).unwrap();
    assert_eq!(dump(&view), model(&log[..3]));
    assert_eq!(dump(&state.view()), model(&log));
}

#[test]
fn a_full_overlay_makes_apply_wait_for_the_flusher() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { overlay_entries: 10, flush_entries: 100, ..options(dir.path()) };
    let state = Arc::new(State::open(&options, None, fatal().0).unwrap());
    let flusher =
        crate::flusher::Flusher::start(state.clone(), std::time::Duration::from_secs(3_600)).unwrap();
    for n in 1..=200 {
        state.apply(&[entry(n, &[(1, Some(1))])]).unwrap();
        let live = lock(&state.live);
        assert!(live.active_entries + live.frozen_entries <= 10);
    }
    drop(flusher);
    assert!(state.durable().borrow().is_some_and(|id| id.index >= 190));
}

#[test]
fn another_nodes_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let other = Options { node_id: 2, ..options(dir.path()) };
    let error = State::open(&other, None, fatal().0).err().unwrap();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    std::fs::write(dir.path().join(STATE_FILE), b"not a state file at all").unwrap();
    let error = State::open(&options(dir.path()), None, fatal().0).err().unwrap();
    assert!(matches!(error, OpenError::State(_)), "{error}");
}

#[test]
fn an_entry_that_cannot_be_applied_halts_and_nothing_of_its_batch_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (fatal, reasons) = fatal();
    let state = State::open(&options(dir.path()), None, fatal).unwrap();
    let good = entry(1, &[(1, Some(1))]);
    let bad = LogEntry {
        log_id: log_id(1, 1, 2),
        payload: EntryPayload::Normal(EntryBytes(Bytes::from_static(b"\xff\xff\xff"))),
    };
    assert!(state.apply(&[good.clone(), bad]).is_err());
    assert_eq!(reasons.lock().unwrap().len(), 1);
    assert!(dump(&state.view()).is_empty());
    assert!(state.apply(&[good]).is_err() && state.flush().is_err(), "nothing goes on after that");
}

/// A file whose operations fail from the `fail_at`th on, as on a dying disk.
#[derive(Debug)]
struct Dying {
    file: redb::backends::FileBackend,
    done: Arc<AtomicU64>,
    fail_at: u64,
}

impl Dying {
    fn step(&self) -> io::Result<()> {
        if self.done.fetch_add(1, Ordering::Relaxed) >= self.fail_at {
            return Err(io::Error::other("the disk died"));
        }
        Ok(())
    }
}

impl redb::StorageBackend for Dying {
    fn len(&self) -> io::Result<u64> {
        self.step()?;
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.step()?;
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step()?;
        self.file.set_len(len)
    }

    /// The process dies here, not the machine: nothing needs to reach the platters.
    fn sync_data(&self) -> io::Result<()> {
        self.step()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

#[test]
fn a_disk_that_fails_at_any_operation_halts_the_replica_and_leaves_a_good_file() {
    let (mut opened, mut halted) = (0, 0);
    for fail_at in 0..400 {
        let dir = tempfile::tempdir().unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let counter = done.clone();
        let backend: Backend = Arc::new(move |path| {
            let file =
                std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
            let file = redb::backends::FileBackend::new(file).map_err(io::Error::other)?;
            Ok(Box::new(Dying { file, done: counter.clone(), fail_at }))
        });
        let (fatal, reasons) = fatal();
        let log: Vec<LogEntry> = (1..=12).map(|n| entry(n, &[(n as u8, Some(n as u8)), (3, None)])).collect();
        let mut durable = 0;
        if let Ok(state) = State::open(&options(dir.path()), Some(backend), fatal) {
            opened += 1;
            for (n, one) in log.iter().enumerate() {
                if state.apply(std::slice::from_ref(one)).is_err() || state.flush().is_err() {
                    halted += 1;
                    assert_eq!(
                        reasons.lock().unwrap().len(),
                        1,
                        "the hook is called, once (operation {fail_at})"
                    );
                    break;
                }
                durable = n + 1;
            }
        }
        // What was reported durable is there; at most the commit that failed has come through besides.
        let state = open(dir.path());
        let found = state.applied().0.map_or(0, |id| id.index) as usize;
        assert!(
            found == durable || found == durable + 1,
            "found {found}, durable {durable} (operation {fail_at})"
        );
        assert_eq!(dump(&state.view()), model(&log[..found]));
    }
    assert!(opened > 50 && halted > 50, "opened {opened}, halted {halted}");
}

/// An entry that asks for the digest, or names the one to expect.
fn asking(index: u64, kind: command::Kind) -> LogEntry {
    let entry = Entry {
        version: 1,
        time_ms: 1_000 + index,
        commands: vec![Command { kind: Some(kind) }],
        ..Entry::default()
    };
    LogEntry {
        log_id: log_id(1, 1, index),
        payload: EntryPayload::Normal(EntryBytes(entry.encode_to_vec().into())),
    }
}

fn summed(rows: &[(Table, Vec<u8>, Bytes)]) -> [u8; 16] {
    let mut digest = StateDigest::default();
    for (table, key, value) in rows {
        digest.add(&RowKey::new(*table, key), value);
    }
    digest.bytes()
}

fn take(index: u64) -> LogEntry {
    asking(index, command::Kind::TakeDigest(clawhive_proto::TakeDigest {}))
}

#[test]
fn a_digest_is_that_of_the_rows_right_after_its_entry() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = open(dir.path());
    let mut log = Vec::new();
    for n in 1..=90u64 {
        log.push(match n % 10 {
            0 => take(n),
            _ => entry(n, &[(n as u8 % 7, Some(n as u8)), (n as u8 % 5, (n % 3 > 0).then_some(1))]),
        });
    }
    // In one batch with what follows, over what is frozen or on disk, and after a restart.
    for (round, batch) in log.chunks(15).enumerate() {
        state.apply(batch).unwrap();
        state.flush().unwrap();
        let newest = state.audit.newest().unwrap();
        assert_eq!(newest.bytes, summed(&model(&log[..newest.index as usize])), "after {}", newest.index);
        if round == 2 {
            drop(state);
            state = open(dir.path());
        }
    }
    assert_eq!(state.audit.newest().map(|digest| digest.index), Some(90));
    while state.read_on().unwrap() {}
    state.fatal.check().unwrap();
}

#[test]
fn a_state_that_differs_from_the_clusters_is_taken_out() {
    let dir = tempfile::tempdir().unwrap();
    let (fatal, reasons) = fatal();
    let state = State::open(&options(dir.path()), None, fatal).unwrap();
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = found.clone();
    state.on_divergence(Arc::new(move |out| told.lock().unwrap().push(out.divergence.to_string())));
    let right = entry(1, &[(1, Some(1))]);
    state.apply(&[right.clone(), take(2)]).unwrap();
    state.flush().unwrap();
    let digest = summed(&model(&[right.clone(), take(2)])).to_vec();
    let agreed = |index, digest| {
        asking(index, command::Kind::StateDigest(clawhive_proto::StateDigest { at_index: 2, digest }))
    };
    state.apply(&[agreed(3, digest)]).unwrap();
    assert!(found.lock().unwrap().is_empty());
    assert!(state.apply(&[agreed(4, vec![7; 16])]).is_err());
    let text = found.lock().unwrap().concat();
    let theirs = "07".repeat(16);
    assert!(text.starts_with("the state after log entry 2 has digest ") && text.contains(&theirs), "{text}");
    assert!(state.apply(&[right]).is_err() && state.flush().is_err(), "it is out");
    assert!(reasons.lock().unwrap().is_empty(), "the process need not die of it");
}

#[test]
fn a_row_changed_on_disk_is_found_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    for n in 1..=40 {
        state.apply(&[entry(n, &[(n as u8, Some(1))])]).unwrap();
    }
    state.flush().unwrap();
    drop(state);
    crate::damage_row(&dir.path().join(STATE_FILE), 20, false).unwrap();
    let state = open(dir.path());
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = found.clone();
    state.on_divergence(Arc::new(move |out| told.lock().unwrap().push(out.divergence.to_string())));
    while state.read_on().unwrap() {}
    let text = found.lock().unwrap().concat();
    assert!(text.starts_with("the state on disk was changed behind our back: at log entry 40"), "{text}");
}

#[test]
fn a_file_of_a_version_without_digests_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let state = open(dir.path());
    let log: Vec<_> = (1..=9).map(|n| entry(n, &[(n as u8, Some(1))])).collect();
    state.apply(&log).unwrap();
    state.flush().unwrap();
    drop(state);
    // Such a version moves on what it knows, and leaves the digest as it was.
    crate::statefile::forget_digest(&dir.path().join(STATE_FILE));
    let state = open(dir.path());
    state.apply(&[take(10)]).unwrap();
    state.flush().unwrap();
    assert_eq!(state.audit.newest(), None);
    drop(state);
    let state = open(dir.path());
    while state.read_on().unwrap() {}
    state.apply(&[take(11)]).unwrap();
    state.flush().unwrap();
    let log: Vec<_> = log.into_iter().chain([take(10), take(11)]).collect();
    assert_eq!(state.audit.newest().unwrap().bytes, summed(&model(&log)));
}
