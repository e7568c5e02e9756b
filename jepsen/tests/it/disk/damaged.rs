//! Bytes of a stopped node that changed: in its log, in its state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clawhive_client::proto::RunState;
use clawhive_jepsen::cluster::{Cluster, Options};

use super::super::support::{alone, binary, ended, state, submit};

const PATIENCE: Duration = Duration::from_secs(40);
const HELLO: &str = "name: hello\ntasks: {t: {run: 'true'}}\n";

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 16;
    std::fs::write(path, bytes).unwrap();
}

fn last_segment(data: &Path) -> PathBuf {
    let log = std::fs::read_dir(data.join("raft/log")).unwrap();
    let segments = log.map(|entry| entry.unwrap().path());
    segments.filter(|path| path.extension().is_some_and(|end| end == "log")).max().unwrap()
}

async fn refuses(cluster: &mut Cluster, number: usize, file: &Path, what: &str) {
    cluster.spawn(number).unwrap();
    assert_eq!(cluster.ended(number, PATIENCE).await.unwrap(), Some(9), "{}", cluster.log_text(number));
    let said = cluster.log_text(number);
    let id = cluster.members[number].id;
    assert!(said.contains(&format!("error: the storage of node {id} in ")), "{said}");
    assert!(said.contains(&file.display().to_string()) && said.contains(what), "{said}");
    assert!(said.contains(&format!("`clawhive node remove {id}`")) && said.contains("--join"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn damaged_bytes_are_told_or_made_good_and_never_served() {
    alone(|| async {
        let mut cluster = Cluster::start(Options::new(3, binary())).await.unwrap();
        let client = cluster.client().unwrap();
        let mut runs = Vec::new();
        for _ in 0..20 {
            runs.push(submit(&client, HELLO).await);
        }
        for run in &runs {
            ended(&client, *run, PATIENCE).await;
        }
        let victim = (cluster.wait_leader(PATIENCE).await.unwrap() + 1) % 3;
        assert!(cluster.stop(victim, Duration::from_secs(40)).await.unwrap());
        let data = cluster.members[victim].data.clone();

        // The log: it holds what a majority may count on. Nothing is cut off, nothing is changed.
        let segment = last_segment(&data);
        let good = std::fs::read(&segment).unwrap();
        for (at, what) in [(40, "has a damaged header"), (4096 + 2000, "is damaged at offset ")] {
            flip(&segment, at);
            refuses(&mut cluster, victim, &segment, what).await;
            let mut now = std::fs::read(&segment).unwrap();
            now[at] ^= 16;
            assert!(now == good, "something was changed");
            std::fs::write(&segment, &good).unwrap();
        }
        let mut zeroed = good.clone();
        zeroed[4096..4096 + 4096].fill(0);
        std::fs::write(&segment, zeroed).unwrap();
        refuses(&mut cluster, victim, &segment, "is damaged at offset 4096").await;
        std::fs::write(&segment, &good).unwrap();

        // The state comes of the log, which is whole: it is made anew.
        let file = data.join("raft/state.redb");
        let pages = std::fs::read(&file).unwrap().len() / 4096;
        let mut bytes = std::fs::read(&file).unwrap();
        for page in 1..pages {
            // Another bit everywhere, and no page at all here and there.
            bytes[page * 4096 + 100] ^= 16;
            if page % 3 == 0 {
                bytes[page * 4096..(page + 1) * 4096].fill(0);
            }
        }
        std::fs::write(&file, bytes).unwrap();
        runs.push(submit(&client, HELLO).await);
        cluster.restart(victim).await.unwrap();
        let said = cluster.log_text(victim);
        assert!(said.contains("the state is damaged; it is made anew from snapshot and log"), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        let own = cluster.client_of(victim).unwrap();
        for run in &runs {
            assert_eq!(state(&ended(&own, *run, PATIENCE).await), RunState::Succeeded);
        }
    });
}
