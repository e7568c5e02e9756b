//! Without a majority nothing hangs; retries count right across leaders.

use std::time::{Duration, Instant};

use clawhive_proto::{
    CancelRunRequest, ClusterStatusRequest, ErrorCode, GetRunRequest, ListRunsRequest, PutKeyRequest,
    RunState,
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
    let submit = client.submit_run(submit_request("name: x\ntasks: {t: {run: 'true'}}\n")).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!((submit.code(), submit.message()), (tonic::Code::Unavailable, "no quorum: 1 of 3 reachable"));
    assert_eq!(info(&submit).code(), ErrorCode::NoQuorum);
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
        assert_eq!(
            (status.code(), status.message()),
            (tonic::Code::Unavailable, "no quorum: 1 of 3 reachable")
        );
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
    let run = submit_eventually(&mut client).await;
    assert_eq!(state(&end_of(&mut client, run).await), RunState::Succeeded);
    hive.shutdown().await;
}

async fn submit_eventually(client: &mut Client) -> u64 {
    submit(client, "name: after\ntasks: {t: {run: 'true'}}\n").await.run
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
