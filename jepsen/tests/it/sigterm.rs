//! SIGTERM: the leadership goes first, running tasks get their time, and nothing acknowledged is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clawhive_client::Submit;
use clawhive_client::proto::{AttemptState, RunState, RunView};
use clawhive_jepsen::cluster::{Cluster, Options};
use rustix::process::{Pid, test_kill_process};

use super::support::{alone, binary, ended, state, submit, until};

const PATIENCE: Duration = Duration::from_secs(40);

fn attempts(view: &RunView) -> Vec<AttemptState> {
    let attempts = view.tasks.iter().flat_map(|task| &task.attempts);
    attempts.filter_map(|attempt| attempt.row.as_ref()).map(|row| row.state()).collect()
}

fn all_running(count: usize) -> impl Fn(&RunView) -> bool {
    move |view| attempts(view) == vec![AttemptState::Running; count]
}

#[test]
fn a_leader_that_is_told_to_end_hands_over_first_and_lets_its_tasks_end() {
    alone(|| async {
        let mut options = Options::new(3, binary());
        options.slots = vec![1];
        let mut cluster = Cluster::start(options).await.unwrap();
        let client = cluster.client().unwrap();
        let task = |n| format!("  t{n}: {{run: 'sleep 3; echo done'}}\n");
        let long = format!("name: long\ntasks:\n{}", (0..3).map(task).collect::<String>());
        let run = submit(&client, long).await;
        until(&client, run, "a task on each node", all_running(3)).await;

        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (client, stop) = (cluster.client().unwrap(), stop.clone());
                tokio::spawn(async move {
                    let (mut done, mut gap, mut runs) = (Instant::now(), Duration::ZERO, Vec::new());
                    while !stop.load(Ordering::Relaxed) {
                        let definition = Submit::definition("name: w\ntasks: {t: {run: 'true'}}\n");
                        runs.push(client.submit(definition).await.expect("a write during a hand-over").run);
                        gap = gap.max(done.elapsed());
                        done = Instant::now();
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    (gap, runs)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leader = cluster.wait_leader(PATIENCE).await.unwrap();
        let told = Instant::now();
        cluster.terminate(leader).unwrap();
        cluster.wait_stderr(leader, "draining: 1 task running, up to 30s", PATIENCE).await.unwrap();
        assert_eq!(cluster.ended(leader, PATIENCE).await.unwrap(), Some(0), "{}", cluster.log_text(leader));
        println!("the leader ended {:?} after SIGTERM", told.elapsed());
        assert!(
            cluster.log_text(leader).contains("the leadership is handed over"),
            "{}",
            cluster.log_text(leader)
        );
        assert!(cluster.log_text(leader).trim_end().ends_with("stopped"), "{}", cluster.log_text(leader));
        stop.store(true, Ordering::Relaxed);
        let mut runs = Vec::new();
        for writer in writers {
            let (gap, written) = writer.await.unwrap();
            println!("{} writes, the longest gap between two {gap:?}", written.len());
            assert!(gap < Duration::from_secs(5), "{gap:?}");
            runs.extend(written);
        }
        let view = ended(&client, run, PATIENCE).await;
        assert_eq!((state(&view), attempts(&view)), (RunState::Succeeded, vec![AttemptState::Succeeded; 3]));
        for run in runs {
            assert_eq!(state(&ended(&client, run, PATIENCE).await), RunState::Succeeded);
        }
    });
}

#[test]
fn a_second_signal_ends_at_once_and_leaves_no_process() {
    alone(|| async {
        let mut cluster = Cluster::start(Options::new(1, binary())).await.unwrap();
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("pid");
        let stubborn = format!(
            "name: stubborn\ntasks: {{t: {{run: 'trap \"\" TERM; echo $$ > {}; while :; do sleep 1; done'}}}}\n",
            pid.display()
        );
        let run = submit(&client, stubborn).await;
        until(&client, run, "the task runs", all_running(1)).await;
        let begun = Instant::now();
        let process = loop {
            let text = std::fs::read_to_string(&pid).unwrap_or_default();
            if let Some(process) = text.trim().parse().ok().and_then(Pid::from_raw) {
                break process;
            }
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        cluster.terminate(0).unwrap();
        cluster
            .wait_stderr(0, "draining: 1 task running, up to 30s; a second signal", PATIENCE)
            .await
            .unwrap();
        cluster.terminate(0).unwrap();
        assert_eq!(cluster.ended(0, PATIENCE).await.unwrap(), Some(0), "{}", cluster.log_text(0));
        assert!(
            cluster.log_text(0).contains("stopped at once, by a second signal"),
            "{}",
            cluster.log_text(0)
        );
        let begun = Instant::now();
        while test_kill_process(process).is_ok() {
            assert!(begun.elapsed() < PATIENCE, "an orphan is left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
