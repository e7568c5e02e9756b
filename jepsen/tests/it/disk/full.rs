//! F-01: the disk of a follower, of the leader, and of the only node is full.

use std::time::{Duration, Instant};

use clawhive_client::proto::{ListRunsRequest, RunState, RunView};
use clawhive_client::{Client, Submit};
use clawhive_jepsen::cluster::{Cluster, Options};

use super::super::support::{alone, binary, ended, state, submit};
use super::call;
use super::tools::Volume;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(40);

/// A run of so many tasks that all start at once.
fn tasks(name: &str, count: usize, script: &str) -> String {
    let task = |n| format!("  t{n}: {{run: '{script}'}}\n");
    format!("name: {name}\ntasks:\n{}", (0..count).map(task).collect::<String>())
}

/// A submission that takes room in every log.
fn bulky(number: usize) -> String {
    // No variable may be longer than 128 KiB.
    let env = |n| format!("X{n}: \"{}\"", "x".repeat(100_000));
    let env = (0..4).map(env).collect::<Vec<_>>().join(", ");
    format!("name: bulky-{number}\ntasks: {{t: {{run: 'true', env: {{{env}}}}}}}\n")
}

async fn acknowledged(client: &Client, definitions: impl IntoIterator<Item = String>) -> Vec<u64> {
    let mut runs = Vec::new();
    for definition in definitions {
        runs.push(submit(client, definition).await);
    }
    runs
}

async fn all_present(client: &Client, runs: &[u64]) {
    for run in runs {
        assert_eq!(state(&ended(client, *run, PATIENCE).await), RunState::Succeeded, "run {run}");
    }
}

fn claws(view: &RunView) -> Vec<u64> {
    let attempts = view.tasks.iter().flat_map(|task| &task.attempts);
    attempts.filter_map(|attempt| attempt.row.as_ref()).map(|row| row.claw).collect()
}

async fn no_trouble(cluster: &Cluster, number: usize) {
    cluster.wait_stderr(number, "the disk is well again", PATIENCE).await.unwrap();
}

#[test]
fn a_follower_and_then_a_leader_on_a_full_disk() {
    let Some(volume) = Volume::new(64) else { return };
    alone(|| async {
        let mut options = Options::new(3, binary());
        options.slots = vec![1, 2, 1];
        // What logs and state grow by meanwhile fits between where output ends and where the node has no space.
        options.env.push(("CLAWHIVE_MIN_FREE".to_owned(), "16MiB".to_owned()));
        options.data.insert(1, volume.path().join("data"));
        let mut cluster = Cluster::start(options).await.unwrap();
        let client = cluster.client().unwrap();
        let small = cluster.members[1].id;

        // Tasks print more than there is room: their output ends, they do not, and the node goes on.
        let talk = "yes 0123456789 | head -c 45000000";
        let run = submit(&client, tasks("talk", 4, talk)).await;
        let view = ended(&client, run, Duration::from_secs(60)).await;
        assert_eq!(state(&view), RunState::Succeeded);
        let server = cluster.client_of(0).unwrap();
        let place = claws(&view).iter().position(|claw| *claw == small).expect("a task on the small volume");
        let listen = cluster.members[0].listen.clone();
        let (run_text, task) = (run.to_string(), format!("t{place}"));
        let (code, printed, error) =
            call(&["logs", &run_text, &task, "--tail", "3", "--raw", "--server", &listen]);
        assert_eq!(code, 0, "{error}");
        let tail = &printed[printed.len().saturating_sub(300)..];
        assert!(tail.contains("[clawhive: output stopped: the disk is nearly full]"), "{tail}");
        assert!(tail.contains("bytes of output were dropped here"), "{tail}");
        assert!(volume.free() >= 16 * MIB, "output took the reserve: {} bytes are free", volume.free());

        // Another program takes the reserve: the node says so and gets no new work, the cluster works.
        volume.fill(5 * MIB);
        cluster.wait_stderr(1, "no space left: ", PATIENCE).await.unwrap();
        assert!(
            cluster.log_text(1).contains("16 MiB needed: no new work for this node"),
            "{}",
            cluster.log_text(1)
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
        let run = submit(&client, tasks("elsewhere", 6, "true")).await;
        let view = ended(&client, run, PATIENCE).await;
        assert!(!claws(&view).contains(&small), "the full node got work: {:?}", claws(&view));
        // All of it: its log finds no room any more, and waits. Nothing ends, nothing is lost.
        volume.fill(0);
        let mut runs = acknowledged(&server, (0..14).map(bulky)).await;
        cluster.wait_stderr(1, "no room on the disk: waiting until there is", PATIENCE).await.unwrap();
        runs.extend(acknowledged(&server, (14..16).map(bulky)).await);
        volume.empty();
        no_trouble(&cluster, 1).await;
        let far = server.cluster_status().await.unwrap().committed_index;
        caught_up(&cluster, 1, far).await;
        all_present(&server, &runs).await;

        // The same node leads and has no room: another one leads soon, without hands.
        lead(&cluster, 1).await;
        let begun = Instant::now();
        volume.fill(5 * MIB);
        let other = loop {
            match cluster.leader().await {
                Some(other) if other != 1 => break other,
                _ => assert!(begun.elapsed() < PATIENCE, "the full node goes on leading"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        println!("a leader without room was replaced within {:?}, by node {}", begun.elapsed(), other + 1);
        let more = acknowledged(&client, (16..19).map(bulky)).await;
        all_present(&client, &more).await;
        volume.empty();
        assert!(cluster.is_up(1) && cluster.status_of(1).await.is_some(), "the node did not live through it");
        assert!(!cluster.log_text(1).contains("panic"), "{}", cluster.log_text(1));
        assert!(cluster.stop(1, Duration::from_secs(40)).await.unwrap());
    });
}

/// Waits until a node has applied so much, by its own word.
async fn caught_up(cluster: &Cluster, number: usize, index: u64) {
    let begun = Instant::now();
    loop {
        let status = cluster.status_of(number).await;
        let at = status.as_ref().and_then(|status| {
            status
                .nodes
                .iter()
                .find(|node| node.id == cluster.members[number].id)
                .map(|node| node.applied_index)
        });
        if at.is_some_and(|at| at >= index) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "node {} is at {at:?}, not at {index}", number + 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Stops whoever else leads for a moment until this one does.
async fn lead(cluster: &Cluster, number: usize) {
    for _ in 0..20 {
        let leader = cluster.wait_leader(PATIENCE).await.unwrap();
        if leader == number {
            return;
        }
        cluster.pause(leader).unwrap();
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        cluster.resume(leader).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    panic!("node {} never leads", number + 1);
}

#[test]
fn the_only_node_on_a_full_disk_refuses_writes_and_goes_on_by_itself() {
    let Some(volume) = Volume::new(64) else { return };
    alone(|| async {
        let mut options = Options::new(1, binary());
        options.data.insert(0, volume.path().join("data"));
        let mut cluster = Cluster::start(options).await.unwrap();
        let client = cluster.client().unwrap();
        let listen = cluster.members[0].listen.clone();
        let runs = acknowledged(&client, (0..5).map(bulky)).await;
        all_present(&client, &runs).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("one.yaml");
        std::fs::write(&file, tasks("one", 1, "true")).unwrap();
        let file = file.to_str().unwrap();

        volume.fill(3 * MIB);
        cluster.wait_stderr(0, "no space left: ", PATIENCE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (code, _, error) = call(&["submit", file, "--server", &listen]);
        assert_eq!(code, 7, "{error}");
        let node = cluster.members[0].id;
        assert!(error.starts_with(&format!("error: no space left on node {node}: ")), "{error}");
        assert!(error.contains("8 MiB needed; reads go on"), "{error}");
        assert!(error.contains("hint: free some space on that node"), "{error}");
        let (_, document, _) = call(&["submit", file, "--server", &listen, "-o", "json"]);
        assert!(
            document.contains(r#""code": "no_space""#) || document.contains(r#""code":"no_space""#),
            "{document}"
        );
        let (code, list, error) = call(&["ls", "--server", &listen]);
        assert!(code == 0 && list.contains("bulky-4"), "{list} {error}");

        volume.empty();
        no_trouble(&cluster, 0).await;
        let (code, _, error) = call(&["run", file, "--server", &listen]);
        assert_eq!(code, 0, "{error}");

        // Stopped and started again while there is no room at all.
        volume.fill(0);
        cluster.wait_stderr(0, "no space left: ", PATIENCE).await.unwrap();
        assert!(cluster.stop(0, Duration::from_secs(40)).await.unwrap(), "{}", cluster.log_text(0));
        volume.fill(0);
        cluster.spawn(0).unwrap();
        assert_eq!(cluster.ended(0, PATIENCE).await.unwrap(), Some(9), "{}", cluster.log_text(0));
        let said = cluster.log_text(0);
        assert!(said.contains("error: no space left in the data directory "), "{said}");
        assert!(said.contains("0 bytes free, 1 MiB needed to start; nothing was changed"), "{said}");
        assert!(said.contains("hint: make room on that volume and start again"), "{said}");
        volume.empty();
        cluster.restart(0).await.unwrap();
        all_present(&client, &runs).await;
        let list =
            client.list_runs(ListRunsRequest { limit: 100, ..ListRunsRequest::default() }).await.unwrap();
        assert_eq!(list.runs.len(), runs.len() + 1, "a refused submission came true, or one is lost");
        let fine = client.submit(Submit::definition(tasks("two", 1, "true"))).await.unwrap();
        all_present(&client, &[fine.run]).await;
    });
}

#[test]
fn a_read_only_data_directory_is_told() {
    let Some(volume) = Volume::new(64) else { return };
    alone(|| async {
        let mut options = Options::new(1, binary());
        options.data.insert(0, volume.path().join("data"));
        let mut cluster = Cluster::start(options).await.unwrap();
        assert!(cluster.stop(0, Duration::from_secs(40)).await.unwrap());
        volume.remount("ro");
        cluster.spawn(0).unwrap();
        assert_eq!(cluster.ended(0, PATIENCE).await.unwrap(), Some(9), "{}", cluster.log_text(0));
        let said = cluster.log_text(0);
        assert!(said.contains("/data/LOCK: Read-only file system"), "{said}");
        volume.remount("rw");
        cluster.restart(0).await.unwrap();
        // Somebody moves the directory away: what is written from now on would not be found again.
        std::fs::rename(volume.path().join("data"), volume.path().join("moved")).unwrap();
        assert_eq!(cluster.ended(0, PATIENCE).await.unwrap(), None, "{}", cluster.log_text(0));
        let said = cluster.log_text(0);
        assert!(said.contains("fatal: the data directory ") && said.contains(" is gone"), "{said}");
        assert!(!said.contains("panic"), "{said}");
        std::fs::rename(volume.path().join("moved"), volume.path().join("data")).unwrap();
        cluster.restart(0).await.unwrap();
    });
}
