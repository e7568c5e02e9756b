//! D-18 and EIO: the disk of the leader does not answer, or says that it failed.

use std::time::{Duration, Instant};

use clawhive_client::proto::{AttemptState, Reason, RunState};
use clawhive_jepsen::cluster::{Cluster, Options};

use super::super::support::{alone, binary, ended, state, submit, until};
use super::tools::Faults;

const PATIENCE: Duration = Duration::from_secs(40);

async fn start(faults: &Faults) -> Cluster {
    let mut options = Options::new(3, binary());
    options.slots = vec![1];
    options.lease = Some(Duration::from_secs(2));
    options.env = faults.env();
    Cluster::start(options).await.unwrap()
}

/// Somebody else who leads by its own word, and after how long.
async fn another_leads(cluster: &Cluster, than: usize, since: Instant) -> usize {
    loop {
        for number in (0..3).filter(|number| *number != than) {
            let id = cluster.members[number].id;
            let status = cluster.status_of(number).await;
            if status.is_some_and(|status| status.leader == id && status.quorum) {
                return number;
            }
        }
        assert!(since.elapsed() < PATIENCE, "nobody else leads");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_leader_whose_disk_hangs_is_replaced_and_nothing_runs_twice() {
    let Some(faults) = Faults::new() else { return };
    alone(|| async {
        let cluster = start(&faults).await;
        let folder = tempfile::tempdir().unwrap();
        let effects = folder.path().join("effects");
        // One on each node, the leader's included.
        let task = |n| format!("  t{n}: {{run: 'sleep 4; echo t{n} >> {}'}}\n", effects.display());
        let long = format!("name: long\ntasks:\n{}", (0..3).map(task).collect::<String>());
        let client = cluster.client().unwrap();
        let run = submit(&client, long).await;
        let running = |view: &clawhive_client::proto::RunView| {
            let attempts = view.tasks.iter().flat_map(|task| &task.attempts);
            let of = |row: &clawhive_client::proto::AttemptRow| row.state() == AttemptState::Running;
            attempts.filter_map(|attempt| attempt.row.as_ref()).filter(|row| of(row)).count() == 3
        };
        until(&client, run, "a task on each node", running).await;
        let hung = cluster.wait_leader(PATIENCE).await.unwrap();

        let since = Instant::now();
        faults.order(hung, "hang");
        let leads = another_leads(&cluster, hung, since).await;
        let replaced = since.elapsed();
        println!("a leader whose disk hangs was replaced within {replaced:?}");
        let healthy = cluster.client_of(leads).unwrap();
        let quick = submit(&healthy, "name: quick\ntasks: {t: {run: 'true'}}\n").await;
        assert_eq!(state(&ended(&healthy, quick, PATIENCE).await), RunState::Succeeded);
        println!("a run was submitted and done {:?} after the disk hung", since.elapsed());
        assert!(
            cluster.log_text(hung).contains("a write to the disk has not returned for"),
            "{}",
            cluster.log_text(hung)
        );
        let view = ended(&healthy, run, PATIENCE).await;
        assert_eq!(state(&view), RunState::Succeeded);

        faults.heal(hung);
        cluster.wait_stderr(hung, "the disk is well again", PATIENCE).await.unwrap();
        // What the node believed while it hung: late reports, old grants. None of it counts, none of it runs.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut lines: Vec<String> =
            std::fs::read_to_string(&effects).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["t0", "t1", "t2"], "{view:?}");
        for task in &healthy.get_run(run).await.unwrap().tasks {
            for row in task.attempts.iter().filter_map(|attempt| attempt.row.as_ref()) {
                let lost = row.state() == AttemptState::Failed && row.reason() == Reason::LostClaw;
                assert!(row.state() == AttemptState::Succeeded || lost, "{}: {row:?}", task.name);
            }
        }
        let again =
            submit(&cluster.client_of(hung).unwrap(), "name: again\ntasks: {t: {run: 'true'}}\n").await;
        assert_eq!(state(&ended(&healthy, again, PATIENCE).await), RunState::Succeeded);
    });
}

#[test]
fn a_failed_sync_ends_the_node_with_its_reason_and_loses_nothing() {
    let Some(faults) = Faults::new() else { return };
    alone(|| async {
        let mut cluster = start(&faults).await;
        let client = cluster.client().unwrap();
        let hello = "name: hello\ntasks: {t: {run: 'true'}}\n";
        let mut runs = vec![submit(&client, hello).await];
        let fails = cluster.wait_leader(PATIENCE).await.unwrap();
        // A slow disk is only slow.
        for number in 0..3 {
            faults.order(number, "slow 60");
        }
        let begun = Instant::now();
        runs.push(submit(&client, hello).await);
        println!("a submission on disks that take 60 ms for a sync took {:?}", begun.elapsed());
        (0..3).for_each(|number| faults.heal(number));

        let fails = match cluster.leader().await {
            Some(leader) => leader,
            None => fails,
        };
        faults.order(fails, "eio");
        runs.push(submit(&client, hello).await);
        assert_eq!(cluster.ended(fails, PATIENCE).await.unwrap(), None, "a signal, since it aborts");
        let said = cluster.log_text(fails);
        let reason = said
            .lines()
            .find(|line| line.starts_with("clawhive: fatal: "))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(reason.contains("cannot sync ") && reason.contains("Input/output error"), "{reason}");
        assert!(said.contains("this node stops, so that nothing wrong is stored or answered"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        runs.push(submit(&client, hello).await);
        faults.heal(fails);
        cluster.restart(fails).await.unwrap();
        for run in runs {
            assert_eq!(state(&ended(&client, run, PATIENCE).await), RunState::Succeeded);
        }
    });
}
