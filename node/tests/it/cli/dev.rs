//! `dev`: one process or several, found by the verbs in the same directory.

use std::time::Duration;

use rustix::process::Signal;

use super::support::{HELLO, Place, port};

#[test]
fn verbs_in_the_directory_find_the_node() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    let port = port();
    let mut dev = place.start(&format!("dev --port {port}"), "ready");
    assert_eq!(place.call("run hello.yaml").ok(), "there are 12 words\n");
    let nodes = place.call("node ls -o json").json();
    assert_eq!(nodes["nodes"][0]["listen"], format!("127.0.0.1:{port}"));
    let second = place.call(&format!("dev --port {}", port + 10));
    assert_eq!(second.code, 6, "{second:?}");
    assert_eq!(dev.end(Signal::INT).code, 0);
    assert!(place.call("ls").ok().contains("hello"), "the data is used without the server");
}

#[test]
fn three_nodes_live_and_die_with_their_parent() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    let port = port();
    let mut dev = place.start(&format!("dev --nodes 3 --port {port}"), "ready");
    assert_eq!(dev.seen.len(), 4, "{:?}", dev.seen);
    let status = place.call("cluster status -o json").json();
    assert_eq!((&status["quorum"], &status["voters"]), (&true.into(), &3.into()));
    assert_eq!(place.call("run hello.yaml").ok(), "there are 12 words\n");
    // As hard as it can be: nothing of the parent runs any more, and the children see it.
    dev.end(Signal::KILL);
    let started = clawhive_node::env::monotonic();
    while (0..3).any(|n| std::net::TcpStream::connect(("127.0.0.1", port + n * 10)).is_ok()) {
        assert!(started.elapsed() < Duration::from_secs(30), "a child outlives its parent");
        std::thread::sleep(Duration::from_millis(100));
    }
    let alone = place.call("ls");
    assert_eq!(alone.code, 7, "{alone:?}");
    assert!(alone.stderr.contains("clawhive dev --nodes 3"), "{alone:?}");
    let mut again = place.start(&format!("dev --nodes 3 --port {port}"), "ready");
    assert!(place.call("ls").ok().contains("hello"));
    let done = again.end(Signal::TERM);
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn a_port_in_use_is_told_before_any_node_is_started() {
    let place = Place::new();
    let port = port();
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port + 11)).unwrap();
    let done = place.call(&format!("dev --nodes 3 --port {port}"));
    assert_eq!(done.code, 6, "{done:?}");
    let wanted = format!("error: cannot listen on 127.0.0.1:{} for peers: ", port + 11);
    assert!(done.stderr.starts_with(&wanted) && done.stderr.contains("hint: `--port`"), "{done:?}");
    assert!(!place.path().join(".clawhive").exists(), "files are left behind");
}
