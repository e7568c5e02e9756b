//! What accepted definitions mean: defaults, merging, scalars, and the canonical form that reads back as itself.

use clawhive_node::definition::{self, canonical_json, hash};
use clawhive_proto::{Backoff, OnFailure, Workflow, task::Executor};
use serde_json::json;

fn parse(text: &str) -> Workflow {
    definition::parse(text.as_bytes(), "test.yaml").unwrap_or_else(|refused| panic!("{refused}")).workflow
}

fn codes(text: &str) -> Vec<String> {
    match definition::parse(text.as_bytes(), "test.yaml") {
        Ok(parsed) => {
            parsed.warnings.into_iter().map(|warning| format!("warning {}", warning.code)).collect()
        }
        Err(refused) => refused.errors.into_iter().map(|error| error.code).collect(),
    }
}

const FULL: &str = r#"
name: nightly-etl
title: Nightly ETL 夜间任务
namespace: data
labels: {team: bi, cost: 1.10}
params:
  date: {type: string, default: "{{ run.nominal_time | date('%Y-%m-%d') }}", description: the day}
  limit: 012
  ratio: 1.50
  name: {type: string}
  tags: {type: list, default: [no, on, {a: ~}]}
  empty: ""
priority: 5
max_parallel: 50
timeout: 2h
on_failure: stop
defaults:
  retries: {max_attempts: 4, delay: 10s, backoff: linear, max_delay: 1h30m, jitter: 0.125}
  timeout: {execution: 300s, queue: 1d}
tasks:
  clean.up:
    needs: [extract, "012"]
    process: {command: ["./clean.sh", "{{ tasks.extract.outputs.path }}", 1.10, true], working_dir: /srv/etl}
    retries: 2
    timeout: none
  extract:
    run: ./extract.sh "$DATE" > "$CLAWHIVE_OUTPUT"
    env: {DATE: "{{ params.date }}", NO: no, VERSION: 1.10, OCTAL: 010}
    outputs: {path: string, parts: list}
    timeout: {grace: 250ms}
  012: {run: true, retries: {max_attempts: 1}}
"#;

#[test]
fn everything_that_was_written_arrives() {
    let workflow = parse(FULL);
    assert_eq!(
        (workflow.name.as_str(), workflow.namespace.as_str(), workflow.priority),
        ("nightly-etl", "data", 5)
    );
    assert_eq!((workflow.max_parallel, workflow.timeout_ms), (50, 7_200_000));
    assert_eq!(workflow.on_failure(), OnFailure::Stop);
    assert_eq!(workflow.labels["cost"], "1.10");
    let defaults: Vec<_> = workflow.params.iter().map(|param| param.default_json.as_deref()).collect();
    assert_eq!(
        defaults[1..],
        [Some("12"), Some("1.5"), None, Some(r#"["no","on",{"a":null}]"#), Some("\"\"")]
    );
    let [clean, extract, octal] = &workflow.tasks[..] else { panic!("three tasks") };
    assert_eq!(clean.needs, [1, 2]);
    assert!(clean.templated && extract.templated && !octal.templated);
    let Some(Executor::Process(process)) = &clean.executor else { panic!("a process") };
    assert_eq!(process.command[2..], ["1.10", "true"]);
    let retries = clean.retries.unwrap();
    assert_eq!((retries.max_attempts, retries.delay_ms, retries.max_delay_ms), (3, 10_000, 5_400_000));
    assert_eq!((retries.backoff(), retries.jitter_permille), (Backoff::Linear, 125));
    let timeout = clean.timeout.unwrap();
    assert_eq!((timeout.execution_ms, timeout.queue_ms, timeout.grace_ms), (0, 86_400_000, 5000));
    assert_eq!(extract.timeout.unwrap().grace_ms, 250);
    let env: Vec<_> = extract.env.iter().map(|variable| variable.value.as_str()).collect();
    assert_eq!(env[1..], ["no", "1.10", "010"]);
    assert_eq!(octal.executor, Some(Executor::Run("true".to_owned())));
    assert_eq!(octal.retries.unwrap().max_attempts, 1);
}

#[test]
fn delivery_is_said_per_task_or_for_all() {
    let of = |text: &str| parse(text).tasks.iter().map(|task| task.delivery()).collect::<Vec<_>>();
    let tasks =
        "tasks: {a: {run: x}, b: {run: x, delivery: strict_single}, c: {run: x, delivery: at_least_once}}";
    use clawhive_proto::Delivery::{AtLeastOnce, AtMostOnce, StrictSingle};
    assert_eq!(of(&format!("name: w\n{tasks}")), [AtLeastOnce, StrictSingle, AtLeastOnce]);
    let with = format!("name: w\ndefaults: {{delivery: at_most_once}}\n{tasks}");
    assert_eq!(of(&with), [AtMostOnce, StrictSingle, AtLeastOnce]);
    let shown = canonical_json(&parse(&with));
    assert_eq!(shown["tasks"]["a"]["delivery"], "at_most_once");
    assert_eq!(shown["tasks"]["c"]["delivery"], "at_least_once");
    // Not said and said as it is anyway is the same definition.
    let same = ["name: w\ntasks: {a: {run: x}}", "name: w\ntasks: {a: {run: x, delivery: at_least_once}}"];
    assert_eq!(hash(&parse(same[0])), hash(&parse(same[1])));
}

#[test]
fn defaults_without_a_word() {
    let workflow = parse("name: x\ntasks: {a: {run: ls}, b: {run: ls, retries: 3}}");
    assert_eq!(workflow.namespace, "default");
    assert_eq!(workflow.on_failure(), OnFailure::Continue);
    let timeout = workflow.tasks[0].timeout.unwrap();
    assert_eq!((timeout.queue_ms, timeout.execution_ms, timeout.grace_ms), (0, 0, 5000));
    let retries = workflow.tasks[0].retries.unwrap();
    assert_eq!((retries.max_attempts, retries.delay_ms, retries.max_delay_ms), (1, 30_000, 600_000));
    assert_eq!((retries.backoff(), retries.jitter_permille), (Backoff::Exponential, 200));
    assert_eq!(workflow.tasks[1].retries.unwrap().max_attempts, 4);
}

#[test]
fn the_canonical_form_reads_back_as_the_same_definition() {
    for text in [FULL, "name: x\ntasks: {a: {run: ls}}"] {
        let workflow = parse(text);
        let canonical = canonical_json(&workflow);
        for printed in [canonical.to_string(), serde_json::to_string_pretty(&canonical).unwrap()] {
            let again = parse(&printed);
            assert_eq!(again, workflow);
            assert_eq!(hash(&again), hash(&workflow));
            assert_eq!(canonical_json(&again), canonical);
        }
    }
    let canonical = canonical_json(&parse(FULL));
    assert_eq!(
        canonical["tasks"]["clean.up"]["retries"],
        json!({"max_attempts": 3, "delay": "10s", "backoff": "linear", "max_delay": "90m", "jitter": 0.125})
    );
    assert_eq!(canonical["tasks"]["clean.up"]["timeout"]["execution"], "none");
}

#[test]
fn the_hash_is_of_the_meaning() {
    let spaced = "# a comment\nname: x\ntasks:\n  a:\n    run: ls\n    retries: {max_attempts: 1}\n";
    assert_eq!(hash(&parse("name: x\ntasks: {a: {run: ls}}")), hash(&parse(spaced)));
    assert_eq!(
        hash(&parse("name: x\ntasks: {a: {run: ls}}")),
        hash(&parse(r#"{"tasks":{"a":{"run":"ls"}},"name":"x"}"#))
    );
    assert_ne!(
        hash(&parse("name: x\ntasks: {a: {run: ls}}")),
        hash(&parse("name: x\ntasks: {a: {run: ls -l}}"))
    );
}

#[test]
fn json_escapes_and_surrogates_are_characters() {
    let workflow =
        parse(r#"{"name":"x","title":"\ud83d\ude00 \u4e1a \/ \"q\"","tasks":{"a":{"run":"echo\t\n"}}}"#);
    assert_eq!(workflow.title, "😀 业 / \"q\"");
    assert_eq!(workflow.tasks[0].executor, Some(Executor::Run("echo\t\n".to_owned())));
    let long = "x".repeat(5000);
    let workflow = parse(&format!("{{\"name\":\"x\",\"tasks\":{{\"a\":\n\t{{\"run\":\"{long}\"}}}}}}"));
    assert_eq!(workflow.tasks[0].executor, Some(Executor::Run(long)));
    // YAML in braces is no JSON and still a definition.
    assert_eq!(parse("{name: x, tasks: {a: {run: ls,},},}").name, "x");
}

#[test]
fn a_byte_order_mark_and_carriage_returns_mean_nothing() {
    let workflow = parse("\u{feff}name: x\r\ntasks:\r\n  a:\r\n    run: |\r\n      a\r\n      b\r\n");
    assert_eq!(workflow.tasks[0].executor, Some(Executor::Run("a\nb\n".to_owned())));
}

#[test]
fn names_are_kept_exactly_or_refused() {
    let longest = "t".repeat(128);
    let workflow = parse(&format!(
        "name: a.b-c_0\ntasks: {{A: {{run: ls}}, a: {{run: ls}}, {longest}: {{run: ls}}, a:b: {{run: ls}}}}"
    ));
    let names: Vec<_> = workflow.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["A", "a", &longest, "a:b"]);
    for name in [
        "t".repeat(129),
        "t".repeat(4096),
        "naïve-作业".to_owned(),
        "nai\u{308}ve".to_owned(),
        "../x".to_owned(),
    ] {
        assert_eq!(codes(&format!("name: x\ntasks: {{\"{name}\": {{run: ls}}}}")), ["name"], "{name}");
    }
}

#[test]
fn the_size_limit_is_exact_and_named() {
    let head = "name: x\ndefaults: {timeout: 1s}\ntasks: {a: {run: ls}}\n#";
    let full = format!("{head}{}", "x".repeat(definition::MAX_FILE_BYTES - head.len()));
    assert_eq!(codes(&full), [""; 0]);
    let refused = definition::parse(format!("{full}x").as_bytes(), "big.yaml").unwrap_err();
    assert_eq!(refused.errors[0].code, "too-large");
    assert!(
        refused.errors[0].message.contains("4,194,305") && refused.errors[0].message.contains("4,194,304")
    );
}

#[test]
fn two_cycles_are_both_printed_and_each_once() {
    let text = "name: x\ntasks:\n  a: {needs: b, run: ls}\n  b: {needs: a, run: ls}\n  c: {needs: d, run: ls}\n  d: {needs: c, run: ls}\n  e: {needs: [a, c], run: ls}\n";
    let refused = definition::parse(text.as_bytes(), "x.yaml").unwrap_err();
    let messages: Vec<_> = refused.errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages, ["the tasks form a cycle: a -> b -> a", "the tasks form a cycle: c -> d -> c"]);
}

#[test]
fn shell_signs_are_no_templates() {
    let text = "name: x\ndefaults: {timeout: 1s}\ntasks: {a: {run: \"echo ${#x} ${x%.y} {{.State}} {{ other }} {% x %}\", env: {A: \"${#x}\"}}}";
    assert_eq!(codes(text), [""; 0]);
    assert!(!parse(text).tasks[0].templated);
}

#[test]
fn a_diagnostic_points_at_its_bytes() {
    let text = "name: x\ntitle: 业业\ntasks:\n  业: {run: ls}\n  b: {run: ls, 业务: 1, needs: nope}\n";
    let refused = definition::parse(text.as_bytes(), "x.yaml").unwrap_err();
    let slices: Vec<_> = refused
        .errors
        .iter()
        .map(|error| &text[error.offset as usize..(error.offset + error.length) as usize])
        .collect();
    assert_eq!(slices, ["业", "业务", "nope"]);
    assert_eq!((refused.errors[1].line, refused.errors[1].column), (5, 16));
    assert_eq!(refused.errors[2].path, "tasks.b.needs");
}
