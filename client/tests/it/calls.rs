//! Failover, one request id through retries, deadlines, what errors say.

use std::time::{Duration, Instant};

use ::clawhive_client::proto::{ErrorCode, GetKeyRequest};
use ::clawhive_client::{Client, Error, Submit};

use crate::fake::{Do, Running, client, nobody};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_write_goes_to_the_next_server_under_the_same_request_id() {
    let (first, second) = (Running::start().await, Running::start().await);
    first.script([Do::FailUnclear(ErrorCode::Unavailable)]);
    let submit = Submit::workflow("etl");
    let id = submit.request_id().to_vec();
    let client = client(&[&first, &second], SOON);
    assert_eq!(client.submit(submit).await.expect("the second answers").run, 7);
    assert_eq!(first.state(|s| s.request_ids.clone()), std::slice::from_ref(&id));
    assert_eq!(second.state(|s| s.request_ids.clone()), [id]);
    // It stays with the one that worked.
    client.submit(Submit::workflow("etl")).await.expect("answered");
    assert_eq!((first.state(|s| s.calls), second.state(|s| s.calls)), (1, 2));
}

#[tokio::test]
async fn retries_on_one_server_keep_the_request_id() {
    let server = Running::start().await;
    server.script(vec![Do::Fail(ErrorCode::Unavailable); 4]);
    client(&[&server], SOON).put_key("default", "k", "v").await.expect("the fifth try is answered");
    let ids = server.state(|s| s.request_ids.clone());
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 16));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_passed_over() {
    let server = Running::start().await;
    let client = Client::builder()
        .servers([nobody().await, server.address.to_string()])
        .connect_lazy()
        .expect("addresses");
    assert_eq!(client.cluster_status().await.expect("answered").node, 1);
}

#[tokio::test]
async fn a_server_that_goes_away_is_left() {
    let (mut first, second) = (Running::start().await, Running::start().await);
    let client = client(&[&first, &second], SOON);
    client.nodes().await.expect("answered");
    first.stop();
    client.nodes().await.expect("answered by the other");
    assert_eq!((first.state(|s| s.calls), second.state(|s| s.calls)), (1, 1));
}

#[tokio::test]
async fn no_server_at_all_is_said_soon_and_nothing_was_applied() {
    let address = nobody().await;
    let client = Client::builder()
        .servers([&address])
        .unreachable_after(Duration::from_millis(100))
        .connect_lazy()
        .expect("an address");
    let started = Instant::now();
    let error = client.put_key("default", "k", "v").await.expect_err("nobody there");
    assert!(started.elapsed() < Duration::from_secs(2));
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains(&address), "{error}");
    assert!(!error.may_have_been_applied());
}

#[tokio::test]
async fn the_deadline_holds_and_says_that_the_write_is_open() {
    let server = Running::start().await;
    server.script([Do::Hang]);
    let client = client(&[&server], Duration::from_millis(300));
    let started = Instant::now();
    let error = client.submit(Submit::workflow("etl")).await.expect_err("no answer comes");
    assert!((Duration::from_millis(250)..Duration::from_secs(3)).contains(&started.elapsed()));
    assert_eq!(error.code(), "timeout");
    assert!(error.may_have_been_applied());
}

#[tokio::test]
async fn a_hanging_server_does_not_use_up_the_deadline() {
    let (first, second) = (Running::start().await, Running::start().await);
    first.state(|s| s.then = Some(Do::Hang));
    let client = client(&[&first, &second], Duration::from_secs(4));
    client.submit(Submit::workflow("etl")).await.expect("the second answers");
}

#[tokio::test]
async fn a_read_is_never_said_to_have_been_applied() {
    let server = Running::start().await;
    server.state(|s| s.then = Some(Do::FailUnclear(ErrorCode::Unavailable)));
    let client = client(&[&server], Duration::from_millis(200));
    let error = client.get_key(GetKeyRequest::default()).await.expect_err("as told");
    assert!(!error.may_have_been_applied());
    let error = client.put_key("default", "k", "v").await.expect_err("as told");
    assert!(error.may_have_been_applied());
}

#[tokio::test]
async fn an_unclear_try_makes_a_later_refusal_unclear() {
    let server = Running::start().await;
    server.script([Do::FailUnclear(ErrorCode::Timeout)]);
    server.state(|s| s.then = Some(Do::Fail(ErrorCode::Unavailable)));
    let client = client(&[&server], Duration::from_millis(200));
    let error = client.submit(Submit::workflow("etl")).await.expect_err("as told");
    assert!(error.may_have_been_applied(), "the first try may be in the log: {error:?}");
}

#[tokio::test]
async fn no_quorum_is_the_answer_of_all_servers_and_not_waited_out() {
    let (first, second) = (Running::start().await, Running::start().await);
    for server in [&first, &second] {
        server.state(|s| s.then = Some(Do::Fail(ErrorCode::NoQuorum)));
    }
    let started = Instant::now();
    let error = client(&[&first, &second], Duration::from_secs(30)).put_key("default", "k", "v").await;
    assert!(matches!(error, Err(Error::NoQuorum { may_have_been_applied: false, .. })), "{error:?}");
    assert!(started.elapsed() < SOON);
    assert_eq!((first.state(|s| s.calls), second.state(|s| s.calls)), (1, 1));
}

#[tokio::test]
async fn what_a_server_decides_is_final() {
    for (code, name) in [
        (ErrorCode::Invalid, "invalid"),
        (ErrorCode::NotFound, "not_found"),
        (ErrorCode::Conflict, "conflict"),
        (ErrorCode::TooLarge, "too_large"),
        (ErrorCode::NotAllowed, "not_allowed"),
        (ErrorCode::Internal, "internal"),
    ] {
        let server = Running::start().await;
        server.script([Do::Fail(code)]);
        let error = client(&[&server], SOON).submit(Submit::workflow("etl")).await.expect_err("as told");
        assert_eq!((error.code(), error.to_string().as_str()), (name, "as told"));
        assert_eq!(server.state(|s| s.calls), 1, "{name} is not retried");
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_not_sent() {
    let server = Running::start().await;
    let error = client(&[&server], SOON).submit(Submit::definition(vec![b' '; 4 << 20])).await;
    let Err(Error::TooLarge { message, limit }) = error else { panic!("{error:?}") };
    assert_eq!(limit, 4 << 20);
    assert!(message.contains("4194304"), "{message}");
    assert_eq!(server.state(|s| s.calls), 0);
}

#[tokio::test]
async fn each_of_many_submits_has_its_own_answer() {
    let server = Running::start().await;
    let submits = ["etl", "unknown", "etl"].map(Submit::workflow);
    let answers = client(&[&server], SOON).submit_many(submits).await.expect("answered");
    let codes: Vec<_> = answers.iter().map(|one| one.as_ref().map_or_else(Error::code, |_| "ok")).collect();
    assert_eq!(codes, ["ok", "not_found", "ok"]);
}
