//! Streams that break and go on: without a gap, without a repeat.

use std::time::Duration;

use ::clawhive_client::Put;
use ::clawhive_client::proto::*;
use futures::{StreamExt, TryStreamExt, stream};

use crate::fake::{Do, Running, client};

const SOON: Duration = Duration::from_secs(5);

fn event(log_index: u64, task: &str) -> EventView {
    EventView { log_index, task: task.into(), kind: "task_ready".into(), ..Default::default() }
}

fn end(log_index: u64) -> EventView {
    EventView { log_index, kind: "run_succeeded".into(), ..Default::default() }
}

fn view(applied_index: u64, state: RunState) -> RunView {
    let run = RunRow { state: state.into(), ..Default::default() };
    RunView { id: 7, run: Some(run), applied_index, ..Default::default() }
}

fn chunk(data: &'static str, next_offset: u64) -> LogChunk {
    LogChunk { task: "a".into(), attempt: 1, data: data.into(), next_offset, ..Default::default() }
}

#[tokio::test]
async fn events_go_on_after_a_break_within_one_entry() {
    let (first, second) = (Running::start().await, Running::start().await);
    let broken = vec![event(3, "a"), event(5, "b"), event(5, "c")];
    first.state(|s| s.events.push_back((broken, Some(ErrorCode::Unavailable))));
    let rest = vec![event(5, "b"), event(5, "c"), event(5, "d"), event(8, "e"), end(9)];
    second.state(|s| s.events.push_back((rest, None)));
    let client = client(&[&first, &second], SOON);
    let request = ListEventsRequest { run: 7, after_log_index: 2, follow: true, ..Default::default() };
    let events: Vec<_> = client.events(request).try_collect().await.expect("resumed");
    let got: Vec<_> = events.iter().map(|e| (e.log_index, e.task.as_str())).collect();
    assert_eq!(got, [(3, "a"), (5, "b"), (5, "c"), (5, "d"), (8, "e"), (9, "")]);
    assert_eq!(first.state(|s| s.event_requests[0].after_log_index), 2);
    assert_eq!(second.state(|s| s.event_requests[0].after_log_index), 4);
}

#[tokio::test]
async fn a_stream_closed_in_good_order_before_its_end_goes_on() {
    let server = Running::start().await;
    server.state(|s| {
        s.runs.push_back((vec![view(4, RunState::Running)], None));
        // The next peer is behind, then catches up.
        let later = [(2, RunState::Pending), (4, RunState::Running), (6, RunState::Succeeded)];
        s.runs.push_back((later.map(|(index, state)| view(index, state)).to_vec(), None));
    });
    let views: Vec<_> = client(&[&server], SOON).watch_run(7, true).try_collect().await.expect("resumed");
    let indexes: Vec<_> = views.iter().map(|view| view.applied_index).collect();
    assert_eq!(indexes, [4, 6]);
}

#[tokio::test]
async fn wait_ends_with_the_run_over_a_lost_server() {
    let (mut first, second) = (Running::start().await, Running::start().await);
    second.state(|s| s.runs.push_back((vec![view(9, RunState::Succeeded)], None)));
    let client = client(&[&first, &second], SOON);
    let waiting = tokio::spawn(async move { client.wait(7).await });
    // The first holds its stream open without a word until it dies.
    while first.state(|s| s.calls) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.stop();
    let view = waiting.await.expect("no panic").expect("the second tells the end");
    assert_eq!(view.run.map(|run| run.state()), Some(RunState::Succeeded));
}

#[tokio::test]
async fn logs_go_on_at_their_offset() {
    let server = Running::start().await;
    server.state(|s| {
        s.logs.push_back((vec![chunk("one\n", 4), chunk("two\n", 8)], Some(ErrorCode::Unavailable)));
        s.logs.push_back((vec![chunk("one\ntwo\n", 8), chunk("three\n", 14)], None));
    });
    let request = ReadLogsRequest { run: 7, ..Default::default() };
    let chunks: Vec<_> = client(&[&server], SOON).logs(request).try_collect().await.expect("resumed");
    let text: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.data.to_vec()).collect();
    assert_eq!(text, b"one\ntwo\nthree\n");
    let resume = server.state(|s| s.log_requests[1].resume_from.clone());
    assert_eq!(resume, [LogPosition { task: "a".into(), attempt: 1, offset: 8 }]);
}

#[tokio::test]
async fn what_a_server_decides_ends_a_stream() {
    let server = Running::start().await;
    server.script([Do::Fail(ErrorCode::NotFound)]);
    let mut views = client(&[&server], SOON).watch_run(7, true);
    assert_eq!(views.next().await.expect("an answer").expect_err("as told").code(), "not_found");
    assert!(views.next().await.is_none());
    assert_eq!(server.state(|s| s.calls), 1);
}

#[tokio::test]
async fn a_stream_gives_up_when_patience_is_over() {
    let mut server = Running::start().await;
    server.state(|s| s.runs.push_back((vec![view(4, RunState::Running)], Some(ErrorCode::Unavailable))));
    let mut views = client(&[&server], Duration::from_millis(300)).watch_run(7, true);
    assert!(views.next().await.expect("an answer").is_ok());
    server.stop();
    let error = views.next().await.expect("an answer").expect_err("nobody is there");
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains(&server.address.to_string()));
}

#[tokio::test]
async fn puts_cut_off_are_sent_again_and_happen_once() {
    let server = Running::start().await;
    server.state(|s| s.puts.extend([3, 0, 5]));
    let puts = stream::iter((0..20).map(|i| Put {
        namespace: "default".into(),
        key: format!("k{i}"),
        value: "v".into(),
    }));
    let answers: Vec<u64> =
        client(&[&server], SOON).put_keys(puts).try_collect().await.expect("all answered");
    assert_eq!(answers, (1..=20).collect::<Vec<_>>());
    let keys = server.state(|s| s.applied.iter().map(|(_, key)| key.clone()).collect::<Vec<_>>());
    assert_eq!(keys, (0..20).map(|i| format!("k{i}")).collect::<Vec<_>>());
}
