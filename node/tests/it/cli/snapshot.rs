//! Backups on real processes: saved while the cluster works, looked into, and a new cluster made of one.

use std::time::Duration;

use rustix::process::Signal;

use super::support::{HELLO, Place, port};

const SLOW: &str =
    "name: slow\ntasks:\n  t: {run: 'if [ $CLAWHIVE_ATTEMPT = 1 ]; then sleep 60; fi; echo second'}\n";

/// As [`Place::start`], and the addresses to ask.
fn flags(data: &str) -> (String, String) {
    let port = port();
    let flags = format!("--data {data} --listen 127.0.0.1:{port} --peer-listen 127.0.0.1:{}", port + 1);
    (flags, format!("--server 127.0.0.1:{port}"))
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = tokio::time::Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_backup_becomes_a_new_cluster_in_which_nothing_runs_by_itself() {
    let place = Place::new();
    place.file("hello.yaml", HELLO).file("slow.yaml", SLOW);
    let (flags, at) = flags("d");
    let mut server = place.start(&format!("server {flags} --bootstrap --slots 2"), "ready ");
    place.call(&format!("run hello.yaml --idempotency-key once {at}")).ok();
    place.call(&format!("submit slow.yaml {at}")).ok();
    until("the slow task", || {
        place.call(&format!("show 2 {at} -o json")).json()["tasks"][0]["state"] == "running"
    });
    let digest = place.call(&format!("cluster digest {at} -o json"));
    assert_eq!((digest.code, digest.json()["equal"].clone()), (0, true.into()), "{digest:?}");

    let saved = place.call(&format!("snapshot save b.snap {at}")).ok();
    assert!(saved.contains("checksum verified") && saved.contains("to b.snap: cluster "), "{saved}");
    let again = place.call(&format!("snapshot save b.snap {at}"));
    assert_eq!(again.code, 6, "{again:?}");
    assert!(again.stderr.contains("b.snap exists already") && again.stderr.contains("--force"), "{again:?}");
    let old = place.call(&format!("cluster status {at} -o json")).json();
    let inspected = place.call("snapshot inspect b.snap -o json").json();
    assert_eq!(inspected["cluster_id"], old["cluster_id"]);
    assert_eq!(inspected["nodes"][0]["id"], "1");
    let covers: u64 = inspected["log_index"].as_str().unwrap().parse().unwrap();
    let runs = inspected["tables"].as_array().unwrap().iter().find(|table| table["table"] == "runs").unwrap();
    assert_eq!(runs["rows"], "2");
    let told = place.call("snapshot inspect b.snap").ok();
    assert!(told.contains("Covers    log index ") && told.contains("checksum verified"), "{told}");
    server.end(Signal::KILL);

    // A damaged backup is refused with the place, and leaves nothing.
    let mut bytes = std::fs::read(place.path().join("b.snap")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(place.path().join("bad.snap"), &bytes).unwrap();
    for line in ["snapshot inspect bad.snap", "snapshot restore bad.snap --data e"] {
        let bad = place.call(line);
        assert_eq!(bad.code, 2, "{bad:?}");
        let placed =
            bad.stderr.contains("the checksum differs between byte") || bad.stderr.contains("of row");
        assert!(bad.stderr.starts_with("error: bad.snap: damaged: ") && placed, "{bad:?}");
    }
    assert!(!place.path().join("e").exists());
    let missing = place.call("snapshot inspect none.snap");
    assert_eq!(missing.code, 5, "{missing:?}");
    let full = place.call("snapshot restore b.snap --data d");
    assert_eq!(full.code, 6, "{full:?}");
    assert!(full.stderr.contains("is not empty: it belongs to node 1 of cluster"), "{full:?}");

    let restored = place.call("snapshot restore b.snap --data new -o json").json();
    assert_ne!(restored["cluster_id"], old["cluster_id"]);
    let node: u64 = restored["node"].as_str().unwrap().parse().unwrap();
    assert!(node > covers, "node {node} may have been another's");
    let (flags, at) = self::flags("new");
    let mut server = place.start(&format!("server {flags} --slots 2"), "ready ");
    let status = place.call(&format!("cluster status {at} -o json")).json();
    assert_eq!(status["cluster_id"], restored["cluster_id"]);
    assert_eq!(status["suspended"], true);
    let nodes: Vec<_> = status["nodes"].as_array().unwrap().iter().map(|node| node["id"].clone()).collect();
    assert_eq!(nodes, [restored["node"].clone()]);
    let told = place.call(&format!("cluster status {at}")).ok();
    assert!(told.contains("no task starts before `clawhive cluster resume`"), "{told}");

    // What ran is lost and waits; the idempotency key is kept; ids go on.
    let slow = place.call(&format!("show 2 {at} -o json")).json();
    assert_eq!(slow["tasks"][0]["state"], "ready");
    assert_eq!(slow["tasks"][0]["attempts"][0]["reason"], "lost_claw");
    assert_eq!(place.call(&format!("submit hello.yaml --idempotency-key once {at}")).ok(), "1\n");
    assert_eq!(place.call(&format!("submit hello.yaml {at}")).ok(), "3\n");
    std::thread::sleep(Duration::from_millis(1_500));
    let waits = place.call(&format!("show 3 {at} -o json")).json();
    assert_eq!(
        (waits["state"].clone(), waits["tasks"][0]["state"].clone()),
        ("pending".into(), "ready".into())
    );

    assert_eq!(
        place.call(&format!("cluster resume {at}")).ok(),
        "resumed: tasks start and timers fire again\n"
    );
    assert_eq!(place.call(&format!("wait 3 {at} --wait-timeout 60s")).code, 0);
    assert_eq!(place.call(&format!("wait 2 {at} --wait-timeout 60s")).code, 0);
    let fence = |run: &serde_json::Value, attempt: usize| -> u64 {
        let fence = &run["tasks"][0]["attempts"][attempt]["fence"];
        fence.as_str().map_or_else(|| fence.as_u64().unwrap(), |text| text.parse().unwrap())
    };
    let slow = place.call(&format!("show 2 {at} -o json")).json();
    assert!(fence(&slow, 1) > covers && fence(&slow, 1) > fence(&slow, 0), "{slow}");
    let twice = place.call(&format!("cluster resume {at}")).ok();
    assert_eq!(twice, "nothing to resume: this cluster is not suspended\n");
    assert_eq!(server.end(Signal::TERM).code, 0);
    // It is a node like any other: it starts again.
    let mut again = place.start(&format!("server {flags}"), "ready ");
    assert_eq!(place.call(&format!("cluster status {at} -o json")).json()["suspended"], false);
    assert_eq!(again.end(Signal::TERM).code, 0);
}

/// The only node of a cluster has nobody to ask: it makes its state again of its own log.
#[test]
fn a_bad_disk_under_a_single_node_costs_nothing() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    let (flags, at) = flags("d");
    let mut server = place.start(&format!("server {flags} --bootstrap"), "ready ");
    place.call(&format!("run hello.yaml {at}")).ok();
    assert_eq!(server.end(Signal::TERM).code, 0);
    clawhive_raft::damage_row(&place.path().join("d/raft/state.redb"), 0, false).unwrap();
    let mut server = place.start(&format!("server {flags}"), "ready ");
    until("the state made again", || place.path().join("d/quarantine").is_dir());
    until("the run", || {
        let shown = place.call(&format!("show 1 {at} -o json"));
        shown.code == 0 && shown.json()["state"] == "succeeded"
    });
    let done = server.end(Signal::TERM);
    assert!(done.stderr.contains("the state on disk was changed behind our back: at log entry"), "{done:?}");
    assert!(done.stderr.contains("makes its state again, of its snapshot and its log"), "{done:?}");
    assert!(!place.path().join("d/REBUILD.json").exists());
}
