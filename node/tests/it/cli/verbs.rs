//! The verbs that look and wait, and what they say when there is nothing.

use super::support::{BAD, HELLO, Place, SLEEPS};

#[test]
fn without_a_server_and_without_data_there_is_a_hint() {
    let place = Place::new();
    let done = place.call("ls");
    assert_eq!((done.code, done.stdout.as_str()), (7, ""));
    assert!(done.stderr.starts_with("error: no server is named, and there is no .clawhive/ here\nhint: "));
    assert!(!place.path().join(".clawhive").exists(), "looking makes nothing");
    let dead = place.call("ls --server 127.0.0.1:1 -o json");
    assert_eq!(dead.code, 7, "{dead:?}");
    assert_eq!(dead.json()["error"]["code"], "unavailable");
    assert_eq!(place.call("ls --server nonsense").code, 2);
}

#[test]
fn usage_errors_have_their_code_and_stay_one_document() {
    let place = Place::new();
    for line in
        ["lss", "run", "show x", "ls --state done", "wait 1 --wait-timeout soon", "logs 1 --attempt 1"]
    {
        let done = place.call(line);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{line}");
        let done = place.call(&format!("{line} -o json"));
        assert_eq!((done.code, done.json()["error"]["code"].as_str()), (2, Some("usage")), "{line}");
    }
    assert!(place.call("lss").stderr.contains("'ls'"), "it names what may have been meant");
    for verb in
        ["", "run", "dev", "server", "validate", "submit", "wait", "ls", "show", "logs", "events", "cancel"]
    {
        let help = place.call(&format!("{verb} --help")).ok();
        assert!(help.contains("Examples:"), "{verb}");
    }
    assert!(place.call("completions bash").ok().contains("clawhive"));
    assert!(place.call("run missing.yaml").stderr.contains("missing.yaml"));
}

#[test]
fn a_submitted_run_waits_for_a_server_and_then_runs() {
    let place = Place::new();
    place.file("sleeps.yaml", SLEEPS).file("hello.yaml", HELLO);
    place.call("run hello.yaml").ok();
    let id = place.call("submit sleeps.yaml").ok();
    assert_eq!(id, "2\n");
    assert_eq!(place.call("show 2 -o json").json()["state"], "pending", "nothing runs while nobody serves");
    let waited = place.call("wait 2 --wait-timeout 500ms -o json");
    assert_eq!(waited.code, 4, "{waited:?}");
    assert_eq!(waited.json()["error"]["code"], "timeout");
    let cancelled = place.call("cancel 2 -o json").json();
    assert_eq!(cancelled["run"], "2");
    let ended = place.call("wait 2");
    assert_eq!(ended.code, 3, "{ended:?}");
    assert_eq!(place.call("cancel 2 -o json").json()["already_ended"], true);
    assert_eq!(place.call("submit hello -o json").json()["run"], "3", "by its name");
    assert_eq!(place.call("wait 3").code, 0);
    assert_eq!(place.call("submit no-such-workflow").code, 5);
}

#[test]
fn what_happened_can_be_read() {
    let place = Place::new();
    place.file("bad.yaml", BAD);
    assert_eq!(place.call("run bad.yaml").code, 1);
    let logs = place.call("logs 1 breaks --tail 2").ok();
    assert_eq!(logs, "line 20\n! no such table\n");
    let raw = place.call("logs 1 breaks --raw").ok();
    assert!(raw.starts_with("line 1\nline 2\n") && raw.ends_with("line 20\nno such table\n"), "{raw}");
    let first = place.call("logs 1 breaks --attempt 1 -o json").json();
    assert_eq!((&first[0]["attempt"], &first[0]["stream"]), (&1.into(), &"stdout".into()));
    let all = place.call("logs 1").ok();
    assert!(all.contains("breaks | line 1\n") && all.contains("breaks ! no such table\n"), "{all}");
    assert_eq!(place.call("logs 1 -f").ok(), all, "a follow of an ended run ends");
    let events = place.call("events 1 -o json").json();
    let kinds: Vec<&str> = events.as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("run_submitted", "run_failed"));
    let lines = place.call("events 1 -f -o json").ok();
    assert_eq!(lines.lines().count(), kinds.len());
    for line in lines.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap()["log_index"].is_string());
    }
    assert_eq!(place.call("show 9").code, 5);
    assert_eq!(place.call("show 1 --task nope").code, 5);
    assert_eq!(place.call("logs 1 nope").code, 5);
    let failed = place.call("ls --state failed -o json").json();
    assert_eq!(failed["runs"][0]["id"], "1");
    assert_eq!(place.call("ls --state succeeded -o json").json()["runs"].as_array().unwrap().len(), 0);
    let nodes = place.call("node ls -o json").json();
    assert_eq!(nodes["nodes"][0]["leader"], true);
    let status = place.call("cluster status -o json").json();
    assert_eq!((&status["quorum"], &status["leader"]), (&true.into(), &"1".into()));
}

#[test]
fn validate_prints_the_canonical_form() {
    let place = Place::new();
    place.file("hello.yaml", HELLO);
    assert_eq!(place.call("validate hello.yaml").ok(), "default/hello: valid, 3 tasks, 2 edges\n");
    let form = place.call("validate hello.yaml -o json").json();
    assert_eq!(form["tasks"]["report"]["retries"]["max_attempts"], 1);
    place.file("canonical.json", &form.to_string());
    assert_eq!(place.call("validate canonical.json -o json").json(), form);
}
