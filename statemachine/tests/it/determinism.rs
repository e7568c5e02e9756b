//! The same log gives the same bytes: in another store, read back from its encoding, and from any point of a crash.

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::prost::Message;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{MemStore, Store, apply, dump, plan};
use plan::assign::AssignInput;

use crate::cluster::{Cluster, put, raised_store, register, rows, submit, task, workflow};

/// A log with some of everything.
fn busy_log() -> (Vec<Entry>, MemStore) {
    let mut cluster = Cluster::new();
    let mut diamond = workflow(
        "diamond",
        vec![task("a", &[]), task("b", &[0]), task("c", &[0]), task("d", &[1, 2]), task("e", &[])],
    );
    diamond.max_parallel = 2;
    diamond.timeout_ms = 60_000;
    diamond.labels = [("team".to_string(), "x".to_string()), ("a".to_string(), "b".to_string())].into();
    for task in &mut diamond.tasks {
        task.retries =
            Some(Retries { max_attempts: 2, delay_ms: 1_000, jitter_permille: 200, ..Retries::default() });
    }
    cluster.run(put(diamond));
    cluster.run(register(1, 1, 2));
    cluster.run(register(2, 1, 2));
    let live = [1, 2].into();
    for round in 0..60u64 {
        cluster.now += 700;
        let command = |kind| Command { kind: Some(kind) };
        match round % 6 {
            0 => {
                let request = round.to_be_bytes().repeat(2);
                cluster.entry(&request, vec![command(submit("diamond")), command(submit("diamond"))]);
                cluster.entry(&request, vec![command(submit("diamond"))]);
            }
            3 if round % 4 == 1 => {
                cluster.run(register(2, round as u8, 3));
            }
            4 => {
                cluster.run(Kind::CancelRun(CancelRun { run: round / 3, reason: "because".into() }));
            }
            _ => {}
        }
        if let Some(fire) = plan::fire::plan(&cluster.store, cluster.now, 100).command {
            cluster.run(Kind::FireTimers(fire));
        }
        let input = AssignInput { live: &live, leader: 1, limit: 3 };
        let grants = plan::assign::plan(&cluster.store, &input);
        cluster.run(Kind::AssignTasks(AssignTasks { grants }));
        for claw in [1u64, 2] {
            let held = clawhive_statemachine::read::assignments_of(&cluster.store, claw.into());
            let mut commands = Vec::new();
            for (number, (at, row)) in held.into_iter().enumerate() {
                let (run, task, attempt, fence) = (at.run.0, at.task.0, row.attempt, at.fence.0);
                let reason = Reason::Exit as i32;
                commands.push(command(
                    if (run + u64::from(task) + round + number as u64).is_multiple_of(4) {
                        Kind::FailTask(FailTask { run, task, attempt, fence, reason, ..FailTask::default() })
                    } else {
                        let outputs_json = "{\"n\":1}".into();
                        Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json })
                    },
                ));
            }
            cluster.entry(&[], commands);
        }
    }
    (cluster.log, cluster.store)
}

fn replay(mut store: MemStore, log: &[Entry], from: usize) -> MemStore {
    for (index, entry) in log.iter().enumerate().skip(from) {
        apply(&mut store, index as u64 + 1, entry).unwrap();
    }
    store
}

#[test]
fn the_same_log_gives_the_same_bytes() {
    let (log, first) = busy_log();
    assert!(log.len() > 150 && first.len(clawhive_statemachine::Table::Finished) > 5, "the log is too quiet");
    let second = replay(raised_store(), &log, 0);
    assert_eq!(rows(&first), rows(&second));
    // Entries come from the log as bytes.
    let decoded: Vec<Entry> =
        log.iter().map(|entry| Entry::decode(&entry.encode_to_vec()[..]).unwrap()).collect();
    assert_eq!(rows(&replay(raised_store(), &decoded, 0)), rows(&first));
}

#[test]
fn replay_from_any_point_gives_the_same_bytes() {
    let (log, whole) = busy_log();
    let whole = rows(&whole);
    let mut store = raised_store();
    for (index, entry) in log.iter().enumerate() {
        if index % 7 == 0 {
            // A crash: what was durable is copied out row by row, and the log goes on from there.
            let mut restored = MemStore::new();
            dump(&store, &mut |table, key, value| {
                restored.put(table, key, value.to_vec().into());
            });
            assert_eq!(rows(&replay(restored, &log, index)), whole, "from entry {index}");
        }
        apply(&mut store, index as u64 + 1, entry).unwrap();
    }
}

#[test]
fn an_entry_that_halts_names_itself() {
    use clawhive_statemachine::Halt;
    let mut store = MemStore::new();
    let newer = Entry { version: 2, ..Entry::default() };
    assert_eq!(apply(&mut store, 5, &newer), Err(Halt::UnknownVersion { log_index: 5, version: 2 }));
    // A command of a newer binary decodes to none.
    let unknown = Entry { version: 1, commands: vec![Command { kind: None }], ..Entry::default() };
    let halt = apply(&mut store, 6, &unknown).unwrap_err();
    assert_eq!(halt, Halt::UnknownCommand { log_index: 6, position: 0 });
    assert!(halt.to_string().contains("entry 6"));
    assert!(store.is_empty(), "a halt leaves no row");
}
