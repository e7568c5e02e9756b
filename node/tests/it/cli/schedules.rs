//! `apply` and `schedule`: what they print, and with which exit codes.

use std::time::{Duration, Instant};

use super::support::{Place, port};

const TICK: &str = "name: tick\nnamespace: data\nschedule:\n  - {name: often, every: 1s}\n  - {name: yearly, cron: '0 12 1 1 *', timezone: Europe/Paris, missed: {policy: latest, window: 6h}}\noverlap: skip\ndefaults: {timeout: 1m}\ntasks: {t: {run: 'echo \"$CLAWHIVE_NOMINAL_TIME\"'}}\n";

#[test]
fn the_next_occurrences_of_an_expression_need_no_server() {
    let place = Place::new();
    let next = |arguments: &[&str]| {
        let output = place.command("schedule next").args(arguments).output().unwrap();
        super::support::Done::from(output)
    };
    let gap = ["--cron", "30 2 * * *", "--timezone", "America/New_York", "--from", "2025-03-08T12:00:00Z"];
    let done = next(&[&gap[..], &["--count", "2", "-o", "json"]].concat());
    let found = done.json();
    assert_eq!(
        found["occurrences"],
        serde_json::json!([
            {"time": "2025-03-09T07:00:00.000Z", "note": "gap"},
            {"time": "2025-03-10T06:30:00.000Z", "note": null},
        ])
    );
    assert!(found["zone_data"].as_str().is_some_and(|version| version.starts_with("20")), "{found}");
    let done = next(&[&gap[..], &["--until", "2025-03-09T07:00:00Z"]].concat());
    assert_eq!(done.ok(), "TIME                      NOTE\n2025-03-09T07:00:00.000Z  gap\n");
    for (wrong, word) in [
        (&["--cron", "0 0 30 2 *"][..], "never comes"),
        (&["--cron", "0 0 * * 8"], "it takes 0 to 7"),
        (&["--cron", "* * * * *", "--timezone", "Mars/Olympus"], "no time zone \"Mars/Olympus\""),
        (&[], "required"),
    ] {
        let done = next(&[wrong, &["-o", "json"]].concat());
        assert_eq!(done.code, 2, "{done:?}");
        let message = done.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(word), "{wrong:?}: {message}");
    }
}

#[test]
fn a_workflow_is_applied_and_its_schedules_are_looked_at() {
    let place = Place::new();
    place.file("tick.yaml", TICK);
    let port = port();
    let _server = place.start(&format!("dev --ephemeral --port {port}"), "ready");
    let call = |line: &str| place.call(&format!("{line} --server 127.0.0.1:{port}"));
    // A submit stores the file and starts nothing.
    call("submit tick.yaml").ok();
    assert_eq!(call("schedule ls -o json").json(), serde_json::json!({"schedules": []}));
    assert_eq!(call("apply tick.yaml").ok(), "data/tick version 1 (unchanged)\n");
    assert_eq!(call("apply tick.yaml -o json").json()["created"], false);
    let limit = Instant::now() + Duration::from_secs(60);
    let shown = loop {
        let shown = call("schedule show data/tick:often -o json").json();
        if shown["occurrences"].as_array().is_some_and(|all| all.iter().any(|one| one["run"].is_string())) {
            break shown;
        }
        assert!(Instant::now() < limit, "{shown}");
    };
    let fields = ["data/tick:often", "data", "tick", "often", "1s", "skip", "active"];
    let keys = ["schedule", "namespace", "workflow", "name", "every", "overlap", "state"];
    for (key, value) in keys.iter().zip(fields) {
        assert_eq!(shown[*key], value, "{shown}");
    }
    let all = shown["occurrences"].as_array().unwrap();
    let one = all.iter().find(|one| one["run"].is_string()).unwrap();
    let run = one["run"].as_str().unwrap();
    let nominal = one["nominal_time"].as_str().unwrap();
    call(&format!("wait {run}")).ok();
    let run_shown = call(&format!("show {run} -o json")).json();
    assert_eq!(
        (run_shown["schedule"].as_str(), run_shown["nominal_time"].as_str()),
        (Some("data/tick:often"), Some(nominal))
    );
    assert_eq!(call(&format!("logs {run} --raw")).ok(), format!("{nominal}\n"));

    let paused = call("schedule pause data/tick:often --reason moving");
    assert_eq!(paused.ok(), "data/tick:often is paused\n");
    let listed = call("schedule ls").ok();
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("SCHEDULE          WHEN        ZONE          STATE   DUE"), "{listed}");
    assert!(lines[1].contains("every 1s") && lines[1].contains("paused"), "{listed}");
    assert!(lines[2].contains("0 12 1 1 *  Europe/Paris  active  in "), "{listed}");
    assert!(call("schedule show data/tick:often").ok().contains("State     paused: moving"));
    assert_eq!(call("schedule resume data/tick:often -o json").json()["state"], "active");
    let next = call("schedule next data/tick:yearly --from 2026-06-01T00:00:00Z --count 1 -o json").json();
    assert_eq!(next["occurrences"][0]["time"], "2027-01-01T11:00:00.000Z");
    let unknown = call("schedule show data/tock -o json");
    assert_eq!((unknown.code, unknown.json()["error"]["code"].as_str()), (5, Some("not_found")));
    assert_eq!(call("cluster status -o json").json()["scheduler"], true);
}
