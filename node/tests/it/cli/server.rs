//! `server`: one node as a process of its own.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::process::Signal;

use super::support::{HELLO, Place, port};

#[test]
fn a_server_serves_and_ends_well() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    let port = port();
    let flags = format!("--data d --listen 127.0.0.1:{port} --peer-listen 127.0.0.1:{}", port + 1);
    let mut server = place.start(&format!("server {flags} --bootstrap"), "ready ");
    assert_eq!(server.seen, [format!("ready listen=127.0.0.1:{port} node=1")]);
    let at = format!("--server 127.0.0.1:{port}");
    let detached = place.call(&format!("run hello.yaml --detach {at}")).ok();
    assert_eq!(detached, "1\n");
    assert_eq!(place.call(&format!("wait 1 {at}")).code, 0);
    assert_eq!(place.call(&format!("run hello.yaml {at}")).ok(), "there are 12 words\n");
    assert!(!place.path().join(".clawhive").exists());

    let second = place.call("server --data d --listen 127.0.0.1:0 --peer-listen 127.0.0.1:0");
    assert_eq!(second.code, 6, "{second:?}");
    assert!(second.stderr.contains("is in use by process"), "{second:?}");
    let taken = place.call(&format!("server --data e --listen 127.0.0.1:{port} --bootstrap"));
    assert_eq!(taken.code, 6, "{taken:?}");
    assert!(taken.stderr.contains(&format!("127.0.0.1:{port}")), "{taken:?}");

    let done = server.end(Signal::TERM);
    assert_eq!(done.code, 0, "{done:?}");
    let again = place.call(&format!("server {flags} --bootstrap"));
    assert_eq!(again.code, 2, "{again:?}");
    assert!(again.stderr.contains("is not empty"), "{again:?}");
    let mut restarted = place.start(&format!("server {flags}"), "ready ");
    assert_eq!(place.call(&format!("show 1 {at} -o json")).json()["state"], "succeeded");
    assert_eq!(restarted.end(Signal::TERM).code, 0);
}

#[test]
fn wrong_settings_are_told_with_their_place() {
    let place = Place::new();
    place.file("c.toml", "data = \"d\"\nlisten = \"127.0.0.1:0\"\nheartbaet = \"50ms\"\n");
    let done = place.call("server --config c.toml");
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.stderr.contains("c.toml:3:1") && done.stderr.contains("heartbeat"), "{done:?}");
    assert!(!place.path().join("d").exists());
    let empty = place.call("server --data d --listen 127.0.0.1:0 --peer-listen 127.0.0.1:0");
    assert_eq!(empty.code, 2, "{empty:?}");
    assert!(empty.stderr.contains("--bootstrap"), "{empty:?}");
    assert_eq!(place.call("server --bootstrap --join 127.0.0.1:1").code, 2);
}

/// Whatever the moment, a signal is not a crash: what is half started holds runtimes and locks.
#[test]
fn a_signal_during_the_start_ends_a_server_well() {
    let place = Place::new();
    for pause_ms in [0, 20, 50, 100, 200] {
        let line =
            format!("server --data d{pause_ms} --listen 127.0.0.1:0 --peer-listen 127.0.0.1:0 --bootstrap");
        let mut server = place.command(&line).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(pause_ms));
        let pid = rustix::process::Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        let status = server.wait().unwrap();
        // Before `main` has asked for signals, TERM does what it does to every process.
        let early = pause_ms < 50 && status.signal() == Some(Signal::TERM.as_raw());
        assert!(status.success() || early, "after {pause_ms} ms: {status:?}");
    }
}

/// B-19: with `on_failure: stop` the others are ended at once and their slots come back; without, they go on.
#[test]
fn a_failure_stops_the_others_when_asked() {
    let place = Place::new();
    let tasks = "tasks:\n  A: {run: sleep 8}\n  B: {run: sleep 0.3; exit 1}\n  C: {run: sleep 1; exit 0}\n";
    place.file("stop.yaml", &format!("name: stop\non_failure: stop\n{tasks}"));
    place.file("go-on.yaml", &format!("name: go-on\n{}", tasks.replace("sleep 8", "sleep 1")));
    let started = tokio::time::Instant::now();
    let stopped = place.call("run stop.yaml -o json");
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(started.elapsed() < Duration::from_secs(7), "{:?}", started.elapsed());
    let states = |run: &serde_json::Value| -> Vec<String> {
        let tasks = run["tasks"].as_array().unwrap();
        tasks.iter().map(|task| task["state"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(states(&stopped.json()), ["cancelled", "failed", "cancelled"]);
    let went_on = place.call("run go-on.yaml -o json");
    assert_eq!(
        (went_on.code, states(&went_on.json())),
        (1, vec!["succeeded".into(), "failed".into(), "succeeded".into()])
    );
    let nodes = place.call("node ls -o json").json();
    assert_eq!(nodes["nodes"][0]["running"], 0, "{nodes}");
}

/// A node that dies without a word takes its tasks along: they would take effect beside the attempt that replaces them.
#[test]
fn tasks_do_not_outlive_a_killed_server() {
    let place = Place::new();
    place.file("late.yaml", "name: late\nparams: {file: {type: string}}\ntasks:\n  t: {run: 'echo on; sleep 2; echo late >> \"$F\"', env: {F: '{{ params.file }}'}}\n");
    let port = port();
    let flags = format!("--data d --listen 127.0.0.1:{port} --peer-listen 127.0.0.1:{}", port + 1);
    let mut server = place.start(&format!("server {flags} --bootstrap"), "ready ");
    let (at, effect) = (format!("--server 127.0.0.1:{port}"), place.path().join("effect"));
    place.call(&format!("submit late.yaml -p file={} {at}", effect.display())).ok();
    let started = tokio::time::Instant::now();
    while !place.call(&format!("logs 1 t {at}")).stdout.contains("on") {
        assert!(started.elapsed() < Duration::from_secs(30), "the task does not start");
    }
    server.end(Signal::KILL);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!effect.exists(), "the task went on");
}
