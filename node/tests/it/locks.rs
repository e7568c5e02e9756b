//! Locks, guarded keys, filtered events and stale reads of whole nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clawhive_client::{Error, PutOptions, Txn};
use clawhive_proto::{
    AcquireLockRequest, ErrorCode, GetKeyRequest, ListEventsRequest, ListKeysRequest, ListRunsRequest,
    ReleaseLockRequest,
};
use futures::StreamExt;

use crate::support::*;

const SECOND: Duration = Duration::from_secs(1);

fn api(hive: &Hive, order: &[usize]) -> clawhive_client::Client {
    let servers = order.iter().map(|index| hive.address(*index).to_string());
    clawhive_client::Client::builder().servers(servers).timeout(LONG / 4).connect_lazy().unwrap()
}

/// A holder that takes a lock and is never heard of again.
async fn abandon(client: &mut Client, name: &str, ttl: Duration) -> u64 {
    let request = AcquireLockRequest {
        name: name.into(),
        session: vec![7; 16],
        ttl_ms: ttl.as_millis() as u64,
        owner: "gone".into(),
        ..AcquireLockRequest::default()
    };
    client.acquire_lock(request).await.unwrap().into_inner().token
}

#[tokio::test(flavor = "multi_thread")]
async fn one_holds_it_others_wait_in_order_and_old_tokens_write_nothing() {
    let hive = Hive::start(1).await;
    let client = api(&hive, &[0]);
    let lock = client.lock("deploy", 3 * SECOND);
    let first = lock.clone().owner("first").acquire().await.unwrap();
    let kv = client.kv();
    let under = |token: u64| PutOptions::new().fence(token).lock("deploy");
    kv.put("version", "1", under(first.token())).await.unwrap();

    let refused = lock.try_acquire().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("lock default/deploy is held by first (token {})", first.token())
    );
    let too_late = lock.clone().patience(SECOND / 2).acquire().await.unwrap_err();
    assert!(matches!(too_late, Error::Timeout { may_have_been_applied: false, .. }), "{too_late:?}");

    // Three who wait, in the order in which they came, and one who gives up.
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..4 {
        let (lock, order, told) = (lock.clone(), order.clone(), Arc::new(AtomicBool::new(false)));
        let tell = told.clone();
        let waiter = tokio::spawn(async move {
            let guard = lock.acquire_telling(|_| tell.store(true, Ordering::Relaxed)).await.unwrap();
            order.lock().unwrap().push((number, guard.token()));
            guard.release().await.unwrap();
        });
        eventually("it waits", || async { told.load(Ordering::Relaxed) }).await;
        waiters.push(waiter);
    }
    waiters.remove(1).abort();
    let old = first.token();
    first.release().await.unwrap();
    for waiter in waiters {
        tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert_eq!(order.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 2, 3]);
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1) && order[0].1 > old, "{order:?} after {old}");

    // Whoever comes later writes; the first must not any more, lock named or not.
    let last = lock.acquire().await.unwrap();
    kv.put("version", "2", under(last.token())).await.unwrap();
    let stale = kv.put("version", "3", PutOptions::new().fence(old)).await.unwrap_err();
    assert!(
        matches!(&stale, Error::Conflict { message } if message.contains(&format!("token {old} is older"))),
        "{stale}"
    );
    let stale = kv.put("other", "3", under(old)).await.unwrap_err();
    assert!(matches!(stale, Error::Conflict { .. }), "{stale}");
    assert_eq!(kv.get("version").await.unwrap().value, "2");
    drop(last);
    eventually("a dropped guard gives up", || async { lock.try_acquire().await.is_ok() }).await;
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_outlives_leaders_and_an_abandoned_one_does_not_outlive_its_time_by_much() {
    let mut hive = Hive::start(3).await;
    let leader = hive.leader().await;
    let other = (leader + 1) % 3;
    let client = api(&hive, &[other, (leader + 2) % 3]);
    let kept = client.lock("kept", 4 * SECOND).acquire().await.unwrap();
    let ttl = 3 * SECOND;
    let begun = Instant::now();
    let gone = abandon(&mut hive.client(other).await, "abandoned", ttl).await;
    tokio::time::sleep(SECOND).await;
    hive.crash(leader).await;
    let next = client.lock("abandoned", ttl).acquire().await.unwrap();
    assert!(begun.elapsed() >= ttl, "taken away after {:?}", begun.elapsed());
    assert!(next.token() > gone);
    tokio::time::sleep((4 * SECOND).saturating_sub(begun.elapsed())).await;
    assert!(kept.is_held(), "it was renewed all the time");
    kept.release().await.unwrap();
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_is_told_before_anybody_else_can_have_it() {
    let mut hive = Hive::start(3).await;
    let leader = hive.leader().await;
    // One that only knows a node which is about to be alone.
    let client = api(&hive, &[leader]);
    let guard = client.lock("l", 2 * SECOND).acquire().await.unwrap();
    let others: Vec<usize> = (0..3).filter(|index| *index != leader).collect();
    hive.crash(leader).await;
    let waiting = api(&hive, &others).lock("l", 2 * SECOND);
    let (lost, next) = tokio::join!(
        async {
            let why = guard.lost().await;
            (Instant::now(), why)
        },
        async {
            let guard = waiting.acquire().await.unwrap();
            (Instant::now(), guard)
        }
    );
    assert!(lost.0 <= next.0, "lost {:?} after another had it", lost.0 - next.0);
    assert!(next.1.token() > guard.token());
    assert!(!guard.is_held());
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_compared_changed_together_and_listed_in_pages() {
    let hive = Hive::start(1).await;
    let client = api(&hive, &[0]);
    let kv = client.kv().namespace("data");
    let first = kv.put("a/1", "x", PutOptions::new().if_absent()).await.unwrap();
    assert_eq!((first.version, first.created_at), (1, first.modified_at));
    let again = kv.put("a/1", "y", PutOptions::new().if_absent()).await.unwrap_err();
    assert_eq!(again.to_string(), "key \"a/1\" has version 1, and was to be absent");
    assert_eq!(kv.put("a/1", "y", PutOptions::new().if_version(1)).await.unwrap().version, 2);
    assert_eq!(kv.put("a/1", "z", PutOptions::new().if_value("y")).await.unwrap().version, 3);

    let moved = Txn::new().if_present("a/1").if_absent("a/2").get("a/1").delete("a/1").put("a/2", "z");
    let moved = kv.txn(moved.otherwise().get("a/2")).await.unwrap();
    assert!(moved.succeeded && moved.results[0].value == "z" && moved.results.len() == 3);
    let again = kv.txn(Txn::new().if_present("a/1").put("a/3", "!").otherwise().get("a/2")).await.unwrap();
    assert!(!again.succeeded && again.results[0].value == "z");
    let unread = kv.get("a/3").await.unwrap();
    assert!(!unread.found && unread.version == 0);

    for number in 0..25 {
        kv.put(format!("p/{number:02}"), vec![b'v'; number], PutOptions::new()).await.unwrap();
    }
    client.kv().put("p/99", "elsewhere", PutOptions::new()).await.unwrap();
    let mut request = ListKeysRequest { prefix: "p/".into(), limit: 10, ..Default::default() };
    let mut found = Vec::new();
    loop {
        let page = kv.list(request.clone()).await.unwrap();
        found.extend(page.keys.iter().map(|key| (key.key.clone(), key.value.len() as u64, key.size)));
        // What comes before the cursor meanwhile moves nothing.
        kv.put("p/0", "", PutOptions::new()).await.unwrap();
        match page.next_cursor.as_str() {
            "" => break,
            cursor => request.cursor = cursor.to_owned(),
        }
    }
    let expected: Vec<_> = (0..25).map(|number| (format!("p/{number:02}"), number, number)).collect();
    assert_eq!(found, expected);

    let large = kv.put("l", vec![0; (1 << 20) + 1], PutOptions::new()).await.unwrap_err();
    assert!(large.to_string().contains("the limit is 1048576 bytes"), "{large}");
    let many = (0..129).fold(Txn::new(), |txn, number| txn.get(format!("{number}")));
    let many = kv.txn(many).await.unwrap_err();
    assert!(many.to_string().contains("at most 128"), "{many}");
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_filtered_and_a_search_that_finds_nothing_says_how_far_it_came() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    for name in ["one", "two"] {
        let run = submit(&mut client, &format!("name: {name}\ntasks: {{t: {{run: 'true'}}}}")).await.run;
        end_of(&mut client, run).await;
    }
    // More than one page of events that nobody wants.
    for number in 0..600u64 {
        let session = u128::from(number).to_be_bytes().to_vec();
        let request = AcquireLockRequest {
            name: "l".into(),
            session: session.clone(),
            ttl_ms: 5_000,
            ..Default::default()
        };
        client.acquire_lock(request).await.unwrap();
        let release = ReleaseLockRequest { name: "l".into(), session, ..Default::default() };
        client.release_lock(release).await.unwrap();
    }
    let list = async |request: ListEventsRequest| {
        let mut client = hive.client(0).await;
        let stream = client.list_events(request).await.unwrap().into_inner();
        stream.map(Result::unwrap).collect::<Vec<_>>().await
    };
    let workflow = list(ListEventsRequest { workflow: "two".into(), ..Default::default() }).await;
    let kinds: Vec<&str> = workflow.iter().map(|event| event.kind.as_str()).collect();
    assert!(kinds.first() == Some(&"workflow_put") && kinds.last() == Some(&"run_succeeded"), "{kinds:?}");
    assert!(workflow.iter().all(|event| event.workflow == "two" && event.namespace == "default"));
    let kinds = vec!["run_succeeded".to_owned(), "run_failed".to_owned()];
    let ended = list(ListEventsRequest { kinds, ..Default::default() }).await;
    assert_eq!(ended.iter().map(|event| event.run).collect::<Vec<_>>(), [1, 2]);
    let acquired = ListEventsRequest { kinds: vec!["lock_acquired".to_owned()], ..Default::default() };
    let acquired = list(acquired).await;
    assert_eq!(acquired.len(), 600);
    assert!(acquired[0].namespace == "default" && acquired[0].detail.starts_with("l token "));

    let request = ListEventsRequest { workflow: "one".into(), progress: true, ..Default::default() };
    let found = list(request).await;
    let (marks, events): (Vec<_>, Vec<_>) = found.into_iter().partition(|event| event.progress);
    let place = marks.last().expect("how far it came").log_index;
    assert!(place >= acquired[599].log_index && marks.iter().all(|mark| mark.kind.is_empty()));
    assert!(events.iter().all(|event| event.workflow == "one") && events.len() >= 5);
    let after =
        list(ListEventsRequest { after_log_index: place, progress: true, ..Default::default() }).await;
    assert!(after.iter().all(|event| event.progress || event.log_index > place), "{after:?}");
    let request = ListEventsRequest { kinds: vec!["run_fialed".into()], ..Default::default() };
    let wrong = client.list_events(request).await.unwrap_err();
    assert!(wrong.message().ends_with("did you mean run_failed?"), "{wrong}");
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_is_waited_for_and_misses_nothing() {
    let hive = Hive::start(1).await;
    let mut client = hive.client(0).await;
    let kinds = vec!["lock_acquired".to_owned()];
    let request = ListEventsRequest { kinds, follow: true, ..Default::default() };
    let mut reader = hive.client(0).await;
    let mut slow = reader.list_events(request).await.unwrap().into_inner();
    // Far more than the window of a stream and the server's page together.
    let count = 3_000u64;
    let mut tokens = Vec::new();
    for number in 0..count {
        let session = u128::from(number).to_be_bytes().to_vec();
        let request = AcquireLockRequest {
            name: "l".into(),
            session: session.clone(),
            ttl_ms: 60_000,
            owner: "o".repeat(256),
            ..Default::default()
        };
        tokens.push(client.acquire_lock(request).await.unwrap().into_inner().token);
        let release = ReleaseLockRequest { name: "l".into(), session, ..Default::default() };
        client.release_lock(release).await.unwrap();
    }
    for token in tokens {
        let event = tokio::time::timeout(LONG, slow.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(event.log_index, token, "no gap, no repeat");
    }
    hive.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_reads_need_no_quorum_and_say_how_old_they_may_be() {
    let mut hive = Hive::start(3).await;
    let mut client = hive.client(2).await;
    api(&hive, &[0]).kv().put("k", "v", PutOptions::new()).await.unwrap();
    let get = |stale| GetKeyRequest { key: "k".into(), stale, ..Default::default() };
    let fresh = client.get_key(get(false)).await.unwrap().into_inner();
    let freshness = fresh.freshness.unwrap();
    assert!(!freshness.stale && freshness.age_ms.is_none());
    // Idle nodes ask once a second.
    tokio::time::sleep(SECOND).await;
    let young = client.get_key(get(true)).await.unwrap().into_inner().freshness.unwrap();
    assert!(young.stale && young.applied_index >= freshness.applied_index);
    assert!(young.age_ms.is_some_and(|age| age < LONG.as_millis() as u64), "{young:?}");

    hive.stop(0).await;
    hive.stop(1).await;
    let refused = client.get_key(get(false)).await.unwrap_err();
    assert_eq!(info(&refused).code(), ErrorCode::NoQuorum, "{refused:?}");
    let alone = Instant::now();
    tokio::time::sleep(SECOND).await;
    let old = client.get_key(get(true)).await.unwrap().into_inner();
    let freshness = old.freshness.unwrap();
    assert!(old.found && old.value == "v");
    assert!(freshness.age_ms.is_some_and(|age| u128::from(age) >= alone.elapsed().as_millis() - 50));
    let request = ListRunsRequest { stale: true, ..Default::default() };
    let runs = client.list_runs(request).await.unwrap().into_inner().freshness.unwrap();
    assert!(runs.stale && runs.age_ms >= freshness.age_ms);
    hive.shutdown().await;
}

/// What many readers of long lists cost the writes.
#[tokio::test(flavor = "multi_thread")]
async fn writes_go_on_under_many_readers() {
    let hive = Hive::start(1).await;
    let client = api(&hive, &[0]);
    let kv = client.kv();
    for batch in 0..40 {
        let txn = (0..100).fold(Txn::new(), |txn, n| txn.put(format!("k{batch:02}{n:02}"), vec![0; 200]));
        kv.txn(txn).await.unwrap();
    }
    let writes = async || {
        let begun = Instant::now();
        for number in 0..200 {
            kv.put(format!("w{number}"), "v", PutOptions::new()).await.unwrap();
        }
        begun.elapsed()
    };
    let alone = writes().await;
    let stop = Arc::new(AtomicBool::new(false));
    let pages = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..16)
        .map(|number| {
            let (kv, stop, pages) = (client.kv(), stop.clone(), pages.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let request =
                        ListKeysRequest { limit: 1_000, stale: number % 2 == 0, ..Default::default() };
                    kv.list(request).await.unwrap();
                    pages.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    eventually("the readers read", || async { pages.load(Ordering::Relaxed) >= 16 }).await;
    let (before, begun) = (pages.load(Ordering::Relaxed), Instant::now());
    let busy = tokio::time::timeout(LONG, writes()).await.expect("the writes go on");
    let read = pages.load(Ordering::Relaxed) - before;
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "200 writes: {alone:?} alone, {busy:?} beside {:.0} pages of 1,000 keys a second",
        read as f64 / seconds
    );
    assert!(read > 0, "the readers went on too");
    hive.shutdown().await;
}
