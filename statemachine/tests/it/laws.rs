//! The invariants see damage: each law is broken once, by hand.

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::prost::Message;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{MemStore, ReadStore, Store, Table, invariant, key};

use crate::cluster::{Cluster, put, register, submit, task, workflow};

/// Run 1: a and e running, b retrying, c held, d pending, q in the queue with a timer. Run 2 has ended.
fn state() -> MemStore {
    let mut cluster = Cluster::new();
    let mut tasks = vec![
        task("a", &[]),
        task("b", &[]),
        task("e", &[]),
        task("q", &[]),
        task("c", &[]),
        task("d", &[0, 1]),
    ];
    tasks[1].retries = Some(Retries { max_attempts: 2, delay_ms: 9_000, ..Retries::default() });
    tasks[3].timeout = Some(Timeouts { queue_ms: 60_000, ..Timeouts::default() });
    let mut busy = workflow("busy", tasks);
    busy.max_parallel = 3;
    busy.timeout_ms = 100_000;
    cluster.run(put(busy));
    cluster.run(put(workflow("done", vec![task("t", &[])])));
    cluster.run(register(1, 1, 8));
    let mut keyed = submit("busy");
    if let Kind::SubmitRun(submit) = &mut keyed {
        submit.idempotency_key = "k".into();
    }
    cluster.entry(&[5; 16], vec![Command { kind: Some(keyed) }]);
    cluster.run(submit("done"));
    let grant = |run, task| Grant { run, task, attempt: 1, claw: 1, resolved: None };
    let grants = vec![grant(1, 0), grant(1, 1), grant(1, 2), grant(2, 0)];
    cluster.run(Kind::AssignTasks(AssignTasks { grants }));
    let fence = cluster.log.len() as u64;
    let outputs_json = "{}".to_string();
    cluster.run(Kind::CompleteTask(CompleteTask { run: 2, task: 0, attempt: 1, fence, outputs_json }));
    let reason = Reason::Exit as i32;
    cluster.run(Kind::FailTask(FailTask {
        run: 1,
        task: 1,
        attempt: 1,
        fence,
        reason,
        ..FailTask::default()
    }));
    cluster.run(Kind::StartTask(StartTask { run: 1, task: 0, attempt: 1, fence }));
    cluster.store
}

fn laws_broken_by(damage: impl FnOnce(&mut MemStore)) -> Vec<&'static str> {
    let mut store = state();
    assert_eq!(invariant::check(&store), Ok(()));
    damage(&mut store);
    invariant::check(&store).unwrap_err().into_iter().map(|violation| violation.law).collect()
}

fn edit<R: Message + Default>(store: &mut MemStore, table: Table, key: &[u8], edit: impl FnOnce(&mut R)) {
    let mut row = R::decode(store.get(table, key).expect("there is such a row")).unwrap();
    edit(&mut row);
    store.put(table, key, row.encode_to_vec().into());
}

fn delete_first(store: &mut MemStore, table: Table) {
    let mut first = None;
    store.scan(table, &[], None, &mut |key, _| {
        first = Some(key.to_vec());
        std::ops::ControlFlow::Break(())
    });
    store.delete(table, &first.expect("there is such a row"));
}

#[test]
fn missing_rows_are_seen() {
    for (table, law) in [
        (Table::Ready, "the ready index holds the ready tasks"),
        (Table::Held, "the held queue holds the held tasks"),
        (Table::Timers, "timers are those that the tasks and runs wait for"),
        (Table::Assignments, "a task has one assignment while dispatched or running"),
        (Table::Attempts, "attempts are contiguous"),
        (Table::Active, "active runs are those that have not ended"),
        (Table::Finished, "finished runs are those that have ended"),
        (Table::RequestExpiry, "request ids and their index of ends agree"),
        (Table::IdempotencyExpiry, "idempotency keys and their index of ends agree"),
        (Table::Claws, "an assignment has a claw"),
        (Table::Runs, "a task has a run"),
        (Table::Specs, "a task has a definition"),
        (Table::Tasks, "a run has all its tasks"),
    ] {
        let broken = laws_broken_by(|store| delete_first(store, table));
        assert!(broken.contains(&law), "{table:?}: {broken:?}");
    }
}

#[test]
fn wrong_counts_are_seen() {
    type Edit = fn(&mut RunRow);
    let edits: [(Edit, &str); 5] = [
        (|run| run.unfinished -= 1, "unfinished tasks are counted"),
        (|run| run.failed += 1, "failed tasks are counted"),
        (|run| run.succeeded += 1, "succeeded tasks are counted"),
        (|run| run.admitted += 1, "admitted tasks are counted"),
        (|run| run.max_parallel = 2, "max_parallel is kept"),
    ];
    for (change, law) in edits {
        let broken = laws_broken_by(|store| edit(store, Table::Runs, &key::run(1.into()), change));
        assert!(broken.contains(&law), "{law}: {broken:?}");
    }
    let claw = key::claw(1.into());
    let broken = laws_broken_by(|store| edit(store, Table::Claws, &claw, |row: &mut ClawRow| row.used += 1));
    assert!(broken.contains(&"slots used are the live assignments"), "{broken:?}");
    let broken = laws_broken_by(|store| edit(store, Table::Claws, &claw, |row: &mut ClawRow| row.slots = 1));
    assert!(broken.contains(&"no claw uses more slots than it has"), "{broken:?}");
}

#[test]
fn wrong_tasks_are_seen() {
    type Edit = fn(&mut TaskRow);
    let edits: [(u32, Edit, &str); 6] = [
        (5, |task| task.remaining = 1, "remaining upstreams are counted"),
        (5, |task| task.failed_upstreams = 1, "failed upstreams are counted"),
        (5, |task| task.set_state(TaskState::Running), "no child before its parents succeeded"),
        (0, |task| task.fence += 1, "an assignment is of a task that is held under its token"),
        (0, |task| task.attempt += 1, "attempts are contiguous"),
        (1, |task| task.timer_due_ms = 0, "a task has a timer when it waits for one"),
    ];
    for (index, change, law) in edits {
        let at = key::task(1.into(), index.into());
        let broken = laws_broken_by(|store| edit(store, Table::Tasks, &at, change));
        assert!(broken.contains(&law), "{law}: {broken:?}");
    }
    let at = key::run(2.into());
    let broken =
        laws_broken_by(|store| edit(store, Table::Runs, &at, |run: &mut RunRow| run.ended_at_ms += 1));
    assert!(broken.contains(&"finished runs are those that have ended"), "{broken:?}");
    let broken = laws_broken_by(|store| {
        let timer = key::timer(u64::MAX, TimerKind::RunTimeout, 2.into(), 0.into());
        store.put(Table::Timers, &timer, Vec::new().into());
    });
    assert!(broken.contains(&"a run that has ended has no timers"), "{broken:?}");
    let broken = laws_broken_by(|store| {
        store.put(
            Table::Outputs,
            &key::task(1.into(), 0.into()),
            OutputRow::default().encode_to_vec().into(),
        );
    });
    assert!(broken.contains(&"only a task that succeeded has outputs"), "{broken:?}");
}
