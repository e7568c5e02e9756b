//! Rolling over, purging, using files again, and reading while all that goes on, on the real disk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clawhive_raft::disk::{Disk, RealDisk, SimDisk};
use clawhive_raft::log::{Ballot, Drive, LogEntry, LogError, LogOptions, LogPos, Refusal, SegmentLog};

use crate::log_model::{Call, DIR, never, open, perform};

fn pos(index: u64) -> LogPos {
    LogPos { term: 1 + index / 1000, node: 3, index }
}

fn entry(index: u64, size: usize) -> LogEntry {
    LogEntry { pos: pos(index), tag: 1, payload: Bytes::from(vec![index as u8 | 1; size]) }
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 256 << 10,
        tail_bytes: 64 << 10,
        drive: Drive::Threads,
        ..LogOptions::default()
    }
}

fn open_real(dir: &Path, options: LogOptions) -> SegmentLog {
    SegmentLog::open(Arc::new(RealDisk), dir, options, never()).expect("opens")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn purged_segments_are_used_again_and_carry_the_vote() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_real(dir.path(), options());
    perform(&log, &Call::Vote(Ballot { term: 7, node: 3, committed: true })).expect("votes");
    let mut most = 0;
    for index in 1..=4000 {
        perform(&log, &Call::Append(vec![entry(index, 1000)])).expect("appends");
        if index % 500 == 0 {
            log.save_committed(pos(index)).expect("commits");
            log.purge(pos(index - 200), Box::new(drop)).expect("purges");
            until("giving up purged segments", || log.usage().1 <= 3);
        }
        most = most.max(RealDisk.list(dir.path()).expect("lists").len());
    }
    assert!(most <= 9, "4 MB went through {most} files of 256 KB");
    assert!(!dir.path().join("0000000000000001.log").exists(), "the segment with the vote is gone");
    log.close_and_wait().expect("closes");
    drop(log);

    let log = open_real(dir.path(), options());
    assert_eq!(log.vote(), Some(Ballot { term: 7, node: 3, committed: true }));
    assert_eq!(log.purged(), Some(pos(3800)));
    assert_eq!(log.committed(), Some(pos(4000)));
    let all = log.read(0..u64::MAX, usize::MAX).expect("reads");
    assert_eq!(all, (3801..=4000).map(|index| entry(index, 1000)).collect::<Vec<_>>());
}

#[test]
fn spares_beyond_the_limit_are_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_real(dir.path(), LogOptions { spare_segments: 1, ..options() });
    for index in 1..=3000 {
        log.append(vec![entry(index, 1000)], Box::new(|result| result.expect("durable"))).expect("appends");
    }
    perform(&log, &Call::Purge(pos(3000))).expect("purges");
    until("removing spares", || RealDisk.list(dir.path()).expect("lists").len() <= 3);
    drop(log);
    let log = open_real(dir.path(), options());
    assert_eq!((log.last(), log.first_index()), (Some(pos(3000)), Some(3001)));
}

#[test]
fn callbacks_come_in_order_and_readers_see_every_entry() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = Arc::new(open_real(dir.path(), options()));
    let (last, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..2)
        .map(|reader| {
            let (log, last, stop) = (Arc::clone(&log), Arc::clone(&last), Arc::clone(&stop));
            std::thread::spawn(move || {
                let (mut seen, mut at) = (0_u64, 0_u64);
                while !stop.load(Ordering::SeqCst) {
                    let until = last.load(Ordering::SeqCst);
                    at = (at + 7 + reader) % until.max(1);
                    let from = at.max(log.first_index().unwrap_or(1));
                    let found = log.read(from..from + 20, usize::MAX).expect("reads");
                    for (i, found) in found.iter().enumerate() {
                        // A purge may have moved the beginning since.
                        assert!(found.pos.index >= from + i as u64);
                        assert_eq!(*found, entry(found.pos.index, 300));
                        seen += 1;
                    }
                }
                seen
            })
        })
        .collect();
    let (tx, rx) = mpsc::channel();
    for index in 1..=20_000 {
        let tx = tx.clone();
        let done = move |result: Result<(), LogError>| {
            tx.send((index, result.is_ok())).expect("somebody waits");
        };
        log.append(vec![entry(index, 300)], Box::new(done)).expect("appends");
        last.store(index, Ordering::SeqCst);
        let just = log.read(index..index + 1, 1).expect("reads");
        assert_eq!(just, [entry(index, 300)], "readable before it is durable");
        if index % 4000 == 0 {
            log.purge(pos(index - 3000), Box::new(drop)).expect("purges");
        }
    }
    for index in 1..=20_000 {
        assert_eq!(rx.recv().expect("an answer"), (index, true));
    }
    stop.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.join().expect("no panic") > 1000);
    }
    let (tail, _) = log.usage();
    assert!(tail <= 64 << 10, "{tail} bytes in memory");
}

#[test]
fn an_entry_larger_than_a_segment_gets_a_larger_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_real(dir.path(), options());
    for (index, size) in [(1, 10), (2, 900_000), (3, 10), (4, 300_000)] {
        perform(&log, &Call::Append(vec![entry(index, size)])).expect("appends");
    }
    drop(log);
    let log = open_real(dir.path(), LogOptions { spare_segments: 0, ..options() });
    let sizes: Vec<usize> =
        log.read(1..5, usize::MAX).expect("reads").iter().map(|entry| entry.payload.len()).collect();
    assert_eq!(sizes, [10, 900_000, 10, 300_000]);
    perform(&log, &Call::Purge(pos(4))).expect("purges");
    until("cutting large files to size", || {
        let names = RealDisk.list(dir.path()).expect("lists");
        names.iter().filter(|name| name.ends_with(".free")).count() == 1 && log.usage().1 == 1
    });
}

#[test]
fn what_would_break_the_log_is_refused_and_changes_nothing() {
    let disk = SimDisk::new();
    let log = open(&disk, never()).expect("opens");
    perform(&log, &Call::Append((1..=5).map(|index| entry(index, 10)).collect())).expect("appends");
    perform(&log, &Call::Committed(pos(3))).expect("commits");
    let refusal = |call: &Call| match perform(&log, call) {
        Err(LogError::Refused(refusal)) => refusal,
        other => panic!("{call:?} gave {other:?}"),
    };
    assert_eq!(refusal(&Call::Append(vec![entry(7, 1)])), Refusal::Gap { index: 7, expected: 6 });
    let hole = Call::Append(vec![entry(6, 1), entry(8, 1)]);
    assert_eq!(refusal(&hole), Refusal::Gap { index: 8, expected: 7 });
    assert_eq!(refusal(&Call::Truncate(Some(pos(2)))), Refusal::Committed { after: Some(2), committed: 3 });
    assert_eq!(log.last(), Some(pos(5)));
    assert!(log.fatal().is_none());
    perform(&log, &Call::Append(vec![entry(6, 1)])).expect("the log lives on");
    perform(&log, &Call::Truncate(Some(pos(9)))).expect("nothing to drop is no error");
    perform(&log, &Call::Truncate(Some(pos(3)))).expect("truncates");
    drop(log);
    let log = open(&disk, never()).expect("opens");
    assert_eq!((log.last(), log.committed()), (Some(pos(3)), Some(pos(3))));
    assert!(Path::new(DIR).is_absolute());
}

#[tokio::test]
async fn appending_waits_for_room_in_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_real(dir.path(), LogOptions { queue_bytes: 100_000, ..options() });
    let mut waited = false;
    for index in 1..=2000 {
        let mut room = std::pin::pin!(log.room());
        let now = futures::poll!(room.as_mut()).is_ready();
        if !now {
            waited = true;
            room.await;
        }
        log.append(vec![entry(index, 10_000)], Box::new(|result| result.expect("durable"))).expect("appends");
    }
    assert!(waited, "20 MB went through a queue of 100 kB without waiting");
    log.close_and_wait().expect("closes");
}
