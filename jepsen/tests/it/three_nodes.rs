//! Three real nodes: any one killed, all killed, two stopped.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clawhive_client::proto::{AttemptState, Reason, RunState, RunView, TaskState};
use clawhive_client::{Error, Submit};
use clawhive_jepsen::blackbox::count_runs;
use clawhive_jepsen::blackbox::flow::{Flow, Step};
use clawhive_jepsen::blackbox::load::{Journal, client as load};
use clawhive_jepsen::rng::Rng;

use super::support::{alone, assert_kept, binary, cluster, ended, state, submit, until};

/// Ten layers of twenty tasks; each needs three of the layer before.
fn two_hundred() -> Flow {
    let mut rng = Rng::new(200);
    let steps = (0..200usize)
        .map(|task| {
            let mut needs: Vec<usize> = match task / 20 {
                0 => Vec::new(),
                layer => (0..3).map(|_| (layer - 1) * 20 + rng.index(20)).collect(),
            };
            needs.sort_unstable();
            needs.dedup();
            Step { needs, sleep_ms: 150, fails: false }
        })
        .collect();
    Flow { name: "two-hundred".to_owned(), steps, max_attempts: 2 }
}

#[test]
fn any_node_killed_during_200_tasks_under_continuous_submits() {
    alone(|| async {
        let mut cluster = cluster(3, Some(Duration::from_secs(2))).await;
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        for victim in 0..3 {
            let flow = Arc::new(Flow { name: format!("two-hundred-{victim}"), ..two_hundred() });
            let journal = Arc::new(Journal::default());
            let run = submit(&client, flow.definition(&counter)).await;
            let mut rng = Rng::new(victim as u64);
            let small: Vec<Arc<Flow>> =
                (0..100).map(|n| Arc::new(Flow::random(&mut rng, &format!("small-{victim}-{n}")))).collect();
            let stop = Instant::now() + Duration::from_secs(6);
            let loads: Vec<_> = small
                .chunks(50)
                .map(|flows| {
                    let client = cluster.client().unwrap();
                    tokio::spawn(load(client, flows.to_vec(), counter.clone(), journal.clone(), stop))
                })
                .collect();
            tokio::time::sleep(Duration::from_secs(1)).await;
            cluster.kill(victim).unwrap();
            let before = journal.acknowledged().len();
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            let meanwhile = journal.acknowledged().len() - before;
            assert!(meanwhile > 0, "nothing was acknowledged while node {} was down", victim + 1);
            cluster.restart(victim).await.unwrap();
            for load in loads {
                load.await.unwrap();
            }
            let view = ended(&client, run, Duration::from_secs(90)).await;
            assert_eq!(state(&view), RunState::Succeeded);
            assert_kept(&flow, &view, &counter);
            let submitted = journal.take();
            assert_eq!(submitted.broken, Vec::<String>::new());
            assert_eq!(submitted.refused, Vec::<String>::new());
            for (run, flow) in submitted.acknowledged {
                let view = ended(&client, run, Duration::from_secs(90)).await;
                assert_kept(&flow, &view, &counter);
            }
        }
    });
}

fn running(view: &RunView) -> usize {
    let states = view.tasks.iter().filter_map(|task| task.row.as_ref()).map(|row| row.state());
    states.filter(|state| *state == TaskState::Running).count()
}

#[test]
fn all_three_killed_and_started_again() {
    alone(|| async {
        let mut cluster = cluster(3, Some(Duration::from_secs(2))).await;
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("counter");
        let step = |sleep_ms, needs: &[usize]| Step { needs: needs.to_vec(), sleep_ms, fails: false };
        let done = Flow { name: "done".to_owned(), steps: vec![step(10, &[])], max_attempts: 1 };
        let first = submit(&client, done.definition(&counter)).await;
        ended(&client, first, Duration::from_secs(30)).await;
        let steps = vec![step(3_000, &[]), step(3_000, &[]), step(10, &[0, 1])];
        // One try: a lost attempt is none, so the policy still has it run again.
        let flow = Flow { name: "long".to_owned(), steps, max_attempts: 1 };
        let run = submit(&client, flow.definition(&counter)).await;
        until(&client, run, "two tasks run", |view| running(view) == 2).await;
        let runs = count_runs(&client).await.unwrap();

        for node in 0..3 {
            cluster.kill(node).unwrap();
        }
        for node in 0..3 {
            cluster.spawn(node).unwrap();
        }
        for node in 0..3 {
            cluster.ready(node).await.unwrap();
        }
        cluster.wait_leader(Duration::from_secs(30)).await.unwrap();
        assert_eq!(count_runs(&client).await.unwrap(), runs);
        assert_eq!(state(&client.get_run(first).await.unwrap()), RunState::Succeeded);
        let view = ended(&client, run, Duration::from_secs(60)).await;
        assert_eq!(state(&view), RunState::Succeeded);
        assert_kept(&flow, &view, &counter);
        for task in &view.tasks[..2] {
            let attempts: Vec<_> = task.attempts.iter().filter_map(|attempt| attempt.row.as_ref()).collect();
            assert_eq!(attempts.len(), 2, "{}", task.name);
            assert_eq!((attempts[0].state(), attempts[0].reason()), (AttemptState::Failed, Reason::LostClaw));
            assert_eq!(attempts[1].state(), AttemptState::Succeeded);
        }
    });
}

const HELLO: &str = r#"{"name": "hello", "tasks": {"greet": {"run": "echo hello"}}}"#;

#[test]
fn two_of_three_stopped_and_writes_say_so_within_five_seconds() {
    alone(|| async {
        let mut cluster = cluster(3, None).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hello.json");
        std::fs::write(&file, HELLO).unwrap();
        cluster.kill(0).unwrap();
        cluster.kill(1).unwrap();

        let begun = Instant::now();
        let submitted = Command::new(binary())
            .args(["submit", "--server", &cluster.members[2].listen])
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let took = begun.elapsed();
        let said = String::from_utf8_lossy(&submitted.stderr).into_owned();
        assert_eq!(submitted.status.code(), Some(7), "{said}");
        assert!(said.contains("no quorum: 1 of 3 reachable"), "{said}");
        assert!(took < Duration::from_secs(5), "took {took:?}");

        let client = cluster.client_of(2).unwrap();
        let begun = Instant::now();
        let error = client.submit(Submit::definition(HELLO)).await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum { .. }), "{error:?}");
        assert!(error.to_string().contains("no quorum: 1 of 3 reachable"), "{error}");
        assert!(begun.elapsed() < Duration::from_millis(5_500), "took {:?}", begun.elapsed());
        let status = client.cluster_status().await.unwrap();
        assert!(!status.quorum && status.voters == 3 && status.reachable == 1, "{status:?}");

        cluster.restart(0).await.unwrap();
        cluster.wait_leader(Duration::from_secs(30)).await.unwrap();
        let run = submit(&client, HELLO).await;
        assert_eq!(state(&ended(&client, run, Duration::from_secs(30)).await), RunState::Succeeded);
    });
}
