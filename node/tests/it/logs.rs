//! Logs are read where they are not.

use clawhive_proto::{ReadLogsRequest, RunState, TaskState};

use crate::support::*;

const TALK: &str = "name: talk\ntasks:\n  say: {run: 'echo out; echo err >&2; sleep 0.2; echo last'}\n  late: {needs: [say], run: echo later}\n";

#[tokio::test(flavor = "multi_thread")]
async fn every_node_shows_the_logs_and_says_when_it_cannot() {
    let mut hive = Hive::start(3).await;
    let run = submit(&mut hive.client(0).await, TALK).await.run;
    let view = end_of(&mut hive.client(0).await, run).await;
    let claw = task(&view, "say").attempts[0].row.as_ref().unwrap().claw;
    for index in 0..3 {
        let mut client = hive.client(index).await;
        let request = ReadLogsRequest { run, task: "say".into(), ..Default::default() };
        let chunks = logs(&mut client, request.clone()).await;
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk.task == "say" && chunk.attempt == 1 && chunk.unavailable.is_empty())
        );
        let all = text(&chunks);
        assert!(all.contains("out\n") && all.contains("err\n") && all.ends_with("last\n"), "{all:?}");
        let tail = ReadLogsRequest { tail_lines: 1, ..request };
        assert_eq!(text(&logs(&mut client, tail).await), "last\n");
        let both = logs(&mut client, ReadLogsRequest { run, ..Default::default() }).await;
        assert!(text(&both).ends_with("later\n"));
    }
    let holder = (0..3).find(|index| hive.node(*index).id() == claw).unwrap();
    hive.stop(holder).await;
    let mut client = hive.client((holder + 1) % 3).await;
    let chunks = logs(&mut client, ReadLogsRequest { run, task: "say".into(), ..Default::default() }).await;
    assert_eq!(chunks.len(), 1);
    assert!(chunks[0].unavailable.contains(&format!("node {claw} is not reachable")), "{:?}", chunks[0]);
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn following_waits_for_the_start_the_retry_and_the_end() {
    let hive = Hive::start(3).await;
    let definition = "name: slow\ntasks:\n  first: {run: sleep 0.5}\n  second:\n    needs: [first]\n    run: 'echo attempt $CLAWHIVE_ATTEMPT; sleep 0.3; echo end; test $CLAWHIVE_ATTEMPT = 2'\n    retries: {max_attempts: 2, delay: 200ms, jitter: 0}\n";
    let run = submit(&mut hive.client(0).await, definition).await.run;
    for index in 0..3 {
        let mut client = hive.client(index).await;
        let request = ReadLogsRequest { run, task: "second".into(), follow: true, ..Default::default() };
        let chunks = logs(&mut client, request).await;
        if index == 0 {
            assert_eq!(text(&chunks), "attempt 1\nend\nattempt 2\nend\n");
        } else {
            // It has ended meanwhile: the newest attempt is shown.
            assert_eq!(text(&chunks), "attempt 2\nend\n");
        }
    }
    let view = get(&mut hive.client(2).await, run).await;
    assert_eq!(task(&view, "second").row.as_ref().unwrap().state(), TaskState::Succeeded);
    assert_eq!(state(&view), RunState::Succeeded);
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_named() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    let run = submit(&mut client, TALK).await.run;
    let mut refusal = async |request: ReadLogsRequest| client.read_logs(request).await.err().unwrap();
    let none = refusal(ReadLogsRequest { run: 9, ..Default::default() }).await;
    assert_eq!((none.code(), none.message()), (tonic::Code::NotFound, "there is no run 9"));
    let none = refusal(ReadLogsRequest { run, task: "sya".into(), ..Default::default() }).await;
    assert_eq!(none.message(), format!("run {run} has no task `sya`"));
    let none = refusal(ReadLogsRequest { run, task: "../../etc/passwd".into(), ..Default::default() }).await;
    assert_eq!(none.code(), tonic::Code::InvalidArgument);
    let none = refusal(ReadLogsRequest { run, task: "say".into(), attempt: 7, ..Default::default() }).await;
    assert_eq!(none.message(), "task `say` has no attempt 7");
    hive.shutdown().await;
}
