//! Claw leases and delivery modes on real nodes: killed and stopped claws, late reports (D-02), clocks that disagree (F-12),
//! tasks that must not run twice.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clawhive_client::Submit;
use clawhive_client::proto::{AttemptRow, AttemptState, Reason, RunState, RunView};
use clawhive_jepsen::claw_loss::{How, cluster_options, lose};
use clawhive_jepsen::cluster::{Cluster, Options};
use serde_json::{Value, json};

use super::support::{alone, binary, ended, state, submit, until};

const PATIENCE: Duration = Duration::from_secs(60);

fn attempts(view: &RunView, task: &str) -> Vec<AttemptRow> {
    let of = view.tasks.iter().find(|it| it.name == task).expect("a task of the run");
    of.attempts.iter().filter_map(|attempt| attempt.row.clone()).collect()
}

fn all_run(view: &RunView) -> bool {
    let rows = view.tasks.iter().filter_map(|task| task.attempts.last()?.row.as_ref());
    rows.filter(|row| row.state() == AttemptState::Running).count() == view.tasks.len()
}

async fn start(options: Options) -> Cluster {
    let out = std::env::var_os("CLAWHIVE_TEST_LOGS").map(std::path::PathBuf::from);
    Cluster::start(Options { out, ..options }).await.expect("the cluster starts")
}

fn clawhive(cluster: &Cluster, arguments: &[&str]) -> (Option<i32>, String) {
    let servers: Vec<&str> = cluster.members.iter().map(|member| member.listen.as_str()).collect();
    let done = Command::new(binary())
        .args(arguments)
        .env("CLAWHIVE_SERVER", servers.join(","))
        .output()
        .expect("the binary runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Must show 3: a claw is killed, another stands still (SIGSTOP) past its lease. Both attempts run elsewhere, not before the
/// lease ended by the claw's own count; the one of the stopped claw was ended by the guard before that.
#[test]
fn tasks_of_a_lost_claw_run_elsewhere_once_its_lease_has_ended() {
    alone(|| async {
        let lease = Duration::from_secs(2);
        let mut cluster = start(cluster_options(lease, binary())).await;
        let folder = tempfile::tempdir().unwrap();
        for (how, name) in [(How::Kill, "killed"), (How::Stop, "stopped")] {
            let file = folder.path().join(name);
            let (victim, loss) = lose(&mut cluster, lease, &file, how).await.unwrap();
            let after_lease = loss.elsewhere_ms - loss.lease_ended_ms;
            println!(
                "{name}: elsewhere {after_lease} ms after the lease ended, {} ms after the signal; last seen {} ms before",
                loss.elsewhere_ms - loss.killed_ms,
                loss.elsewhere_ms - loss.last_seen_ms,
            );
            assert!(after_lease >= 0, "{name}: {loss:?}");
            assert!(loss.last_seen_ms < loss.lease_ended_ms, "{name}: it ran on past the lease: {loss:?}");
            assert!(after_lease < 15_000, "{name}: {loss:?}");
            match how {
                How::Kill => cluster.restart(victim).await.unwrap(),
                How::Stop => cluster.resume(victim).unwrap(),
            }
        }
    });
}

/// D-02: the claw of attempt 1 stands still past its lease, attempt 2 runs elsewhere; then the first goes on and reports exit
/// 9, before the second has ended. And again where only one claw has slots, so that both attempts are its own.
#[test]
fn a_late_report_of_a_stopped_claw_is_refused() {
    alone(|| async {
        for same_claw in [false, true] {
            let mut options = Options::new(3, binary());
            options.lease = Some(Duration::from_secs(2));
            options.slots = if same_claw { vec![0, 0, 1] } else { vec![1] };
            let cluster = start(options).await;
            let client = cluster.client().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let text = "echo \"$CLAWHIVE_ATTEMPT $CLAWHIVE_FENCE\" >> \"$FILE\"; if test \"$CLAWHIVE_ATTEMPT\" = 1; then \
                        sleep 0.7; exit 9; fi; while test ! -e \"$GO\"; do sleep 0.05; done";
            let (file, go) = (folder.path().join("fences"), folder.path().join("go"));
            let task = json!({"run": text, "env": {"FILE": file, "GO": go}});
            let definition = json!({"name": "late", "tasks": {"t": task}}).to_string();
            let run = submit(&client, definition).await;
            let view = until(&client, run, "it runs", all_run).await;
            let victim = cluster.member_of(attempts(&view, "t")[0].claw).unwrap();
            cluster.pause(victim).unwrap();
            until(&client, run, "the attempt is lost", |view| {
                attempts(view, "t")[0].reason() == Reason::LostClaw
            })
            .await;
            if !same_claw {
                until(&client, run, "the second runs", |view| {
                    attempts(view, "t").len() == 2 && all_run(view)
                })
                .await;
            }
            cluster.resume(victim).unwrap();
            let refused = |log: &str| {
                log.lines().any(|line| {
                    line.contains("a late report was refused")
                        && line.contains("REJECTION_CODE_STALE_FENCE")
                        && line.contains("exit_code: Some(9)")
                })
            };
            let limit = std::time::Instant::now() + PATIENCE;
            while !refused(&cluster.log_text(victim)) {
                assert!(std::time::Instant::now() < limit, "no refusal in:\n{}", cluster.log_text(victim));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            std::fs::write(&go, "").unwrap();
            let view = ended(&client, run, PATIENCE).await;
            assert_eq!(state(&view), RunState::Succeeded);
            let rows = attempts(&view, "t");
            assert_eq!(rows.len(), 2, "{rows:?}");
            assert_eq!((rows[0].reason(), rows[0].exit_code), (Reason::LostClaw, None));
            assert_eq!(rows[1].state(), AttemptState::Succeeded);
            assert_eq!(rows[0].claw == rows[1].claw, same_claw);
            assert!(rows[1].fence > rows[0].fence, "tokens grow strictly");
            let seen = std::fs::read_to_string(&file).unwrap();
            assert_eq!(seen, format!("1 {}\n2 {}\n", rows[0].fence, rows[1].fence));
        }
    });
}

/// `at_most_once`: killed with its node, the task is not run again, and says why. `at_least_once` beside it is.
#[test]
fn a_task_that_must_not_run_twice_does_not() {
    alone(|| async {
        let mut options = Options::new(3, binary());
        options.lease = Some(Duration::from_secs(2));
        // All on one node: whoever is not the leader and comes first has room for both.
        options.slots = vec![0, 0, 2];
        let mut cluster = start(options).await;
        let client = cluster.client().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let counter = folder.path().join("effects");
        let task = |name: &str, delivery: &str| {
            let text = format!("echo {name} >> \"$FILE\"; test -e \"$GO\" || sleep 600");
            json!({"run": text, "env": {"FILE": counter, "GO": folder.path().join("go")}, "delivery": delivery})
        };
        let tasks = json!({"once": task("once", "at_most_once"), "again": task("again", "at_least_once")});
        let run = submit(&client, json!({"name": "delivery", "tasks": tasks}).to_string()).await;
        let lines = || std::fs::read_to_string(&counter).unwrap_or_default();
        until(&client, run, "both run", |view| all_run(view) && lines().lines().count() == 2).await;
        cluster.kill(2).unwrap();
        std::fs::write(folder.path().join("go"), "").unwrap();
        cluster.restart(2).await.unwrap();
        let view = ended(&client, run, PATIENCE).await;
        assert_eq!(state(&view), RunState::Failed);
        let (once, again) = (attempts(&view, "once"), attempts(&view, "again"));
        assert_eq!((once.len(), once[0].reason()), (1, Reason::LostClaw));
        assert_eq!((again.len(), again[1].state()), (2, AttemptState::Succeeded));
        let count = |name: &str| lines().lines().filter(|line| *line == name).count();
        assert_eq!((count("once"), count("again")), (1, 2), "{}", lines());
        let (_, shown) = clawhive(&cluster, &["show", &run.to_string(), "--task", "once"]);
        assert!(shown.contains("delivery: at_most_once does not run it again"), "{shown}");
    });
}

fn skews(cluster: &Cluster) -> Vec<i64> {
    let (code, said) = clawhive(cluster, &["node", "ls", "-o", "json"]);
    assert_eq!(code, Some(0), "{said}");
    let said: Value = serde_json::from_str(&said).expect("a JSON document");
    let nodes = said["nodes"].as_array().expect("nodes");
    nodes.iter().map(|node| node["skew_ms"].as_i64().expect("a number")).collect()
}

fn near(skew_ms: i64, wanted_ms: i64) -> bool {
    // Machines are slow and clocks slew: a few seconds are not what is asked about.
    (skew_ms - wanted_ms).abs() < 5_000
}

/// F-12: node 2 is 60 s ahead, node 3 60 s behind; the leader's clock is stepped by an hour, forth and back; the leader
/// changes twice. No lease ends early, waits are neither skipped nor stuck, and the skew is told.
#[test]
fn clocks_that_disagree_end_no_lease() {
    alone(|| async {
        let lease = Duration::from_secs(2);
        let mut options = Options::new(3, binary());
        (options.lease, options.slots) = (Some(lease), vec![4]);
        options.clocks = Some(vec![0, 60_000, -60_000]);
        let mut cluster = start(options).await;
        let client = cluster.client().unwrap();
        let leader = cluster.wait_leader(PATIENCE).await.unwrap();
        assert_eq!(leader, 0, "the founder leads until it is stopped");
        let all = skews(&cluster);
        assert!(near(all[0], 0) && near(all[1], 60_000) && near(all[2], -60_000), "{all:?}");
        let (_, status) = clawhive(&cluster, &["cluster", "status"]);
        assert!(status.contains("Clocks     node ") && status.contains(" s ahead, node "), "{status}");
        let log = cluster.log_text(0);
        assert!(
            log.contains(" ms ahead of the leader's") && log.contains(" ms behind the leader's"),
            "{log}"
        );

        let sleeps = |name: &str| {
            json!({"name": name, "tasks": {
                "a": {"run": "sleep 600"}, "b": {"run": "sleep 600"}, "c": {"run": "sleep 600"}, "d": {"run": "sleep 600"},
            }})
        };
        let run = submit(&client, sleeps("sleeps").to_string()).await;
        until(&client, run, "all run", all_run).await;
        for step_ms in [3_600_000, -3_600_000] {
            cluster.set_clock(0, step_ms).unwrap();
            // More than a lease, and long enough for the clock to be looked at.
            tokio::time::sleep(lease + Duration::from_millis(1_500)).await;
            let skew = skews(&cluster)[0];
            assert!(near(skew, step_ms), "{skew}");
            retry_after_a_second(&client, &format!("step{}", step_ms > 0)).await;
        }
        let view = client.get_run(run).await.unwrap();
        assert!(view.tasks.iter().all(|task| task.attempts.len() == 1), "{view:?}");
        assert!(!cluster.log_text(0).contains("the lease of a claw has ended"));

        // Whoever leads next has another idea of the time, by a minute or two.
        for change in 0..2 {
            let leader = cluster.wait_leader(PATIENCE).await.unwrap();
            cluster.kill(leader).unwrap();
            let lost = cluster.members[leader].id;
            let next = cluster.wait_leader(PATIENCE).await.unwrap();
            retry_after_a_second(&client, &format!("change-{change}")).await;
            let view = client.get_run(run).await.unwrap();
            let of = view.tasks.iter().flat_map(|task| attempts(&view, &task.name));
            let cut = of.filter(|row| row.reason() == Reason::LostClaw && row.claw != lost).count();
            assert_eq!(cut, 0, "led by node {}: {view:?}", next + 1);
            cluster.restart(leader).await.unwrap();
            cluster.voters(3, PATIENCE).await.unwrap();
        }
        client.cancel(run, "enough").await.unwrap();
    });
}

/// A retry comes once, after its second, whatever the clocks say.
async fn retry_after_a_second(client: &clawhive_client::Client, name: &str) {
    let retries = json!({"max_attempts": 2, "delay": "1s", "backoff": "fixed", "jitter": 0});
    let task = json!({"run": "test \"$CLAWHIVE_ATTEMPT\" = 2", "retries": retries});
    let run = submit(client, json!({"name": name, "tasks": {"t": task}}).to_string()).await;
    let view = ended(client, run, PATIENCE).await;
    assert_eq!((state(&view), attempts(&view, "t").len()), (RunState::Succeeded, 2), "{name}: {view:?}");
}

/// Must show 7, in short: all cores burn on all nodes, nobody loses the lead, and writes go through.
#[test]
fn work_does_not_starve_the_cluster() {
    alone(|| async {
        use clawhive_jepsen::burn::{Options, burn};
        let time = Duration::from_secs(10);
        let seen = burn(&Options { time, loops: 4, binary: binary(), out: None, nice: None }).await.unwrap();
        println!("{} writes while {} loops burnt, {} failed", seen.burnt.len(), seen.loops, seen.failed);
        assert_eq!(seen.loops, 12, "they burnt all the time");
        assert_eq!(seen.terms.0, seen.terms.1, "the leader changed");
        assert_eq!(seen.failed, 0);
        assert!(seen.burnt.len() > 50, "{} writes", seen.burnt.len());
    });
}

/// D-08 with the binary: one idempotency key, 50 calls over three nodes, one run; what is said to each, and to another body;
/// and after a change of leader and a restart of all.
#[test]
fn one_idempotency_key_is_one_run() {
    alone(|| async {
        let mut cluster = start(Options::new(3, binary())).await;
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let order = file("order.yaml", "name: order\ntasks: {t: {run: 'true'}}\n");
        let other = file("other.yaml", "name: order\ntasks: {t: {run: 'false'}}\n");
        let submit = |server: &str, file: &str, more: &[&str]| {
            let mut command = Command::new(binary());
            command.args(["submit", file, "--idempotency-key", "order-7", "--server", server]).args(more);
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
            command.spawn().expect("the binary runs")
        };
        let calls: Vec<_> = (0..50)
            .map(|caller| submit(&cluster.members[caller % 3].listen, &order, &["-o", "json"]))
            .collect();
        let answers: Vec<Value> = calls
            .into_iter()
            .map(|call| {
                let done = call.wait_with_output().unwrap();
                assert!(done.status.success(), "{done:?}");
                serde_json::from_slice(&done.stdout).unwrap()
            })
            .collect();
        assert!(answers.iter().all(|answer| answer["run"] == answers[0]["run"]), "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer["replayed"] == true).count(), 49);
        let run = answers[0]["run"].as_str().unwrap().to_owned();
        let said = |cluster: &Cluster, file: &str| {
            let servers: Vec<&str> = cluster.members.iter().map(|member| member.listen.as_str()).collect();
            let done = submit(&servers.join(","), file, &[]).wait_with_output().unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (done.status.code(), text(done.stdout), text(done.stderr))
        };
        let leader = cluster.wait_leader(PATIENCE).await.unwrap();
        cluster.kill(leader).unwrap();
        cluster.wait_leader(PATIENCE).await.unwrap();
        for round in 0..2 {
            let again = said(&cluster, &order);
            assert_eq!((again.0, again.1.trim()), (Some(0), run.as_str()), "round {round}: {again:?}");
            assert!(
                again.2.contains(&format!("run {run} was there already, by its idempotency key")),
                "{again:?}"
            );
            let conflict = said(&cluster, &other);
            assert_eq!(conflict.0, Some(6), "{conflict:?}");
            assert!(conflict.2.starts_with("error: ") && conflict.2.contains("order-7"), "{conflict:?}");
            if round == 0 {
                for number in (0..3).filter(|number| *number != leader) {
                    cluster.kill(number).unwrap();
                }
                for number in 0..3 {
                    cluster.spawn(number).unwrap();
                }
                for number in 0..3 {
                    cluster.ready(number).await.unwrap();
                }
                cluster.wait_leader(PATIENCE).await.unwrap();
            }
        }
        let client = cluster.client().unwrap();
        assert_eq!(clawhive_jepsen::blackbox::count_runs(&client).await.unwrap(), 1);
        let view =
            client.submit(Submit::definition(std::fs::read(Path::new(&order)).unwrap())).await.unwrap();
        assert!(!view.replayed, "without the key it is another run");
    });
}
