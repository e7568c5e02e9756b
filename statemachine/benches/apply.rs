//! The cost of `apply` over a store in memory: a submit of five tasks, a task from dispatch to end, and the cost per
//! task of a run of 10,000 against one of 1,000.

use std::hint::black_box;

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{MemStore, apply};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

struct Log {
    store: MemStore,
    index: u64,
    requests: bool,
}

impl Log {
    fn new() -> Log {
        Log { store: MemStore::new(), index: 0, requests: false }
    }

    fn entry(&mut self, kinds: Vec<Kind>) {
        self.index += 1;
        let entry = self.make(kinds);
        black_box(apply(&mut self.store, self.index, &entry).unwrap());
    }

    fn make(&self, kinds: Vec<Kind>) -> Entry {
        let request_id = if self.requests { self.index.to_be_bytes().repeat(2) } else { Vec::new() };
        let commands = kinds.into_iter().map(|kind| Command { kind: Some(kind) }).collect();
        Entry {
            version: 1,
            time_ms: 1_767_225_600_000 + self.index,
            request_id,
            actor: "bench".into(),
            commands,
        }
    }
}

fn workflow(name: &str, needs: Vec<Vec<u32>>) -> Kind {
    let tasks = needs.into_iter().enumerate().map(|(index, needs)| Task {
        name: format!("task-{index}"),
        needs,
        executor: Some(task::Executor::Run("./extract.sh \"$DATE\" > \"$CLAWHIVE_OUTPUT\"".into())),
        env: vec![EnvVar { name: "DATE".into(), value: "{{ params.date }}".into() }],
        retries: Some(Retries { max_attempts: 3, delay_ms: 30_000, ..Retries::default() }),
        timeout: Some(Timeouts { execution_ms: 300_000, grace_ms: 30_000, ..Timeouts::default() }),
        ..Task::default()
    });
    let workflow = Workflow {
        namespace: "default".into(),
        name: name.into(),
        tasks: tasks.collect(),
        ..Workflow::default()
    };
    Kind::PutWorkflow(PutWorkflow { workflow: Some(workflow), hash: vec![1; 32], ..PutWorkflow::default() })
}

fn submit(name: &str) -> Kind {
    Kind::SubmitRun(SubmitRun {
        namespace: "default".into(),
        workflow: name.into(),
        params: [("date".to_string(), "\"2026-01-01\"".to_string())].into(),
        body_hash: vec![1; 32],
        ..SubmitRun::default()
    })
}

fn claw(log: &mut Log) {
    let incarnation = vec![1; 16];
    let (slots, lease_ms) = (1_000, 5_000);
    log.entry(vec![Kind::RegisterClaw(RegisterClaw {
        claw: 1,
        incarnation,
        slots,
        lease_ms,
        ..RegisterClaw::default()
    })]);
}

fn grant(run: u64, task: u32) -> Kind {
    Kind::AssignTasks(AssignTasks { grants: vec![Grant { run, task, attempt: 1, claw: 1, resolved: None }] })
}

fn complete(run: u64, task: u32, fence: u64) -> Kind {
    Kind::CompleteTask(CompleteTask { run, task, attempt: 1, fence, outputs_json: String::new() })
}

fn five() -> Vec<Vec<u32>> {
    vec![vec![], vec![0], vec![0], vec![1, 2], vec![3]]
}

fn submits(criterion: &mut Criterion) {
    let mut log = Log::new();
    log.requests = true;
    log.entry(vec![workflow("five", five())]);
    criterion.bench_function("submit, 5 tasks", |bencher| bencher.iter(|| log.entry(vec![submit("five")])));
}

/// A whole run of five tasks: submit, and an entry each for grant, start and end of every task.
fn whole_runs(criterion: &mut Criterion) {
    let mut log = Log::new();
    log.entry(vec![workflow("five", five())]);
    claw(&mut log);
    let mut run = 0;
    criterion.bench_function("whole run, 5 tasks, 16 entries", |bencher| {
        bencher.iter(|| {
            log.entry(vec![submit("five")]);
            run += 1;
            for task in 0..5 {
                log.entry(vec![grant(run, task)]);
                let fence = log.index;
                log.entry(vec![Kind::StartTask(StartTask { run, task, attempt: 1, fence })]);
                log.entry(vec![complete(run, task, fence)]);
            }
        });
    });
}

/// One task of a large run that fans out of nothing and into one: grant and end, in two entries.
fn per_task(criterion: &mut Criterion) {
    for width in [1_000u32, 10_000] {
        let mut needs: Vec<Vec<u32>> = vec![Vec::new(); width as usize];
        needs.push((0..width).collect());
        let mut log = Log::new();
        log.entry(vec![workflow("wide", needs)]);
        claw(&mut log);
        log.entry(vec![submit("wide")]);
        let mut task = 0;
        let mut run = 1;
        criterion.bench_function(&format!("one task of {width}"), |bencher| {
            bencher.iter_batched(
                || {
                    task += 1;
                    task - 1
                },
                |task_of_all| {
                    // All but the last task of a run can be used; then the next run is begun.
                    let index = task_of_all % (width - 1);
                    if index == 0 && task_of_all > 0 {
                        log.entry(vec![submit("wide")]);
                        run += 1;
                    }
                    log.entry(vec![grant(run, index)]);
                    let fence = log.index;
                    log.entry(vec![complete(run, index, fence)]);
                },
                BatchSize::PerIteration,
            );
        });
    }
}

criterion_group!(benches, submits, whole_runs, per_task);
criterion_main!(benches);
