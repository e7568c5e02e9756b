//! Appends of 1 KiB to the log, with 1, 64 and 512 in flight, beside what the disk gives without a log: one
//! write and one fdatasync for as many bytes as are in flight, in a file that was zeroed before.
//!
//! The bare loop is a bound for 1 in flight; with more the log may beat it, since it makes its own batches.
//! Absolute values are the disk's: compare within one run.

use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clawhive_raft::disk::{Disk, DiskFile, RealDisk};
use clawhive_raft::log::{LogEntry, LogOptions, LogPos, SegmentLog};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const ENTRY: usize = 1024;
const FLIGHTS: [usize; 3] = [1, 64, 512];
/// How many entries the log keeps: purging is part of its work.
const KEEP: u64 = 50_000;
const SEGMENT: u64 = 64 << 20;

struct Ours {
    log: SegmentLog,
    next: u64,
}

impl Ours {
    fn open(dir: &Path) -> Ours {
        let fatal = Arc::new(|error: &_| panic!("{error}"));
        let log = SegmentLog::open(Arc::new(RealDisk), dir, LogOptions::default(), fatal);
        Ours { log: log.expect("the log opens"), next: 1 }
    }

    /// Appends `count` entries, each an append of its own, with at most `flight` unanswered.
    fn append(&mut self, count: u64, flight: usize, payload: &Bytes) -> Duration {
        let (tx, rx) = mpsc::channel();
        let start = Instant::now();
        let mut unanswered = 0;
        for _ in 0..count {
            if unanswered == flight {
                rx.recv().expect("an answer");
                unanswered -= 1;
            }
            // Take what else was answered, as concurrent clients would.
            while rx.try_recv().is_ok() {
                unanswered -= 1;
            }
            let pos = LogPos { term: 1, node: 1, index: self.next };
            self.next += 1;
            let tx = tx.clone();
            let done = move |result: Result<(), _>| {
                result.expect("durable");
                tx.send(()).expect("somebody waits");
            };
            let entry = LogEntry { pos, tag: 1, payload: payload.clone() };
            self.log.append(vec![entry], Box::new(done)).expect("appends");
            unanswered += 1;
            if self.next.is_multiple_of(4096) && self.next > KEEP {
                let upto = LogPos { term: 1, node: 1, index: self.next - KEEP };
                self.log.purge(upto, Box::new(drop)).expect("purges");
            }
        }
        drop(tx);
        for () in rx {}
        start.elapsed()
    }
}

/// A file of zeroes that is written over and over.
struct Bare {
    file: Arc<dyn DiskFile>,
    at: u64,
}

impl Bare {
    fn open(dir: &Path) -> Bare {
        let file = RealDisk.create(&dir.join("bare")).expect("creates");
        let zeroes = vec![0; 1 << 20];
        for at in (0..SEGMENT).step_by(zeroes.len()) {
            file.write_at(&zeroes, at).expect("writes");
        }
        file.sync_data().expect("syncs");
        Bare { file, at: 0 }
    }

    fn append(&mut self, count: u64, flight: usize) -> Duration {
        let batch = vec![7; flight * ENTRY];
        let start = Instant::now();
        for _ in 0..count.div_ceil(flight as u64) {
            if self.at + batch.len() as u64 > SEGMENT {
                self.at = 0;
            }
            self.file.write_at(black_box(&batch), self.at).expect("writes");
            self.file.sync_data().expect("syncs");
            self.at += batch.len() as u64;
        }
        start.elapsed()
    }
}

fn appends(criterion: &mut Criterion) {
    let dir = tempfile::tempdir_in(".").expect("a directory");
    let payload = Bytes::from(vec![0x5a; ENTRY]);
    let mut ours = Ours::open(&dir.path().join("log"));
    let mut bare = Bare::open(dir.path());
    for flight in FLIGHTS {
        let mut group = criterion.benchmark_group(format!("append_1k_{flight}"));
        group.throughput(Throughput::Elements(1)).sample_size(20).measurement_time(Duration::from_secs(3));
        group.bench_function("log", |b| b.iter_custom(|count| ours.append(count, flight, &payload)));
        group.bench_function("bare", |b| b.iter_custom(|count| bare.append(count, flight)));
        group.finish();
    }
}

criterion_group!(benches, appends);
criterion_main!(benches);
