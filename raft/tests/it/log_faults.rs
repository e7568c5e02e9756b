//! The disk fails at every single operation. The log says so once, with a typed error, does nothing more, and
//! what it acknowledged before is there when it is opened again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use clawhive_raft::disk::{Disk, Fault, SimDisk, Tear};
use clawhive_raft::log::{Ballot, Drive, LogEntry, LogError, LogOptions, LogPos, OpenError, SegmentLog};

use crate::log_model::{Call, DIR, Model, Run, counting, never, open, perform, small};

const CALLS: usize = 40;
const VOTE: Call = Call::Vote(Ballot { term: 999, node: 1, committed: false });

/// Opens what is there in each way a process can meet it again.
fn check_reopened(run: &Run, disk: &SimDisk, seed: u64, context: &str) {
    for tear in [Tear::LoseAll, Tear::Sectors(seed), Tear::Sectors(!seed)] {
        let image = disk.after_cut(tear);
        let log = open(&image, never()).unwrap_or_else(|error| panic!("{context} {tear:?}: {error}"));
        run.check(&log, &format!("{context} {tear:?}"));
    }
    // The process alone was restarted: what a failed sync left in the cache still looks whole. What the
    // log then reports must survive a power cut, though syncing it again is a lie.
    let log = open(disk, never()).unwrap_or_else(|error| panic!("{context} restart: {error}"));
    let found = run.check(&log, &format!("{context} restart"));
    let image = disk.after_cut(Tear::LoseAll);
    let log = open(&image, never()).unwrap_or_else(|error| panic!("{context} cut after restart: {error}"));
    let later = Model::observe(&log).expect("all can be read");
    assert_eq!(later.comparable(), found.comparable(), "{context}: restart reported what was not durable");
}

fn fail_everywhere(seed: u64, fault: Fault) -> (u64, u64) {
    let whole = SimDisk::new();
    let log = open(&whole, never()).expect("opens");
    assert!(Run::new(Model::default()).go(&log, seed, CALLS).failed.is_none());
    drop(log);
    let (mut fatal, mut survived) = (0, 0);
    for at in 0..whole.operations() {
        let disk = SimDisk::new();
        disk.fail_at(at, fault);
        let context = format!("seed {seed}, {fault:?} at {at}");
        let (hook, count) = counting();
        let run = match open(&disk, hook) {
            Err(error) => {
                assert!(matches!(error, OpenError::Io { .. }), "{context}: {error}");
                Run::new(Model::default())
            }
            Ok(log) => {
                let run = Run::new(Model::default()).go(&log, seed, CALLS);
                match &run.failed {
                    Some((_, error)) => {
                        assert!(matches!(error, LogError::Io { .. }), "{context}: {error}");
                        assert!(error.is_fatal());
                        assert_eq!(count.load(Ordering::SeqCst), 1, "{context}: the hook is called once");
                        let before = disk.operations();
                        let next = perform(&log, &VOTE);
                        assert!(matches!(next, Err(LogError::Poisoned(_))), "{context}: {next:?}");
                        assert_eq!(disk.operations(), before, "{context}: nothing is tried after an error");
                        fatal += 1;
                    }
                    None => {
                        // Preparing a file ahead may fail without harm.
                        assert_eq!(count.load(Ordering::SeqCst), 0, "{context}");
                        survived += 1;
                    }
                }
                run
            }
        };
        disk.heal();
        check_reopened(&run, &disk, seed ^ at, &context);
    }
    (fatal, survived)
}

#[test]
fn an_io_error_at_any_operation_loses_nothing_acknowledged() {
    for seed in 20..23 {
        let (fatal, survived) = fail_everywhere(seed, Fault::Io);
        assert!(fatal > 50 && survived > 0, "{fatal} fatal, {survived} survived");
    }
}

#[test]
fn a_full_disk_at_any_operation_loses_nothing_acknowledged() {
    let (fatal, survived) = fail_everywhere(30, Fault::Full);
    assert!(fatal > 20 && survived > 0, "{fatal} fatal, {survived} survived");
}

#[test]
fn a_disk_that_fails_again_and_again_loses_nothing() {
    for step in 1..40 {
        let disk = SimDisk::new();
        let mut run = Run::new(Model::default());
        for round in 0..12 {
            disk.fail_every(step, Fault::Io);
            let (hook, _) = counting();
            if let Ok(log) = open(&disk, hook) {
                // Reading back may fail too.
                if let Ok(found) = Model::observe(&log) {
                    assert_eq!(found.comparable(), run.acked.comparable(), "every {step}, round {round}");
                    run = run.go(&log, step * 100 + round, 10);
                }
            }
            disk.heal();
            let log = open(&disk, never()).expect("a healthy disk opens");
            run = Run::new(run.check(&log, &format!("every {step}, round {round}, healthy")));
        }
    }
}

/// With threads the operation that fails is not the same each time; what holds is.
#[test]
fn faults_under_threads_lose_nothing_acknowledged() {
    let mut fatal = 0;
    for seed in 0..40 {
        let disk = SimDisk::new();
        let options = LogOptions { drive: Drive::Threads, ..small() };
        let (hook, count) = counting();
        let log = SegmentLog::open(Arc::new(disk.clone()), Path::new(DIR), options, hook).expect("opens");
        disk.fail_at(disk.operations() + 3 + seed * 4, Fault::Io);
        let run = Run::new(Model::default()).go(&log, seed, CALLS);
        drop(log);
        fatal += u32::from(run.failed.is_some());
        assert!(count.load(Ordering::SeqCst) <= 1);
        disk.heal();
        check_reopened(&run, &disk, seed, &format!("threads, seed {seed}"));
    }
    assert!(fatal > 10, "{fatal} runs failed");
}

/// What queued behind the batch that failed is answered with the error, though the disk would take it again.
#[test]
fn nothing_queued_behind_an_error_is_written() {
    let disk = SimDisk::new();
    let options = LogOptions { drive: Drive::Threads, batch_bytes: 1, ..small() };
    let (hook, count) = counting();
    let log = SegmentLog::open(Arc::new(disk.clone()), Path::new(DIR), options, hook).expect("opens");
    let (go, wait) = std::sync::mpsc::channel();
    let hold = move |_| wait.recv().expect("released below");
    log.save_vote(Ballot { term: 1, node: 1, committed: false }, Box::new(hold)).expect("votes");
    let (tx, rx) = std::sync::mpsc::channel();
    for index in 1..=10 {
        let tx = tx.clone();
        let done = move |result: Result<(), LogError>| tx.send(result.is_ok()).expect("somebody waits");
        let pos = LogPos { term: 1, node: 1, index };
        log.append(vec![LogEntry { pos, tag: 0, payload: Bytes::new() }], Box::new(done)).expect("queues");
    }
    // The helper thread may take the fault without harm, so it must come again and again, with room to
    // succeed between.
    disk.fail_every(3, Fault::Io);
    go.send(()).expect("the writer waits");
    let answers: Vec<bool> = (0..10).map(|_| rx.recv().expect("an answer")).collect();
    let good = answers.iter().take_while(|ok| **ok).count();
    assert!(good < 10 && answers[good..].iter().all(|ok| !ok), "{answers:?}");
    drop(log);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    disk.heal();
    let log = open(&disk.after_cut(Tear::KeepAll), never()).expect("opens");
    let found = log.last().map_or(0, |pos| pos.index);
    let acked = good as u64;
    assert!(found == acked || found == acked + 1, "{found}, though {acked} was acknowledged");
}

#[test]
fn sync_covers_what_was_not_synced_and_nothing_else() {
    let disk = SimDisk::new();
    let log = open(&disk, never()).expect("opens");
    let append = Model::default().call(15, 3, 5);
    perform(&log, &append).expect("appends");
    let sync = || {
        let (tx, rx) = std::sync::mpsc::channel();
        log.sync(Box::new(move |result| tx.send(result).expect("somebody waits"))).expect("asks");
        rx.recv().expect("an answer").expect("syncs");
    };
    let before = disk.operations();
    sync();
    assert_eq!(disk.operations(), before, "there is nothing to sync");
    perform(&log, &Call::Committed(log.last().expect("an entry"))).expect("commits");
    let lost = open(&disk.after_cut(Tear::LoseAll), never()).expect("opens").committed();
    assert_eq!(lost, None, "committed rides on the next sync");
    sync();
    let kept = open(&disk.after_cut(Tear::LoseAll), never()).expect("opens").committed();
    assert_eq!(kept, log.last());
    log.close_and_wait().expect("closes");
    sync();
}

#[test]
fn an_entry_damaged_under_a_running_log_ends_it() {
    let disk = SimDisk::new();
    let (hook, count) = counting();
    let log = open(&disk, hook).expect("opens");
    let run = Run::new(Model::default());
    for _ in 0..20 {
        let call = run.acked.call(15, 0x201, 5);
        let Call::Append(mut entries) = call else { panic!("an append was asked for") };
        for (i, entry) in entries.iter_mut().enumerate() {
            entry.pos.index = log.last().map_or(1, |pos| pos.index + 1) + i as u64;
        }
        perform(&log, &Call::Append(entries)).expect("appends");
    }
    let first = Path::new(DIR).join("0000000000000001.log");
    assert!(disk.open(&first).is_ok());
    disk.flip(&first, 4096 + 60, 3);
    let error = log.read(1..3, usize::MAX).expect_err("damage is noticed when it is read");
    assert!(matches!(&error, LogError::Damaged { file, offset: 4096, .. } if *file == first), "{error}");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(matches!(perform(&log, &VOTE), Err(LogError::Poisoned(_))));
}
