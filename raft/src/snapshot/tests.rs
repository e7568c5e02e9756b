//! Snapshots go around whole, or not at all.

use std::path::Path;

use super::*;
use crate::state::State;
use crate::state::tests::{dump, entry, open, options};
use crate::types::SnapshotMeta;

const CLUSTER: [u8; 16] = [9; 16];

fn filled(dir: &Path) -> State {
    let state = open(dir);
    for n in 1..=20 {
        state.apply(&[entry(n, &[(n as u8, Some(n as u8)), (n as u8 / 2, None)])]).unwrap();
    }
    state
}

fn written(dir: &Path) -> (State, PathBuf) {
    let state = filled(&dir.join("a"));
    let path = dir.join("one.snap");
    write(&path, &CLUSTER, &state.flushed().unwrap()).unwrap();
    (state, path)
}

fn dirs() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("a")).unwrap();
    std::fs::create_dir(dir.path().join("b")).unwrap();
    dir
}

fn check(bytes: &[u8], dir: &Path) -> Result<SnapshotMeta, SnapshotError> {
    let path = dir.join("changed.snap");
    std::fs::write(&path, bytes).unwrap();
    Reader::open(File::open(path).unwrap(), &CLUSTER)?.verify()
}

#[test]
fn a_snapshot_rebuilds_the_same_state_elsewhere() {
    let dir = dirs();
    let (state, path) = written(dir.path());
    let other = open(&dir.path().join("b"));
    other.apply(&[entry(1, &[(77, Some(7))])]).unwrap();
    let before = other.view();
    let mut reader = Reader::open(File::open(path).unwrap(), &CLUSTER).unwrap();
    let facts = reader.facts.clone();
    other.replace(facts, || reader.next_row().map_err(io::Error::other)).unwrap();
    assert_eq!(dump(&other.view()), dump(&state.view()));
    assert_eq!(other.view().applied_index(), 20);
    assert_eq!(before.applied_index(), 1);
    assert!(!dump(&before).is_empty(), "a view outlives the file it reads");
    drop((other, before));
    assert_eq!(dump(&open(&dir.path().join("b")).view()), dump(&state.view()), "and it is durable");
}

#[test]
fn a_snapshot_never_covers_what_is_not_durable() {
    let dir = dirs();
    let state = filled(&dir.path().join("a"));
    let durable = state.flushed().unwrap();
    assert_eq!(durable.facts.applied, *state.durable().borrow());
    drop((state, durable));
    assert_eq!(open(&dir.path().join("a")).view().applied_index(), 20);
}

#[test]
fn any_flipped_bit_is_found() {
    let dir = dirs();
    let (_state, path) = written(dir.path());
    let good = std::fs::read(&path).unwrap();
    check(&good, dir.path()).unwrap();
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        assert!(check(&bad, dir.path()).is_err(), "byte {place} of {}", good.len());
    }
}

#[test]
fn any_shorter_file_is_found() {
    let dir = dirs();
    let (_state, path) = written(dir.path());
    let good = std::fs::read(&path).unwrap();
    for len in 0..good.len() {
        let error = check(&good[..len], dir.path()).unwrap_err();
        assert!(matches!(error, SnapshotError::Damaged(_)), "{error} at {len}");
    }
}

#[test]
fn other_clusters_and_formats_are_told_apart() {
    let dir = dirs();
    let (_state, path) = written(dir.path());
    let error = Reader::open(File::open(&path).unwrap(), &[1; 16]).err().unwrap();
    assert!(matches!(error, SnapshotError::Foreign));
    let header = Header { format: 9, cluster_id: CLUSTER.to_vec(), ..Header::default() }.encode_to_vec();
    let mut bytes = MAGIC.to_vec();
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(&header).to_le_bytes());
    bytes.extend(header);
    assert!(matches!(check(&bytes, dir.path()), Err(SnapshotError::Format(9))));
}

#[test]
fn a_broken_snapshot_changes_nothing() {
    let dir = dirs();
    let (_state, path) = written(dir.path());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let other = open(&dir.path().join("b"));
    other.apply(&[entry(1, &[(77, Some(7))])]).unwrap();
    let before = dump(&other.view());
    let mut reader = Reader::open(File::open(path).unwrap(), &CLUSTER).unwrap();
    let facts = reader.facts.clone();
    other.replace(facts, || reader.next_row().map_err(io::Error::other)).unwrap_err();
    assert_eq!(dump(&other.view()), before);
    other.flush().unwrap();
    drop(other);
    assert_eq!(dump(&open(&dir.path().join("b")).view()), before);
}

#[test]
fn the_shelf_keeps_the_newest_and_clears_up() {
    let dir = dirs();
    let (state, path) = written(dir.path());
    let shelf = Shelf::open(dir.path().join("shelf"), options(dir.path()).cluster_id).unwrap();
    assert!(shelf.current().unwrap().is_none());
    let old = shelf.scratch("old.snap");
    std::fs::copy(&path, &old).unwrap();
    state.apply(&[entry(21, &[(1, Some(1))])]).unwrap();
    let new = shelf.scratch("new.snap");
    write(&new, &CLUSTER, &state.flushed().unwrap()).unwrap();
    shelf.put(&new, state.applied().0).unwrap();
    let old_id = Reader::open(File::open(&old).unwrap(), &CLUSTER).unwrap().facts.applied;
    shelf.put(&old, old_id).unwrap();
    assert!(!old.exists());
    assert_eq!(shelf.current().unwrap().unwrap().0.last_log_id, state.applied().0);
    std::fs::write(shelf.scratch("half.snap"), b"half").unwrap();
    let shelf = Shelf::open(dir.path().join("shelf"), CLUSTER).unwrap();
    assert!(!shelf.scratch("half.snap").exists() && shelf.current().unwrap().is_some());
}

#[test]
fn a_damage_is_told_with_its_place() {
    let dir = dirs();
    let state = open(&dir.path().join("a"));
    // Values of a MiB or so, in three blocks.
    for n in 1..=60 {
        let entries: Vec<_> =
            (0..500).map(|m| entry(n * 1_000 + m, &[((m % 250) as u8, Some(n as u8))])).collect();
        state.apply(&entries).unwrap();
    }
    let path = dir.path().join("one.snap");
    write(&path, &CLUSTER, &state.flushed().unwrap()).unwrap();
    let good = std::fs::read(&path).unwrap();
    assert!(good.len() > 2 << 20, "{} bytes", good.len());
    // Whether it hits a value, a length or a place.
    for at in (1 << 20) + 7_000..(1 << 20) + 7_100 {
        let mut bad = good.clone();
        bad[at] ^= 0x44;
        let error = check(&bad, dir.path()).unwrap_err().to_string();
        assert!(error.contains("the checksum differs between byte 1048576 and byte 2097152"), "{error}");
    }
}

#[test]
fn a_snapshot_of_a_damaged_state_is_refused() {
    let dir = dirs();
    let state = filled(&dir.path().join("a"));
    let mut durable = state.flushed().unwrap();
    durable.facts.digest = Some(crate::digest::StateDigest::default());
    let path = dir.path().join("one.snap");
    write(&path, &CLUSTER, &durable).unwrap();
    let error = check(&std::fs::read(&path).unwrap(), dir.path()).unwrap_err().to_string();
    assert!(error.contains("the state that it was made of was damaged"), "{error}");
}

#[test]
fn a_part_is_gone_on_with_only_as_far_as_it_is_there() {
    let dir = dirs();
    let shelf = Shelf::open(dir.path().join("shelf"), CLUSTER).unwrap();
    let id = [7; 32];
    assert_eq!(shelf.part(&id, 99).unwrap().bytes, 0);
    let mut file = shelf.go_on(&id, 0).unwrap();
    std::io::Write::write_all(&mut file, b"hello world").unwrap();
    // It survives a restart, other scratch files do not.
    let shelf = Shelf::open(dir.path().join("shelf"), CLUSTER).unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, b"hello there").unwrap();
    let source = File::open(&source).unwrap();
    assert_eq!(shelf.part(&id, 99).unwrap().bytes, 11);
    assert_eq!(shelf.part(&id, 6).unwrap(), Part::of(&source, 6).unwrap());
    assert_ne!(shelf.part(&id, 11).unwrap(), Part::of(&source, 11).unwrap());
    let error = shelf.go_on(&id, 12).unwrap_err().to_string();
    assert!(error.contains("are not here any more"), "{error}");
    drop(shelf.go_on(&id, 6).unwrap());
    assert_eq!(shelf.part(&id, 99).unwrap().bytes, 6);
    // Another one takes its place.
    drop(shelf.go_on(&[8; 32], 0).unwrap());
    assert_eq!(shelf.part(&id, 99).unwrap().bytes, 0);
}
