//! D-08: one idempotency key, one run, however often and wherever it is asked for.

use std::collections::BTreeSet;

use clawhive_proto::{ErrorCode, ListRunsRequest, SubmitRunRequest};

use crate::support::*;

fn keyed(definition: &str) -> SubmitRunRequest {
    SubmitRunRequest { idempotency_key: "order-7".into(), ..submit_request(definition) }
}

const ONE: &str = "name: one\ntasks: {t: {run: 'true'}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn fifty_clients_over_three_nodes_make_one_run() {
    let mut hive = Hive::start(3).await;
    let mut calls = tokio::task::JoinSet::new();
    for caller in 0..50 {
        let mut client = hive.client(caller % 3).await;
        calls.spawn(async move { client.submit_run(keyed(ONE)).await.unwrap().into_inner() });
    }
    let answers = calls.join_all().await;
    let runs: BTreeSet<u64> = answers.iter().map(|answer| answer.run).collect();
    assert_eq!(runs.len(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.replayed).count(), 49);
    let run = answers[0].run;

    let another = keyed("name: one\ntasks: {t: {run: 'false'}}\n");
    let refused = hive.client(1).await.submit_run(another.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    assert_eq!(info(&refused).code(), ErrorCode::Conflict);
    assert!(refused.message().contains("order-7"), "{}", refused.message());

    // The leader goes and comes back, then every node does.
    let leader = hive.leader().await;
    hive.stop(leader).await;
    let again = hive.client((leader + 1) % 3).await.submit_run(keyed(ONE)).await.unwrap().into_inner();
    assert_eq!((again.run, again.replayed), (run, true));
    for index in 0..3 {
        if hive.nodes[index].is_some() {
            hive.stop(index).await;
        }
    }
    for index in 0..3 {
        hive.restart(index).await;
    }
    hive.ready(3).await;
    let again = hive.client(0).await.submit_run(keyed(ONE)).await.unwrap().into_inner();
    assert_eq!((again.run, again.replayed), (run, true));
    let refused = hive.client(2).await.submit_run(another).await.unwrap_err();
    assert_eq!(info(&refused).code(), ErrorCode::Conflict);
    let all = hive.client(0).await.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(all.len(), 1);
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_id_gets_the_first_answer() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    let request = SubmitRunRequest { request_id: vec![7; 16], ..submit_request(ONE) };
    let first = client.submit_run(request.clone()).await.unwrap().into_inner();
    let second = client.submit_run(request).await.unwrap().into_inner();
    assert_eq!((first.run, first.version, second.run, second.version), (1, 1, 1, 1));
    let short = SubmitRunRequest { request_id: vec![7; 5], ..submit_request(ONE) };
    let refused = client.submit_run(short).await.unwrap_err();
    assert_eq!(refused.message(), "request_id must have 16 bytes, not 5");
    hive.shutdown().await;
}
