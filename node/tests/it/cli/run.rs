//! `run`: results, failures, exit codes.

use std::time::Duration;

use rustix::process::Signal;

use super::support::{BAD, HELLO, Place, SLEEPS};

#[test]
fn the_report_is_printed_and_the_run_is_there_afterwards() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    let first = place.call("run hello.yaml");
    assert_eq!((first.code, first.stdout.as_str()), (0, "there are 12 words\n"), "{first:?}");
    assert!(first.stderr.contains("run 1 succeeded: 3 tasks in "), "{first:?}");
    assert!(first.stderr.lines().any(|line| line.starts_with("succeeded  count  ")), "{first:?}");
    let second = place.call("run hello.yaml -o json");
    assert_eq!(second.code, 0);
    let run = second.json();
    assert_eq!((run["id"].as_str(), run["state"].as_str()), (Some("2"), Some("succeeded")));
    assert_eq!(run["tasks"][1]["outputs"]["words"], 12);
    assert_eq!(run["tasks"][0]["attempts"][0]["exit_code"], 0);
    let list = place.call("ls").ok();
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..4], ["2", "hello", "succeeded", "3/3"]);
    assert_eq!(rows[2][..4], ["1", "hello", "succeeded", "3/3"]);
}

#[test]
fn a_failing_task_is_shown_without_asking() {
    let place = Place::new();
    place.file("bad.yaml", BAD);
    let done = place.call("run bad.yaml");
    assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:?}");
    assert!(done.stderr.contains("error: task breaks failed: exit 3 (attempt 2 of 2)"), "{done:?}");
    assert!(done.stderr.contains("  | line 20\n  | no such table\n"), "{done:?}");
    assert!(!done.stderr.contains("| line 11\n"), "only the last lines: {done:?}");
    assert!(done.stderr.contains("run 1 failed: 1 failed, 1 upstream failed, 1 succeeded in "), "{done:?}");
    assert!(done.stderr.contains("hint: clawhive show 1"), "{done:?}");
    let run = place.call("run bad.yaml -o json");
    assert_eq!(run.code, 1);
    let run = run.json();
    assert_eq!(run["failures"][0]["task"], "breaks");
    assert_eq!(run["failures"][0]["log"][9], "no such table");
    let task = place.call("show 2 --task breaks").ok();
    assert!(task.contains("State      failed (exit 3)"), "{task}");
}

#[test]
fn a_refused_definition_stores_nothing() {
    let place = Place::new();
    place.file("wrong.yaml", "name: wrong\ntasks:\n  a: {run: x, ned: [b]}\n  c: {needs: [zz], run: y}\n");
    let done = place.call("run wrong.yaml");
    assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{done:?}");
    assert!(done.stderr.contains("wrong.yaml:3:"), "{done:?}");
    let error = place.call("run wrong.yaml -o json");
    assert_eq!(error.code, 2);
    let error = &error.json()["error"];
    assert_eq!((&error["code"], &error["may_have_been_applied"]), (&"invalid".into(), &false.into()));
    assert_eq!(error["diagnostics"][0]["line"], 3);
    assert!(error["diagnostics"].as_array().is_some_and(|all| all.len() >= 2), "all faults at once: {error}");
    assert!(!place.path().join(".clawhive").exists());
}

#[test]
fn ctrl_c_cancels_the_run() {
    let place = Place::new();
    place.file("sleeps.yaml", SLEEPS);
    let mut running = place.start("run sleeps.yaml -o json", "");
    let started = clawhive_node::env::monotonic();
    // The node of the run answers in this directory while it runs.
    while !place.call("ls -o json").stdout.contains("\"running\"") {
        assert!(started.elapsed() < Duration::from_secs(30), "the run does not start");
        std::thread::sleep(Duration::from_millis(100));
    }
    let done = running.end(Signal::INT);
    assert_eq!(done.code, 3, "{done:?}");
    assert_eq!(done.json()["state"], "cancelled");
    let tasks = place.call("show 1 -o json").json();
    assert_eq!(tasks["tasks"][1]["state"], "cancelled");
}

#[test]
fn a_run_that_takes_too_long_has_its_own_exit_code() {
    let place = Place::new();
    place.file("slow.yaml", &format!("timeout: 300ms\n{SLEEPS}"));
    let done = place.call("run slow.yaml -o json");
    assert_eq!(done.code, 4, "{done:?}");
    let run = done.json();
    assert_eq!((run["state"].as_str(), run["reason"].as_str()), (Some("failed"), Some("timeout")));
}

#[test]
fn nothing_is_kept_of_an_ephemeral_run() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    let done = place.call("run hello.yaml --ephemeral");
    assert_eq!((done.code, done.stdout.as_str()), (0, "there are 12 words\n"));
    assert!(!place.path().join(".clawhive").exists());
}

#[test]
fn an_idempotency_key_makes_one_run() {
    let place = Place::new();
    place.file("hello.yaml", HELLO).file("bad.yaml", BAD);
    let first = place.call("run hello.yaml --idempotency-key k -o json").json();
    let again = place.call("run hello.yaml --idempotency-key k -o json").json();
    assert_eq!((&first["id"], &again["id"]), (&"1".into(), &"1".into()));
    let other = place.call("run bad.yaml --idempotency-key k -o json");
    assert_eq!(other.code, 6, "{other:?}");
    assert_eq!(other.json()["error"]["code"], "conflict");
}
