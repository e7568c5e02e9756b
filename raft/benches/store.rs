//! What applying costs while the flusher moves the overlay to disk, and the longest pause that a batch of commands met.
//! Apply must not wait for a commit: its longest pause stays far below the time of one.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clawhive_proto::prost::Message;
use clawhive_proto::{Command, Entry, PutKey, PutWorkflow, SubmitRun, Task, Workflow, command, task};
use clawhive_raft::{Options, SoloState};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const BATCH: u64 = 256;

fn encoded(n: u64, kind: command::Kind) -> Bytes {
    let entry = Entry {
        version: 1,
        time_ms: 1_700_000_000_000 + n,
        request_id: u128::from(n).to_be_bytes().to_vec(),
        actor: "bench".to_owned(),
        commands: vec![Command { kind: Some(kind) }],
    };
    entry.encode_to_vec().into()
}

fn put(n: u64) -> Bytes {
    // Keys all over the place, values of 256 bytes: many pages for each commit.
    let key = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    encoded(
        n,
        command::Kind::PutKey(PutKey { namespace: "bench".to_owned(), key, value: vec![7; 256].into() }),
    )
}

fn workflow() -> Bytes {
    let task = |n: u32, needs: &[u32]| Task {
        name: format!("task-{n}"),
        needs: needs.to_vec(),
        executor: Some(task::Executor::Run("true".to_owned())),
        ..Task::default()
    };
    let workflow = Workflow {
        namespace: "bench".to_owned(),
        name: "five".to_owned(),
        tasks: vec![task(0, &[]), task(1, &[0]), task(2, &[0]), task(3, &[0]), task(4, &[1, 2, 3])],
        ..Workflow::default()
    };
    encoded(
        1,
        command::Kind::PutWorkflow(PutWorkflow {
            workflow: Some(workflow),
            hash: vec![1; 32],
            ..PutWorkflow::default()
        }),
    )
}

fn submit(n: u64) -> Bytes {
    let submit =
        SubmitRun { namespace: "bench".to_owned(), workflow: "five".to_owned(), ..SubmitRun::default() };
    encoded(n, command::Kind::SubmitRun(submit))
}

/// One state with its flusher, and the pauses its batches met.
struct Subject {
    state: SoloState,
    _dir: tempfile::TempDir,
    next: u64,
    longest: Duration,
    commits: Vec<u64>,
}

impl Subject {
    fn new() -> Subject {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options { dir: dir.path().to_owned(), node_id: 1, ..Options::default() };
        let state = SoloState::open(&options, Arc::new(|reason| panic!("{reason}")), true).expect("it opens");
        state.apply(1, [workflow()]).expect("it applies");
        Subject { state, _dir: dir, next: 2, longest: Duration::ZERO, commits: Vec::new() }
    }

    /// Commands, commits and pauses, with the time of one more commit beside them.
    fn report(&mut self) -> String {
        let begin = Instant::now();
        self.state.flush().expect("it flushes");
        let (commands, commits, longest) = (self.next, self.commits.len(), self.longest);
        let last = begin.elapsed();
        format!(
            "{commands} commands, {commits} commits, longest batch of {BATCH} {longest:?}, last commit {last:?}"
        )
    }

    fn batch(&mut self, make: fn(u64) -> Bytes) -> Duration {
        let entries: Vec<Bytes> = (self.next..self.next + BATCH).map(make).collect();
        let begin = Instant::now();
        black_box(self.state.apply(self.next, entries).expect("it applies"));
        let took = begin.elapsed();
        self.next += BATCH;
        self.longest = self.longest.max(took);
        let durable = self.state.durable_index();
        if self.commits.last() != Some(&durable) {
            self.commits.push(durable);
        }
        took
    }
}

fn apply(c: &mut Criterion) {
    let mut group = c.benchmark_group("apply");
    group.throughput(Throughput::Elements(BATCH)).sample_size(20).measurement_time(Duration::from_secs(10));
    for (name, make) in [("put 256 B", put as fn(u64) -> Bytes), ("submit of 5 tasks", submit)] {
        let mut subject = Subject::new();
        group.bench_function(name, |b| {
            b.iter_custom(|batches| (0..batches).map(|_| subject.batch(make)).sum())
        });
        println!("{name}, flat out (the overlay fills, so apply waits for room): {}", subject.report());
        println!("{name}, 5,000/s: {}", paced(make).report());
    }
    group.finish();
}

/// A rate that the flusher keeps up with: here nothing may wait for a commit.
fn paced(make: fn(u64) -> Bytes) -> Subject {
    let mut subject = Subject::new();
    let begin = Instant::now();
    for batch in 1..=120 {
        subject.batch(make);
        let due = Duration::from_micros(batch * BATCH * 200);
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    subject
}

criterion_group!(benches, apply);
criterion_main!(benches);
