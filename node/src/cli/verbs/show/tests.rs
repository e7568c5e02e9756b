//! How fixed runs look.

use super::*;
use clawhive_proto::{AttemptRow, AttemptState, AttemptView, Reason, RunRow, RunState, TaskRow};
use expect_test::expect;

fn task(name: &str, state: TaskState, needs: &[&str]) -> TaskView {
    let ended = if state == TaskState::Running { 0 } else { 1_340 };
    let started = matches!(state, TaskState::Pending | TaskState::UpstreamFailed);
    let row = TaskRow {
        state: state.into(),
        started_at_ms: if started { 0 } else { 1_000 },
        ended_at_ms: ended,
        attempt: u32::from(!started),
        ..Default::default()
    };
    TaskView {
        name: name.into(),
        row: Some(row),
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        max_attempts: 1,
        ..Default::default()
    }
}

fn failed(name: &str, needs: &[&str]) -> TaskView {
    let mut task = task(name, TaskState::Failed, needs);
    let row = AttemptRow {
        state: AttemptState::Failed.into(),
        reason: Reason::Exit.into(),
        exit_code: Some(3),
        claw: 1,
        fence: 21,
        started_at_ms: 1_000,
        ended_at_ms: 1_340,
        ..Default::default()
    };
    task.attempts = [1, 2].map(|number| AttemptView { number, row: Some(row.clone()) }).to_vec();
    task.max_attempts = 2;
    task.row.as_mut().unwrap().attempt = 2;
    task
}

fn run(tasks: Vec<TaskView>) -> RunView {
    let row = RunRow {
        namespace: "default".into(),
        workflow: "wordfreq".into(),
        version: 1,
        state: RunState::Failed.into(),
        reason: Reason::TaskFailed.into(),
        created_at_ms: 900,
        started_at_ms: 1_000,
        ended_at_ms: 3_300,
        ..Default::default()
    };
    RunView { id: 12, run: Some(row), tasks, ..Default::default() }
}

fn plain() -> Stream {
    Output::plain(Format::Table).stdout
}

#[test]
fn a_small_run_shows_all_its_tasks() {
    let tasks = vec![
        task("fetch", TaskState::Succeeded, &[]),
        failed("count", &["fetch"]),
        task("merge", TaskState::UpstreamFailed, &["count", "fetch"]),
    ];
    expect![[r"
        Run        12
        Workflow   wordfreq version 1
        State      failed (task_failed)
        Created    1970-01-01T00:00:00.900Z
        Duration   2.3s
        Tasks      3: 1 succeeded, 1 upstream_failed, 1 failed

        TASK   STATE            ATTEMPTS  DURATION  NEEDS        REASON
        fetch  succeeded        1         340ms
        count  failed           2 of 2    340ms     fetch        exit 3
        merge  upstream_failed                      count,fetch
    "]]
    .assert_eq(&run_text(&run(tasks), false, 9_000, plain()));
}

#[test]
fn a_big_run_shows_what_matters_first() {
    let mut tasks: Vec<TaskView> =
        (0..1_000).map(|n| task(&format!("t{n}"), TaskState::Succeeded, &[])).collect();
    tasks.push(failed("bad", &[]));
    tasks.push(task("slow", TaskState::Running, &[]));
    let text = run_text(&run(tasks.clone()), false, 9_000, plain());
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("TASK")).collect();
    assert!(lines[1].starts_with("bad ") && lines[2].starts_with("slow "), "{text}");
    assert_eq!(lines.len(), 1 + TASKS_SHOWN + 1);
    assert_eq!(lines[TASKS_SHOWN + 1], "962 more tasks: clawhive show 12 --all");
    let all = run_text(&run(tasks), true, 9_000, plain());
    assert!(all.lines().count() > 1_002);
}

#[test]
fn a_task_shows_its_attempts_and_outputs() {
    let mut task = failed("count", &["fetch"]);
    task.outputs_json = r#"{"words":12,"path":"/tmp/x"}"#.into();
    expect![[r#"
        Task       count of run 12
        State      failed (exit 3)
        Needs      fetch
        Outputs    words = 12
                   path = "/tmp/x"

        ATTEMPT  STATE   CLAW  FENCE  STARTED                   DURATION  REASON
        1        failed  1     21     1970-01-01T00:00:01.000Z  340ms     exit 3
        2        failed  1     21     1970-01-01T00:00:01.000Z  340ms     exit 3
    "#]]
    .assert_eq(&task_text(&run(vec![]), &task, 9_000, plain()));
}
