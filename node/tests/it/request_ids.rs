//! Every call that writes carries a request id, and a repeat of it gets the first answer and changes nothing. The list of
//! calls is read from the service's definition: a new one has to be put into one of the lists here.

use std::collections::BTreeMap;

use clawhive_proto::{
    AcquireLockRequest, CancelRunRequest, CheckDigestsRequest, GetKeyRequest, KeyCompare, KeyOp, KeyPut,
    KeyTxn, ListLocksRequest, ListRunsRequest, PutKeyRequest, PutWorkflowRequest, ReleaseLockRequest,
    RenewLockRequest, ResumeClusterRequest, SubmitRunRequest, SubmitRunsRequest, TxnKeysRequest, key_compare,
    key_op, submit_result,
};

use crate::support::*;

const API: &str = include_str!("../../../proto/proto/clawhive/v1/api.proto");

/// Calls that only read, or tell something.
const READS: &[&str] = &[
    "GetRun",
    "ListRuns",
    "WatchRun",
    "ListEvents",
    "ReadLogs",
    "ListNodes",
    "ClusterStatus",
    "GetKey",
    "ListKeys",
    "ListLocks",
    "SaveSnapshot",
    "ListSchedules",
    "GetSchedule",
];

/// Calls that write and are repeated below, each with a request id of its own or, as a batch, with one for each part.
const WRITES: &[&str] = &[
    "PutWorkflow",
    "SubmitRun",
    "SubmitRuns",
    "CancelRun",
    "PutKey",
    "PutKeys",
    "TxnKeys",
    "AcquireLock",
    "RenewLock",
    "ReleaseLock",
    "CheckDigests",
    "ResumeCluster",
];

/// Calls that write and need more than one node or a schedule: repeated where they are tested.
const WRITES_ELSEWHERE: &[&str] =
    &["RemoveNode", "SetNodeRole", "SetNodeState", "TransferLeader", "TriggerSchedule", "PauseSchedule"];

/// Name and request of each call.
fn calls() -> BTreeMap<&'static str, &'static str> {
    let service = API.split("service Clawhive {").nth(1).unwrap().split("\n}").next().unwrap();
    let call = |line: &'static str| {
        let (name, rest) = line.trim().strip_prefix("rpc ")?.split_once('(')?;
        Some((name, rest.split(')').next()?.trim_start_matches("stream ").trim()))
    };
    service.lines().filter_map(call).collect()
}

fn message(name: &str) -> &'static str {
    API.split(&format!("message {name} {{")).nth(1).expect(name).split("\n}").next().unwrap()
}

#[test]
fn every_call_that_writes_has_a_request_id() {
    let calls = calls();
    let known: Vec<&str> = READS.iter().chain(WRITES).chain(WRITES_ELSEWHERE).copied().collect();
    for name in calls.keys() {
        assert!(
            known.contains(name),
            "{name} is new: does it write? Then test below that it can be repeated"
        );
    }
    for name in WRITES.iter().chain(WRITES_ELSEWHERE) {
        let Some(request) = calls.get(name) else { continue };
        let part = match *name {
            // One id for each run of the batch.
            "SubmitRuns" => message("SubmitRunRequest"),
            _ => message(request),
        };
        assert!(part.contains("bytes request_id = 1;"), "{name} has no request id");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_of_any_write_gets_the_first_answer_and_changes_nothing() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    let id = |number: u8| vec![number; 16];
    const SLEEPS: &str = "name: sleeps\ntasks: {t: {run: 'sleep 600'}}\n";

    let put = PutWorkflowRequest { request_id: id(1), definition: SLEEPS.into() };
    let first = client.put_workflow(put.clone()).await.unwrap().into_inner();
    assert!(first.created);
    assert_eq!(client.put_workflow(put).await.unwrap().into_inner(), first);

    let submit = SubmitRunRequest { request_id: id(2), ..submit_request(SLEEPS) };
    let first = client.submit_run(submit.clone()).await.unwrap().into_inner();
    assert_eq!(client.submit_run(submit.clone()).await.unwrap().into_inner(), first);
    let run = first.run;

    let batch = SubmitRunsRequest {
        runs: vec![submit, SubmitRunRequest { request_id: id(3), ..submit_request(SLEEPS) }],
    };
    let of = |answer: clawhive_proto::SubmitRunsResponse| -> Vec<u64> {
        let run = |result: clawhive_proto::SubmitResult| match result.result {
            Some(submit_result::Result::Run(run)) => run.run,
            other => panic!("{other:?}"),
        };
        answer.results.into_iter().map(run).collect()
    };
    let first = of(client.submit_runs(batch.clone()).await.unwrap().into_inner());
    assert_eq!(of(client.submit_runs(batch).await.unwrap().into_inner()), first);
    assert_eq!(first[0], run);
    let runs = client.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(runs.len(), 2);

    let cancel = CancelRunRequest { request_id: id(4), run, reason: "enough".into() };
    let first = client.cancel_run(cancel.clone()).await.unwrap().into_inner();
    end_of(&mut client, run).await;
    let again = client.cancel_run(cancel).await.unwrap().into_inner();
    assert_eq!((first.already_ended, again.already_ended), (false, false), "it was this call that cancelled");
    let other = CancelRunRequest { request_id: id(5), run, ..Default::default() };
    assert!(client.cancel_run(other).await.unwrap().into_inner().already_ended);

    let key = |number: u8, value: &str| PutKeyRequest {
        request_id: id(number),
        key: "k".into(),
        value: value.to_owned().into(),
        ..Default::default()
    };
    let oldest = client.put_key(key(6, "one")).await.unwrap().into_inner();
    let second = client.put_key(key(7, "two")).await.unwrap().into_inner();
    assert_eq!(client.put_key(key(6, "one")).await.unwrap().into_inner(), oldest, "also the same log index");
    let read = GetKeyRequest { key: "k".into(), ..Default::default() };
    let found = client.get_key(read.clone()).await.unwrap().into_inner();
    assert_eq!((&found.value[..], found.modified_at), (&b"two"[..], second.log_index));

    let mut puts = async |number: u8| {
        let stream = futures::stream::iter([key(number, "streamed")]);
        let mut answers = client.put_keys(stream).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap()
    };
    let first = puts(8).await;
    assert_eq!(puts(8).await, first);
    assert_eq!(puts(6).await, oldest, "the same id, whichever way it comes");

    let fresh = KeyCompare { key: "fresh".into(), is: Some(key_compare::Is::Present(false)) };
    let put = KeyPut { key: "fresh".into(), value: "x".into() };
    let then = vec![KeyOp { op: Some(key_op::Op::Put(put)) }];
    let txn = KeyTxn { compares: vec![fresh], then, ..Default::default() };
    let txn = TxnKeysRequest { request_id: id(11), txn: Some(txn) };
    let first = client.txn_keys(txn.clone()).await.unwrap().into_inner();
    assert!(first.succeeded);
    assert_eq!(client.txn_keys(txn).await.unwrap().into_inner(), first, "another would not succeed");

    let (name, session) = ("door".to_owned(), id(90));
    let acquire = AcquireLockRequest {
        request_id: id(12),
        name: name.clone(),
        session: session.clone(),
        ttl_ms: 60_000,
        ..Default::default()
    };
    let first = client.acquire_lock(acquire.clone()).await.unwrap().into_inner();
    assert_eq!(client.acquire_lock(acquire.clone()).await.unwrap().into_inner(), first);
    let token = first.token;
    let renew = RenewLockRequest {
        request_id: id(13),
        name: name.clone(),
        session: session.clone(),
        token,
        ..Default::default()
    };
    client.renew_lock(renew.clone()).await.unwrap();
    let release = ReleaseLockRequest { request_id: id(14), name, session, token, ..Default::default() };
    client.release_lock(release.clone()).await.unwrap();
    let other = AcquireLockRequest { request_id: id(15), session: id(91), ..acquire.clone() };
    let next = client.acquire_lock(other).await.unwrap().into_inner().token;
    assert!(next > token);
    // All three once more, late: the first answers, and the second holder keeps the lock.
    assert_eq!(client.acquire_lock(acquire).await.unwrap().into_inner(), first);
    client.renew_lock(renew).await.unwrap();
    client.release_lock(release).await.unwrap();
    let locks = client.list_locks(ListLocksRequest::default()).await.unwrap().into_inner().locks;
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].token, next);

    let check = CheckDigestsRequest { request_id: id(9) };
    let first = client.check_digests(check.clone()).await.unwrap().into_inner();
    assert!(first.equal && first.log_index > 0);
    assert_eq!(client.check_digests(check).await.unwrap().into_inner(), first);
    // Nothing was suspended; a cluster that was is another test.
    let resume = ResumeClusterRequest { request_id: id(10) };
    for _ in 0..2 {
        assert!(!client.resume_cluster(resume.clone()).await.unwrap().into_inner().resumed);
    }
    hive.shutdown().await;
}
