//! Locks and keys against a server that does as it is told.

use std::time::Duration;

use ::clawhive_client::proto::*;
use ::clawhive_client::{Error, Lost, PutOptions};
use futures::TryStreamExt;
use tokio::time::{Instant, timeout};

use crate::fake::{Do, Running, client};

const SOON: Duration = Duration::from_secs(5);
const TTL: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_loss_is_told_within_the_time_to_live_when_nothing_is_confirmed() {
    let server = Running::start().await;
    let before = Instant::now();
    let guard = client(&[&server], SOON).lock("l", TTL).acquire().await.expect("granted");
    assert_eq!((guard.token(), guard.is_held()), (9, true));
    server.state(|state| state.then = Some(Do::Hang));
    let lost = timeout(SOON, guard.lost()).await.expect("told");
    assert_eq!(lost, Lost::NotRenewed);
    assert!(!guard.is_held() && before.elapsed() >= TTL / 2);
}

#[tokio::test]
async fn a_renewed_lock_is_kept_and_one_that_was_ended_is_lost_at_once() {
    let server = Running::start().await;
    let guard = client(&[&server], SOON).lock("l", TTL).acquire().await.expect("granted");
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held());
    let calls = server.state(|state| state.calls);
    assert!(calls >= 4, "{calls} calls: it was renewed");
    server.state(|state| state.then = Some(Do::Fail(ErrorCode::Conflict)));
    let lost = timeout(SOON, guard.lost()).await.expect("told");
    assert_eq!(lost, Lost::Ended("as told".into()));
}

#[tokio::test]
async fn a_guard_or_a_wait_that_is_dropped_gives_up() {
    let server = Running::start().await;
    let client = client(&[&server], SOON);
    let guard = client.lock("l", TTL * 60).acquire().await.expect("granted");
    drop(guard);
    let gave_up = async |calls| {
        while server.state(|state| state.calls) < calls {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, gave_up(2)).await.expect("released");
    server.script([Do::Hang]);
    let lock = client.lock("l", TTL * 60);
    timeout(Duration::from_millis(200), lock.acquire()).await.expect_err("it waits");
    timeout(SOON, gave_up(4)).await.expect("left the queue");
}

#[tokio::test]
async fn every_try_of_a_write_has_the_same_request_id() {
    let server = Running::start().await;
    server.script([Do::FailUnclear(ErrorCode::Unavailable), Do::Fail(ErrorCode::Timeout)]);
    client(&[&server], SOON).kv().put("k", "v", PutOptions::new()).await.expect("the third try");
    let ids = server.state(|state| state.request_ids.clone());
    assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0] && id.len() == 16), "{ids:?}");
}

#[tokio::test]
async fn a_resume_begins_where_the_search_was_and_the_caller_sees_only_events() {
    let (first, second) = (Running::start().await, Running::start().await);
    let event = |log_index| EventView { log_index, kind: "lock_acquired".into(), ..Default::default() };
    let mark = |log_index| EventView { log_index, progress: true, ..Default::default() };
    first.state(|s| s.events.push_back((vec![event(3), mark(50)], Some(ErrorCode::Unavailable))));
    second.state(|s| s.events.push_back((vec![mark(60), event(70)], None)));
    let client = client(&[&first, &second], SOON);
    let kinds = vec!["lock_acquired".to_owned()];
    let request = ListEventsRequest { kinds: kinds.clone(), ..Default::default() };
    let events: Vec<_> = client.events(request).try_collect().await.expect("resumed");
    assert_eq!(events.iter().map(|event| event.log_index).collect::<Vec<_>>(), [3, 70]);
    let resumed = second.state(|s| s.event_requests[0].clone());
    assert_eq!((resumed.after_log_index, resumed.kinds, resumed.progress), (50, kinds, true));
}

#[tokio::test]
async fn a_place_that_is_no_longer_kept_is_an_error_and_is_not_retried() {
    let server = Running::start().await;
    server.state(|s| s.events.push_back((Vec::new(), Some(ErrorCode::Compacted))));
    let request = ListEventsRequest { after_log_index: 4, follow: true, ..Default::default() };
    let error = client(&[&server], SOON).events(request).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(error, Error::Compacted { .. }), "{error:?}");
    assert_eq!(error.code(), "compacted");
}
