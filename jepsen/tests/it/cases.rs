//! Cases D-01, D-05 and D-12 on real nodes.

use std::time::{Duration, Instant};

use clawhive_client::proto::{AttemptRow, AttemptState, Reason, RunState, RunView};
use clawhive_jepsen::blackbox::check::read_counter;
use clawhive_jepsen::blackbox::flow::{Flow, Step};
use serde_json::json;

use super::support::{alone, assert_kept, cluster, ended, state, submit, until};

fn attempts(view: &RunView) -> Vec<AttemptRow> {
    view.tasks[0].attempts.iter().filter_map(|attempt| attempt.row.clone()).collect()
}

fn one_task(name: String, sleep_ms: u64) -> Flow {
    Flow { name, steps: vec![Step { sleep_ms, ..Step::default() }], max_attempts: 2 }
}

/// D-01: the node that runs a task dies; the attempt is lost within the lease, and the next one runs elsewhere.
#[test]
fn a_task_of_a_killed_node_runs_elsewhere() {
    alone(|| async {
        let lease = Duration::from_secs(2);
        let mut cluster = cluster(3, Some(lease)).await;
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        let flow = one_task("killed".to_owned(), 4_000);
        let run = submit(&client, flow.definition(&counter)).await;
        let view = until(&client, run, "the task runs", |view| {
            attempts(view).first().is_some_and(|row| row.state() == AttemptState::Running)
        })
        .await;
        let claw = attempts(&view)[0].claw;
        let victim =
            cluster.members.iter().position(|member| member.id == claw).expect("a node of the cluster");
        tokio::time::sleep(Duration::from_millis(800)).await;
        cluster.kill(victim).unwrap();
        let killed = Instant::now();
        until(&client, run, "the attempt is lost", |view| {
            attempts(view).first().is_some_and(|row| row.reason() == Reason::LostClaw)
        })
        .await;
        let took = killed.elapsed();
        assert!(took < lease + Duration::from_secs(2), "lost after {took:?}");
        let view = ended(&client, run, Duration::from_secs(30)).await;
        let rows = attempts(&view);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].state(), AttemptState::Succeeded);
        assert_ne!(rows[1].claw, claw, "the second attempt runs elsewhere");
        assert!(rows[1].fence > rows[0].fence, "tokens grow");
        assert_kept(&flow, &view, &counter);
    });
}

/// D-05: the leader dies while a claw elsewhere has a task that is not acknowledged yet: one attempt, one effect. Three
/// times, or as often as CLAWHIVE_D05_REPEATS says.
#[test]
fn the_leader_dies_between_dispatch_and_acknowledgement() {
    let repeats: usize =
        std::env::var("CLAWHIVE_D05_REPEATS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    alone(|| async move {
        let mut cluster = cluster(3, Some(Duration::from_secs(3))).await;
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        for round in 0..repeats {
            let flow = one_task(format!("round-{round}"), 250);
            let leader = cluster.wait_leader(Duration::from_secs(30)).await.unwrap();
            let run = submit(&client, flow.definition(&counter)).await;
            // A follower's own view shows the dispatch without asking the leader.
            let follower = cluster.client_of((leader + 1) % 3).unwrap();
            let limit = Instant::now() + Duration::from_secs(10);
            loop {
                let request =
                    clawhive_client::proto::GetRunRequest { run, stale: true, ..Default::default() };
                if follower.get_run_with(request).await.is_ok_and(|view| !attempts(&view).is_empty()) {
                    break;
                }
                assert!(Instant::now() < limit, "round {round}: never dispatched");
            }
            cluster.kill(leader).unwrap();
            let view = ended(&client, run, Duration::from_secs(30)).await;
            let rows = attempts(&view);
            assert_eq!(state(&view), RunState::Succeeded, "round {round}");
            assert_eq!(rows.len(), 1, "round {round}: {rows:?}");
            assert_ne!(
                rows[0].claw, cluster.members[leader].id,
                "round {round}: an idle claw comes before the leader's"
            );
            assert_kept(&flow, &view, &counter);
            cluster.restart(leader).await.unwrap();
        }
        let effects: usize = read_counter(&counter).unwrap().values().map(Vec::len).sum();
        assert_eq!(effects, repeats);
    });
}

/// D-12: a retry comes due while the node is down: it runs once, when the node is back.
#[test]
fn a_retry_that_came_due_while_down_runs_once() {
    alone(|| async {
        let mut cluster = cluster(1, None).await;
        let client = cluster.client().unwrap();
        let retries = json!({"max_attempts": 3, "delay": "3s", "backoff": "fixed", "jitter": 0});
        let task = json!({"run": "test \"$CLAWHIVE_ATTEMPT\" -ge 2", "retries": retries});
        let run = submit(&client, json!({"name": "again", "tasks": {"try": task}}).to_string()).await;
        let view = until(&client, run, "the first attempt failed", |view| {
            attempts(view).first().is_some_and(|row| row.state() == AttemptState::Failed)
        })
        .await;
        let due_ms = attempts(&view)[0].ended_at_ms + 3_000;
        cluster.kill(0).unwrap();
        tokio::time::sleep(Duration::from_millis(4_500)).await;
        cluster.restart(0).await.unwrap();
        let ready = Instant::now();
        let view = ended(&client, run, Duration::from_secs(30)).await;
        let took = ready.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?} after the node was back");
        assert_eq!(state(&view), RunState::Succeeded);
        let rows = attempts(&view);
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert!(rows[1].dispatched_at_ms >= due_ms, "the retry waited for its time");
    });
}
