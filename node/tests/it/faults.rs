//! Without a majority nothing hangs; retries count right across leaders.

use std::time::{Duration, Instant};

use clawhive_proto::{
    CancelRunRequest, ClusterStatusRequest, ErrorCode, GetRunRequest, ListRunsRequest, PutKeyRequest, Reason,
    RunState, TaskState,
};

use crate::support::*;

/// F-08.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_every_call_says_so_within_five_seconds() {
    let mut hive = Hive::start(3).await;
    let run = submit(&mut hive.client(0).await, "name: before\ntasks: {t: {run: 'true'}}\n").await.run;
    end_of(&mut hive.client(0).await, run).await;
    let left = hive.leader().await;
    for index in (0..3).filter(|index| *index != left) {
        hive.stop(index).await;
    }
    let mut client = hive.client(left).await;
    let started = Instant::now();
    let refused =
        client.submit_run(submit_request("name: x\ntasks: {t: {run: 'true'}}\n")).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let alone = hive.node(left).id();
    let is_told = |status: &tonic::Status| {
        let text = status.message();
        let start = format!("no quorum: 1 of 3 reachable (node {alone} yes; node ");
        assert!(text.starts_with(&start) && text.ends_with(" not)"), "{text}");
        assert_eq!(text.matches(" at 127.0.0.1:").count(), 2, "{text}");
        assert_eq!(status.code(), tonic::Code::Unavailable);
    };
    is_told(&refused);
    assert_eq!(info(&refused).code(), ErrorCode::NoQuorum);
    let started = Instant::now();
    let (list, cancel, put) = {
        let (mut a, mut b, mut c) = (client.clone(), client.clone(), client.clone());
        tokio::join!(
            async move { a.list_runs(ListRunsRequest::default()).await.unwrap_err() },
            async move { b.cancel_run(CancelRunRequest { run, ..Default::default() }).await.unwrap_err() },
            async move { c.put_key(PutKeyRequest { key: "k".into(), ..Default::default() }).await.unwrap_err() },
        )
    };
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for status in [list, cancel, put] {
        is_told(&status);
    }
    // What is here can be read, marked by its index; the cluster's state is told.
    let stale = GetRunRequest { run, stale: true, ..Default::default() };
    let view = client.get_run(stale).await.unwrap().into_inner();
    assert_eq!(state(&view), RunState::Succeeded);
    assert!(view.applied_index > 0);
    let status = client.cluster_status(ClusterStatusRequest {}).await.unwrap().into_inner();
    assert!(!status.quorum, "{status:?}");
    assert_eq!((status.voters, status.reachable, status.nodes.len()), (3, 1, 3));
    // The first call after the majority is back works.
    let back = (left + 1) % 3;
    hive.restart(back).await;
    hive.ready(3).await;
    let run = submit(&mut client, "name: after\ntasks: {t: {run: 'true'}}\n").await.run;
    assert_eq!(state(&end_of(&mut client, run).await), RunState::Succeeded);
    hive.shutdown().await;
}

/// D-09.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_task_runs_exactly_as_often_as_asked() {
    let mut hive = Hive::start(3).await;
    let counter = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for (name, retries, wanted) in [
        ("none", "0", 1),
        ("one", "1", 2),
        ("three", "3", 4),
        ("max-one", "{max_attempts: 1}", 1),
        ("max-three", "{max_attempts: 3}", 3),
    ] {
        let path = counter.path().join(name);
        let policy = if retries.starts_with('{') {
            retries.replace('}', ", delay: 400ms, jitter: 0}")
        } else {
            format!("{retries}, ").trim_end_matches(", ").to_owned()
        };
        let definition = format!(
            "name: {name}\ndefaults: {{retries: {{delay: 400ms, backoff: fixed, jitter: 0, max_attempts: 2}}}}\ntasks:\n  t:\n    run: 'echo x >> {}; exit 1'\n    retries: {policy}\n",
            path.display()
        );
        let run = submit(&mut hive.client(0).await, &definition).await.run;
        runs.push((run, path, wanted));
    }
    let (run, ..) = runs[2];
    let second = || async { task(&get(&mut hive.client(0).await, run).await, "t").attempts.len() >= 2 };
    eventually("the second attempt", second).await;
    let leader = hive.leader().await;
    hive.stop(leader).await;
    hive.restart(leader).await;
    hive.ready(3).await;
    for (run, path, wanted) in runs {
        let view = end_of(&mut hive.client(0).await, run).await;
        assert_eq!(state(&view), RunState::Failed);
        let row = task(&view, "t").row.clone().unwrap();
        assert_eq!(row.tries, wanted, "{path:?}");
        // An attempt that was lost with a stopped claw is one more, and counts as no try.
        let executions = std::fs::read_to_string(&path).unwrap().lines().count();
        let attempts = task(&view, "t").attempts.len();
        assert!(
            executions <= attempts && attempts as u32 - wanted <= 1,
            "{executions} of {attempts} for {wanted}"
        );
    }
    hive.shutdown().await;
}

/// D-12.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_was_due_while_everything_was_down_happens_once_afterwards() {
    let mut hive = Hive::start(1).await;
    let definition = "name: later\ntasks:\n  t:\n    run: 'test $CLAWHIVE_ATTEMPT = 2'\n    retries: {max_attempts: 3, delay: 600ms, backoff: fixed, jitter: 0}\n";
    let run = submit(&mut hive.client(0).await, definition).await.run;
    let retrying = || async {
        let view = get(&mut hive.client(0).await, run).await;
        task(&view, "t").row.as_ref().unwrap().state() == TaskState::Retrying
    };
    eventually("the task waits for its retry", retrying).await;
    let due = task(&get(&mut hive.client(0).await, run).await, "t").row.as_ref().unwrap().timer_due_ms;
    hive.stop(0).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    hive.restart(0).await;
    hive.ready(1).await;
    let view = end_of(&mut hive.client(0).await, run).await;
    assert_eq!(state(&view), RunState::Succeeded);
    let attempts = &task(&view, "t").attempts;
    assert_eq!(attempts.len(), 2);
    assert!(attempts[1].row.as_ref().unwrap().dispatched_at_ms > due + 500);
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_nodes_crash_and_everything_acknowledged_is_there() {
    let mut hive = Hive::start(3).await;
    let done = submit(&mut hive.client(0).await, "name: done\ntasks: {t: {run: 'true'}}\n").await.run;
    end_of(&mut hive.client(0).await, done).await;
    let counter = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "name: long\ntasks:\n  t: {{run: 'echo $CLAWHIVE_ATTEMPT >> {}; test $CLAWHIVE_ATTEMPT -gt 1 || sleep 100'}}\n  after: {{needs: [t], run: 'true'}}\n",
        counter.path().display()
    );
    let long = submit(&mut hive.client(1).await, &text).await.run;
    let running = || async {
        let view = get(&mut hive.client(0).await, long).await;
        task(&view, "t").row.as_ref().unwrap().state() == TaskState::Running
    };
    eventually("the task runs", running).await;
    let last = submit(&mut hive.client(2).await, "name: last\ntasks: {t: {run: 'true'}}\n").await.run;
    for index in 0..3 {
        hive.crash(index).await;
    }
    for index in 0..3 {
        hive.restart(index).await;
    }
    hive.ready(3).await;
    for run in [done, long, last] {
        assert_eq!(state(&end_of(&mut hive.client(0).await, run).await), RunState::Succeeded);
    }
    let view = get(&mut hive.client(1).await, long).await;
    let attempts = &task(&view, "t").attempts;
    assert_eq!(attempts[0].row.as_ref().unwrap().reason(), Reason::LostClaw);
    assert_eq!(attempts.len(), 2);
    assert_eq!(std::fs::read_to_string(counter.path()).unwrap(), "1\n2\n");
    hive.shutdown().await;
}
