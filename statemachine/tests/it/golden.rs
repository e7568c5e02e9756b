//! The bytes of every command and every row, as they are in logs and stores that exist. A difference here is a change
//! of format: field numbers are never reused, and old bytes must read as before. `CLAWHIVE_REWRITE=1` writes files
//! that are missing; it never changes one.

mod schedules;

use std::fmt::Write;
use std::path::PathBuf;

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::prost::Message;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{Table, key};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.trim().as_bytes();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

pub(crate) fn fixed(name: &str, encoded: &[u8]) -> Vec<u8> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "testdata", "golden", &format!("{name}.hex")].iter().collect();
    if !path.exists() && std::env::var_os("CLAWHIVE_REWRITE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("{}\n", hex(encoded))).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text.trim(), hex(encoded), "{name} is encoded otherwise than before");
    bytes(&text)
}

/// The message is encoded as before, and the bytes of before read as this message.
pub(crate) fn golden<M: Message + Default + PartialEq + std::fmt::Debug>(name: &str, message: M) {
    let stored = fixed(name, &message.encode_to_vec());
    assert_eq!(M::decode(&stored[..]).unwrap(), message, "{name} reads otherwise than before");
}

pub(crate) fn full_task() -> Task {
    Task {
        name: "clean".into(),
        title: "Clean it".into(),
        needs: vec![0, 2],
        env: vec![EnvVar { name: "A".into(), value: "{{ params.a }}".into() }],
        outputs: vec![Output { name: "path".into(), r#type: ValueType::String as i32 }],
        retries: Some(Retries {
            max_attempts: 4,
            delay_ms: 30_000,
            backoff: Backoff::Linear as i32,
            max_delay_ms: 600_000,
            jitter_permille: 200,
        }),
        timeout: Some(Timeouts { queue_ms: 1, execution_ms: 2, grace_ms: 3 }),
        templated: true,
        delivery: Delivery::AtLeastOnce as i32,
        executor: Some(task::Executor::Process(Process {
            command: vec!["./clean".into(), "-v".into()],
            working_dir: "/srv".into(),
        })),
    }
}

fn full_workflow() -> Workflow {
    Workflow {
        namespace: "data".into(),
        name: "etl".into(),
        title: "ETL".into(),
        labels: [("team".to_string(), "bi".to_string())].into(),
        params: vec![Param {
            name: "a".into(),
            r#type: ValueType::Integer as i32,
            default_json: Some("1".into()),
            description: "how many".into(),
        }],
        priority: 5,
        max_parallel: 7,
        timeout_ms: 9,
        on_failure: OnFailure::Stop as i32,
        tasks: vec![
            Task {
                name: "shell".into(),
                executor: Some(task::Executor::Run("true".into())),
                ..Task::default()
            },
            full_task(),
        ],
        ..Workflow::default()
    }
}

#[test]
fn commands() {
    let labels = || [("zone".to_string(), "a".to_string())].into();
    let id = || (0..16).collect::<Vec<u8>>();
    let grant = Grant { run: 1, task: 2, attempt: 3, claw: 4, resolved: Some(full_task()) };
    let timer = TimerKey { due_ms: 1, kind: TimerKind::QueueTimeout as i32, run: 2, task: 3 };
    let commands = [
        (
            "register_claw",
            Kind::RegisterClaw(RegisterClaw {
                claw: 1,
                incarnation: id(),
                slots: 8,
                lease_ms: 5_000,
                labels: labels(),
                version: "0.1.0".into(),
            }),
        ),
        ("expire_claw", Kind::ExpireClaw(ExpireClaw { claw: 1, incarnation: id(), renew_seq: 7 })),
        (
            "renew_leases",
            Kind::RenewLeases(RenewLeases { renewals: vec![Renewal { claw: 1, incarnation: id() }] }),
        ),
        (
            "put_workflow",
            Kind::PutWorkflow(PutWorkflow {
                workflow: Some(full_workflow()),
                hash: vec![9; 32],
                ..PutWorkflow::default()
            }),
        ),
        (
            "submit_run",
            Kind::SubmitRun(SubmitRun {
                namespace: "data".into(),
                workflow: "etl".into(),
                version: 3,
                params: labels(),
                idempotency_key: "k".into(),
                body_hash: vec![8; 32],
                labels: labels(),
            }),
        ),
        ("assign_tasks", Kind::AssignTasks(AssignTasks { grants: vec![grant] })),
        ("start_task", Kind::StartTask(StartTask { run: 1, task: 2, attempt: 3, fence: 4 })),
        (
            "complete_task",
            Kind::CompleteTask(CompleteTask {
                run: 1,
                task: 2,
                attempt: 3,
                fence: 4,
                outputs_json: "{}".into(),
            }),
        ),
        (
            "fail_task",
            Kind::FailTask(FailTask {
                run: 1,
                task: 2,
                attempt: 3,
                fence: 4,
                reason: Reason::Exit as i32,
                exit_code: Some(-1),
                signal: Some(9),
                message: "no".into(),
                never_started: false,
            }),
        ),
        ("fire_timers", Kind::FireTimers(FireTimers { timers: vec![timer] })),
        ("cancel_run", Kind::CancelRun(CancelRun { run: 1, reason: "enough".into() })),
        ("collect", Kind::Collect(Collect { limit: 1 })),
        ("advance", Kind::Advance(Advance { limit: 1 })),
        (
            "add_node",
            Kind::AddNode(AddNode {
                join_id: id(),
                node: 1,
                listen: "a:1".into(),
                peer_listen: "a:2".into(),
                role: NodeRole::Claw as i32,
                version: "0.1.0".into(),
                level: 0,
            }),
        ),
        (
            "put_key",
            Kind::PutKey(PutKey { namespace: "n".into(), key: "k".into(), value: vec![0, 255].into() }),
        ),
        ("delete_key", Kind::DeleteKey(DeleteKey { namespace: "n".into(), key: "k".into() })),
    ];
    assert_eq!(commands.len(), 16, "each command of level 1 has its bytes here");
    for (name, kind) in commands {
        golden(&format!("command/{name}"), Command { kind: Some(kind) });
    }
    golden(
        "command/entry",
        Entry {
            version: 1,
            time_ms: 1_767_225_600_000,
            request_id: id(),
            actor: "cli".into(),
            commands: vec![Command { kind: Some(Kind::Advance(Advance { limit: 1 })) }],
        },
    );
    golden(
        "command/outcomes",
        Outcomes {
            outcomes: [
                outcome::Kind::Done(Done {}),
                outcome::Kind::Rejected(Rejection {
                    code: RejectionCode::StaleFence as i32,
                    message: "m".into(),
                }),
                outcome::Kind::RunSubmitted(RunSubmitted { run: 1, replayed: true, version: 2 }),
                outcome::Kind::WorkflowPut(WorkflowPut { version: 1, created: true }),
                outcome::Kind::NodeAdded(NodeAdded { node: 1 }),
                outcome::Kind::Progress(Progress { done: 1, more: true }),
                outcome::Kind::Granted(Granted { granted: 1, stale: 2 }),
            ]
            .map(|kind| Outcome { kind: Some(kind) })
            .into(),
            first_index: 0,
        },
    );
}

#[test]
fn membership() {
    let (node, role) = (300, NodeRole::Claw as i32);
    for (name, kind) in [
        ("remove_node", Kind::RemoveNode(RemoveNode { node })),
        ("set_node_role", Kind::SetNodeRole(SetNodeRole { node, role })),
        ("set_node_state", Kind::SetNodeState(SetNodeState { node, state: NodeState::Draining as i32 })),
    ] {
        golden(&format!("command/{name}"), Command { kind: Some(kind) });
    }
    golden("row/node_draining", NodeRow { state: NodeState::Draining as i32, ..NodeRow::default() });
    golden("row/removed", RemovedRow { join_id: vec![1; 16], peer_listen: "a:2".into(), removed_at_ms: 5 });
}

#[test]
fn rows() {
    let labels = || [("zone".to_string(), "a".to_string())].into();
    golden(
        "row/meta",
        Meta {
            last_time_ms: 1,
            next_run: 2,
            next_workflow: 3,
            next_ready: 4,
            next_backlog: 5,
            ..Meta::default()
        },
    );
    golden("row/workflow", WorkflowRow { uid: 1, latest_version: 2, latest_hash: vec![3; 32] });
    golden(
        "row/version",
        VersionRow {
            header: Some(Workflow { tasks: vec![], ..full_workflow() }),
            hash: vec![3; 32],
            created_at_ms: 1,
            tasks: 2,
            edges: 3,
        },
    );
    golden("row/spec", SpecRow { task: Some(full_task()), dependents: vec![3, 300] });
    let stop =
        Stop { state: RunState::Failed as i32, reason: Reason::RunTimeout as i32, message: "m".into() };
    golden(
        "row/run",
        RunRow {
            namespace: "data".into(),
            workflow: "etl".into(),
            workflow_uid: 1,
            version: 2,
            state: RunState::Running as i32,
            reason: Reason::TaskFailed as i32,
            params: labels(),
            created_at_ms: 3,
            started_at_ms: 4,
            ended_at_ms: 5,
            idempotency_key: "k".into(),
            log_index: 6,
            priority: 7,
            max_parallel: 8,
            on_failure: OnFailure::Stop as i32,
            timeout_ms: 9,
            tasks: 10,
            unfinished: 11,
            failed: 12,
            admitted: 13,
            stop: Some(stop),
            labels: labels(),
            succeeded: 14,
            held: 15,
            ..RunRow::default()
        },
    );
    golden(
        "row/task",
        TaskRow {
            state: TaskState::Retrying as i32,
            reason: Reason::Signal as i32,
            remaining: 1,
            failed_upstreams: 2,
            attempt: 3,
            tries: 4,
            losses: 5,
            fence: 6,
            claw: 7,
            ready_seq: 8,
            held: true,
            ready_at_ms: 9,
            started_at_ms: 10,
            ended_at_ms: 11,
            timer_due_ms: 12,
            message: "m".into(),
        },
    );
    golden(
        "row/attempt",
        AttemptRow {
            state: AttemptState::Failed as i32,
            reason: Reason::Exit as i32,
            claw: 1,
            fence: 2,
            exit_code: Some(-3),
            signal: Some(0),
            dispatched_at_ms: 4,
            started_at_ms: 5,
            ended_at_ms: 6,
            message: "m".into(),
        },
    );
    golden(
        "row/assignment",
        AssignmentRow {
            attempt: 1,
            resolved: Some(full_task()),
            stop: true,
            stop_reason: Reason::Stopped as i32,
        },
    );
    golden("row/output", OutputRow { json: "{\"a\":1}".into() });
    golden(
        "row/claw",
        ClawRow {
            incarnation: vec![1; 16],
            slots: 2,
            used: 1,
            lease_ms: 5_000,
            renew_seq: 3,
            renewed_at_ms: 4,
            state: ClawState::Down as i32,
            labels: labels(),
            version: "0.1.0".into(),
            remaining_ms: None,
        },
    );
    golden(
        "row/node",
        NodeRow {
            join_id: vec![1; 16],
            listen: "a:1".into(),
            peer_listen: "a:2".into(),
            role: NodeRole::Claw as i32,
            version: "0.1.0".into(),
            added_at_ms: 5,
            state: 0,
        },
    );
    golden("row/timer", TimerRow {});
    golden(
        "row/backlog_edges",
        BacklogRow { kind: Some(backlog_row::Kind::Edges(Edges { run: 1, task: 2, from: 3 })) },
    );
    golden(
        "row/backlog_sweep",
        BacklogRow { kind: Some(backlog_row::Kind::Sweep(Sweep { run: 1, from: 3 })) },
    );
    golden("row/backlog_drop", BacklogRow { kind: Some(backlog_row::Kind::Drop(Drop { run: 1, from: 3 })) });
    golden("row/request", RequestRow { expires_ms: 1, outcomes: vec![10, 0].into(), log_index: 2 });
    golden("row/idempotency", IdempotencyRow { run: 1, version: 2, body_hash: vec![3; 32], expires_ms: 4 });
    golden(
        "row/cluster",
        ClusterRow { suspended: true, restored_from: vec![7; 16], restored_index: 2, restored_at_ms: 3 },
    );
    golden("row/key", KeyRow { value: vec![1, 2].into(), created_at: 3, modified_at: 4, version: 0 });
    golden(
        "row/event_batch",
        EventBatch {
            time_ms: 1,
            actor: "cli".into(),
            events: vec![Event {
                kind: EventKind::TaskFailed as i32,
                run: 1,
                task_plus_1: 2,
                attempt: 3,
                claw: 4,
                reason: Reason::Exit as i32,
                detail: "d".into(),
                ..Event::default()
            }],
        },
    );
}

#[test]
fn keys_and_table_numbers() {
    let (run, index, claw) = (1.into(), 2.into(), 3.into());
    let keys: Vec<(Table, Vec<u8>)> = vec![
        (Table::Meta, key::META.into()),
        (Table::Workflows, key::workflow("data", "etl")),
        (Table::Versions, key::version(1.into(), 2.into()).into()),
        (Table::Specs, key::spec(1.into(), 2.into(), 3.into()).into()),
        (Table::Runs, key::run(run).into()),
        (Table::Tasks, key::task(run, index).into()),
        (Table::Attempts, key::attempt(run, index, 3.into()).into()),
        (Table::Ready, key::ready(5, 7).into()),
        (Table::Held, key::held(run, 7).into()),
        (Table::Assignments, key::assignment(claw, 9.into(), run, index).into()),
        (Table::Timers, key::timer(9, TimerKind::Retry, run, index).into()),
        (Table::Backlog, key::backlog(4).into()),
        (Table::Outputs, key::task(run, index).into()),
        (Table::Claws, key::claw(claw).into()),
        (Table::Nodes, key::node(5.into()).into()),
        (Table::Joins, vec![6; 16]),
        (Table::Requests, vec![7; 16]),
        (Table::RequestExpiry, key::request_expiry(8, &[7; 16])),
        (Table::Idempotency, key::idempotency("data", "k")),
        (Table::IdempotencyExpiry, key::idempotency_expiry(8, "data", "k")),
        (Table::Events, key::event(9).into()),
        (Table::RunEvents, key::run_event(run, 9).into()),
        (Table::Finished, key::finished(8, run).into()),
        (Table::Active, key::run(run).into()),
        (Table::Keys, key::key("data", "k")),
        (Table::Removed, key::node(5.into()).into()),
    ];
    let of_level_1 = keys.iter().filter(|(table, _)| *table <= Table::Keys).count();
    assert_eq!(of_level_1, 25, "each table of level 1 has its key here");
    fixed("keys", &all_keys(keys));
    fixed("ready_value", &key::task(run, index));
    fixed("held_value", &key::held_value(index));
}

/// The numbers of tables, each with a key of it.
fn all_keys(keys: Vec<(Table, Vec<u8>)>) -> Vec<u8> {
    let mut all = Vec::new();
    for (table, key) in keys {
        assert_eq!(Table::from_number(table.number()), Some(table));
        if table == Table::Removed {
            // Tables of later levels do not change the file of level 1.
            fixed(&format!("key/{}", table.number()), &key);
            continue;
        }
        all.push(table.number());
        all.push(key.len() as u8);
        all.extend_from_slice(&key);
    }
    all
}

#[test]
fn levels() {
    golden("command/raise_level", Command { kind: Some(Kind::RaiseLevel(RaiseLevel { level: 2 })) });
    golden("row/meta_level", Meta { level: 2, ..Meta::default() });
}

#[test]
fn commands_of_snapshots_and_digests() {
    let id = || (0..16).collect::<Vec<u8>>();
    for (name, kind) in [
        ("take_digest", Kind::TakeDigest(TakeDigest {})),
        ("state_digest", Kind::StateDigest(StateDigest { at_index: 7, digest: id() })),
        (
            "restore_cluster",
            Kind::RestoreCluster(RestoreCluster { join_id: id(), from_cluster: id(), from_index: 9 }),
        ),
        ("resume_cluster", Kind::ResumeCluster(ResumeCluster {})),
    ] {
        golden(&format!("command/{name}"), Command { kind: Some(kind) });
    }
}

#[test]
fn the_table_of_the_cluster() {
    assert_eq!((Table::Cluster.number(), key::CLUSTER.len()), (28, 0));
    assert_eq!(Table::from_number(28), Some(Table::Cluster));
}
