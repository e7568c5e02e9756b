//! `server`: one node as a process of its own.

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
