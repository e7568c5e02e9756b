//! The documents of fixed views: field names and types that programs rely on.

use super::*;
use clawhive_proto::{RunRow, RunState, StateCount, TaskRow, TaskState};
use expect_test::expect;

fn attempt(number: u32) -> AttemptView {
    let row = AttemptRow {
        state: AttemptState::Failed.into(),
        reason: Reason::Exit.into(),
        claw: 1,
        fence: 9_007_199_254_740_993,
        exit_code: Some(3),
        started_at_ms: 1_772_323_200_100,
        ended_at_ms: 1_772_323_200_200,
        ..Default::default()
    };
    AttemptView { number, row: Some(row) }
}

fn view() -> RunView {
    let run = RunRow {
        namespace: "default".into(),
        workflow: "wordfreq".into(),
        version: 2,
        state: RunState::Failed.into(),
        reason: Reason::TaskFailed.into(),
        params: [("n".to_owned(), "3".to_owned()), ("s".to_owned(), "\"x\"".to_owned())].into(),
        created_at_ms: 1_772_323_200_000,
        log_index: 7,
        tasks: 1,
        failed: 1,
        ..Default::default()
    };
    let row = TaskRow {
        state: TaskState::Failed.into(),
        reason: Reason::Exit.into(),
        attempt: 1,
        ..Default::default()
    };
    let task = TaskView {
        name: "merge".into(),
        row: Some(row),
        needs: vec!["count".into()],
        outputs_json: r#"{"words":12}"#.into(),
        attempts: vec![attempt(1)],
        max_attempts: 1,
    };
    let counts = vec![StateCount { state: TaskState::Failed.into(), count: 1 }];
    RunView {
        id: 9_007_199_254_740_993,
        run: Some(run),
        tasks: vec![task],
        applied_index: 20,
        counts,
        freshness: None,
    }
}

#[test]
fn a_run() {
    expect![[r#"
        {
          "id": "9007199254740993",
          "namespace": "default",
          "workflow": "wordfreq",
          "version": 2,
          "state": "failed",
          "reason": "task_failed",
          "message": null,
          "params": {
            "n": 3,
            "s": "x"
          },
          "labels": {},
          "created_at": "2026-03-01T00:00:00.000Z",
          "started_at": null,
          "ended_at": null,
          "nominal_time": null,
          "schedule": null,
          "idempotency_key": null,
          "log_index": "7",
          "task_count": 1,
          "tasks_unfinished": 0,
          "tasks_failed": 1,
          "counts": {
            "failed": 1
          },
          "tasks": [
            {
              "name": "merge",
              "index": null,
              "state": "failed",
              "reason": "exit",
              "message": null,
              "needs": [
                "count"
              ],
              "outputs": {
                "words": 12
              },
              "max_attempts": 1,
              "started_at": null,
              "ended_at": null,
              "attempts": [
                {
                  "number": 1,
                  "state": "failed",
                  "reason": "exit",
                  "message": null,
                  "claw": "1",
                  "fence": "9007199254740993",
                  "exit_code": 3,
                  "signal": null,
                  "started_at": "2026-03-01T00:00:00.100Z",
                  "ended_at": "2026-03-01T00:00:00.200Z"
                }
              ]
            }
          ],
          "freshness": null
        }"#]]
    .assert_eq(&format!("{:#}", run_json(&view())));
}

#[test]
fn a_run_timeout_is_a_timeout() {
    let mut view = view();
    if let Some(run) = &mut view.run {
        run.reason = Reason::RunTimeout.into();
    }
    assert_eq!(run_json(&view)["reason"], "timeout");
}

#[test]
fn an_event() {
    let event = EventView {
        log_index: 12,
        time_ms: 1_772_323_200_007,
        kind: "task_running".into(),
        run: 3,
        task: "merge".into(),
        attempt: 1,
        actor: "node:1".into(),
        ..Default::default()
    };
    expect![[r#"{"log_index":"12","time":"2026-03-01T00:00:00.007Z","kind":"task_running","namespace":null,"workflow":null,"run":"3","task":"merge","attempt":1,"claw":null,"reason":null,"actor":"node:1","detail":null}"#]]
    .assert_eq(&event_json(&event).to_string());
}

#[test]
fn a_cluster_without_a_leader() {
    let status = ClusterStatusResponse {
        cluster_id: "c".into(),
        term: 4,
        committed_index: 8,
        voters: 3,
        reachable: 1,
        node: 2,
        nodes: vec![NodeView { id: 2, role: "voter".into(), state: "active".into(), ..Default::default() }],
        ..Default::default()
    };
    expect![[r#"{"cluster_id":"c","level":0,"leader":null,"term":4,"committed_index":"8","quorum":false,"voters":3,"reachable":1,"tolerates":0,"health":"","changing":false,"last_log_index":"0","scheduler":false,"answered_by":"2","suspended":false,"nodes":[{"id":"2","listen":"","peer_listen":"","role":"voter","state":"active","leader":false,"term":0,"applied_index":"0","slots":0,"running":0,"labels":{},"version":"","digest":null,"health":"","lag":"0","note":null,"skew_ms":0}]}"#]]
    .assert_eq(&cluster_json(&status).to_string());
}

#[test]
fn reasons_in_words() {
    assert_eq!(why_text(&attempt(1)), "exit 3");
    let mut killed = attempt(1);
    if let Some(row) = &mut killed.row {
        (row.reason, row.exit_code, row.signal) = (Reason::Signal.into(), None, Some(9));
    }
    assert_eq!(why_text(&killed), "signal 9");
}
