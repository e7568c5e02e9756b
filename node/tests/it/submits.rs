//! What is refused before anything is stored.

use clawhive_proto::submit_run_request::What;
use clawhive_proto::{ErrorCode, ListRunsRequest, PutWorkflowRequest, SubmitRunRequest};

use crate::support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_definition_is_refused_with_every_place_and_nothing_is_stored() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    let definition = "name: bad\ntasks:\n  a: {rnu: x}\n  b: {needs: [c], run: x}\n";
    let refused = client.submit_run(submit_request(definition)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    let info = info(&refused);
    assert_eq!(info.code(), ErrorCode::Invalid);
    let lines: Vec<u32> = info.diagnostics.iter().map(|diagnostic| diagnostic.line).collect();
    assert!(lines.contains(&3) && lines.contains(&4), "{:?}", info.diagnostics);
    let put = PutWorkflowRequest { definition: definition.into(), ..Default::default() };
    assert_eq!(client.put_workflow(put).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let by_name = SubmitRunRequest { what: Some(What::Workflow("bad".into())), ..Default::default() };
    let unknown = client.submit_run(by_name).await.unwrap_err();
    assert_eq!(unknown.message(), "there is no workflow default/bad");
    let runs = client.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert!(runs.is_empty());
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_follow_the_content_and_can_be_named() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    let text = |what: &str| {
        format!("name: v\nparams: {{n: {{type: integer}}}}\ntasks: {{t: {{run: 'echo {what}'}}}}\n")
    };
    let mut put = async |what: &str| {
        let request = PutWorkflowRequest { definition: text(what).into_bytes(), ..Default::default() };
        let answer = client.put_workflow(request).await.unwrap().into_inner();
        (answer.version, answer.created)
    };
    assert_eq!(put("one").await, (1, true));
    assert_eq!(put("one").await, (1, false));
    assert_eq!(put("two").await, (2, true));
    let submit = |version: u64, value: &str| SubmitRunRequest {
        what: Some(What::Workflow("default/v".into())),
        version,
        params: [("n".to_owned(), value.to_owned())].into(),
        ..Default::default()
    };
    let newest = client.submit_run(submit(0, "4")).await.unwrap().into_inner();
    let first = client.submit_run(submit(1, "4")).await.unwrap().into_inner();
    assert_eq!((newest.version, first.version), (2, 1));
    let none = client.submit_run(submit(3, "4")).await.unwrap_err();
    assert_eq!(none.message(), "workflow default/v has no version 3");
    let wrong = client.submit_run(submit(0, "four")).await.unwrap_err();
    assert!(wrong.message().contains("`n` is a whole number, not \"four\""), "{}", wrong.message());
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_message_is_named() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    for extra in [1, 1 << 20] {
        let mut definition = "name: big\ntasks: {t: {run: 'true'}}\n#".to_owned();
        definition.push_str(&"x".repeat(4 * 1024 * 1024 + extra - definition.len()));
        let refused = client.submit_run(submit_request(&definition)).await.unwrap_err();
        let message = refused.message();
        assert!(message.contains("limit") && message.contains("4"), "{message}");
        assert!(
            matches!(refused.code(), tonic::Code::ResourceExhausted | tonic::Code::OutOfRange),
            "{refused:?}"
        );
    }
    // Nothing is wrong with the connection.
    submit(&mut client, "name: small\ntasks: {t: {run: 'true'}}\n").await;
    hive.shutdown().await;
}
