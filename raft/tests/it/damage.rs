//! Bytes that changed at rest, in the state or in a snapshot of a replica that was stopped: it comes back with the same
//! state, made anew from what is whole, or says which file is damaged. It never serves anything else.

use std::fs;
use std::path::Path;

use clawhive_raft::{OpenError, Options};

use crate::cluster::{Cluster, LONG, digest, status, until, write};

/// Little is kept in the log, and a snapshot is made often.
fn purging(options: &mut Options) {
    options.snapshot_entries = 50;
    options.keep_entries = 5;
    options.flush_interval_ms = 20;
    options.segment_bytes = 1 << 20;
}

/// Everything stays in the log.
fn keeping(options: &mut Options) {
    options.flush_interval_ms = 20;
    options.segment_bytes = 1 << 20;
}

async fn filled(tune: fn(&mut Options)) -> (Cluster, [u8; 32]) {
    let mut cluster = Cluster::tuned(1, tune).await;
    let leader = cluster.leader().await;
    for n in 0..300 {
        write(&leader, &format!("key-{n}"), &format!("value {n}.")).await.unwrap();
    }
    until("a durable state", || (status(&leader).durable >= status(&leader).applied).then_some(())).await;
    let before = digest(&leader.linearizable_view(LONG).await.unwrap());
    drop(leader);
    cluster.crash(1).await;
    (cluster, before)
}

/// One read on a replica that was opened again; then it is closed.
async fn assert_same(cluster: &mut Cluster, before: [u8; 32], what: &str) {
    let replica = cluster.open(1).await;
    let now =
        digest(&replica.linearizable_view(LONG).await.unwrap_or_else(|error| panic!("{what}: {error}")));
    drop(replica);
    cluster.crash(1).await;
    assert!(now == before, "{what}: another state was served");
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_state_damaged_anywhere_is_made_anew_from_the_log() {
    // As the program does: what is caught and told as damage is no panic to people.
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !clawhive_raft::is_checking_state() {
            tell(panic);
        }
    }));
    let (mut cluster, before) = filled(keeping).await;
    let dir = cluster.dir(1);
    let good = dir.with_file_name("good");
    copy(&dir, &good);
    let state = dir.join("state.redb");
    let bytes = fs::read(&state).unwrap();
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    let mut rebuilt = 0;
    let mut random = 12_345u64;
    for round in 0..36 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = match round {
            // The header of the file, then anywhere.
            0..12 => round * 29,
            _ => (random >> 16) as usize % used,
        };
        copy(&good, &dir);
        let mut damaged = bytes.clone();
        let what = match round % 4 {
            0 | 1 => {
                damaged[at] ^= 1 << (random % 8);
                format!("a flipped bit at {at}")
            }
            2 => {
                let to = (at + 4096).min(damaged.len());
                damaged[at..to].fill(0);
                format!("zeroes from {at}")
            }
            _ => {
                damaged.truncate(at);
                format!("cut at {at}")
            }
        };
        fs::write(&state, damaged).unwrap();
        assert_same(&mut cluster, before, &what).await;
        rebuilt += usize::from(dir.join("state.redb.damaged").exists());
    }
    assert!(rebuilt > 5, "only {rebuilt} of 36 were noticed");
}

#[tokio::test]
async fn a_damaged_state_is_made_anew_from_snapshot_and_log() {
    let (mut cluster, before) = filled(purging).await;
    let dir = cluster.dir(1);
    assert!(dir.join("snapshots/current.snap").exists());
    let state = dir.join("state.redb");
    fs::write(&state, b"not a state").unwrap();
    assert_same(&mut cluster, before, "overwritten").await;
    assert_eq!(fs::read(dir.join("state.redb.damaged")).unwrap(), b"not a state");
    // An empty file would be a new state to redb.
    fs::write(&state, b"").unwrap();
    assert_same(&mut cluster, before, "emptied").await;
}

#[tokio::test]
async fn without_a_snapshot_for_what_the_log_gave_up_it_says_which_file_is_damaged() {
    let (mut cluster, before) = filled(purging).await;
    let dir = cluster.dir(1);
    let state = dir.join("state.redb");
    let good = fs::read(&state).unwrap();
    fs::remove_file(dir.join("snapshots/current.snap")).unwrap();
    fs::write(&state, b"not a state").unwrap();
    let Err(error) = cluster.try_open(1).await else { panic!("it opened") };
    assert!(matches!(&error, OpenError::DamagedState { file, .. } if *file == state), "{error}");
    let text = error.to_string();
    assert!(text.contains("state.redb is damaged: "), "{text}");
    assert!(text.contains("and no snapshot is here for the"), "{text}");
    assert_eq!(fs::read(&state).unwrap(), b"not a state", "nothing was changed");
    fs::write(&state, good).unwrap();
    assert_same(&mut cluster, before, "the state is back").await;
}

#[tokio::test]
async fn a_damaged_snapshot_is_laid_aside() {
    let (mut cluster, before) = filled(purging).await;
    let dir = cluster.dir(1);
    let snapshot = dir.join("snapshots/current.snap");
    let good = fs::read(&snapshot).unwrap();
    for at in [3, 30, good.len() / 2, good.len() - 1] {
        let mut damaged = good.clone();
        damaged[at] ^= 4;
        fs::write(&snapshot, damaged).unwrap();
        assert_same(&mut cluster, before, &format!("a flipped bit at {at}")).await;
        fs::remove_file(dir.join("snapshot.damaged")).unwrap_or_else(|_| panic!("{at}: not noticed"));
    }
}
