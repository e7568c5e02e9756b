//! Templates, parameters and outputs by their public functions.

use std::collections::BTreeMap;

use clawhive_node::definition;
use clawhive_node::template::{
    Context, MAX_OUTPUT_BYTES, Moment, OutputError, ParamError, RunFacts, check_outputs, resolve_params,
    resolve_task,
};
use clawhive_proto::{EnvVar, Output, Process, Task, ValueType, Workflow, task::Executor};

fn workflow(params: &str) -> Workflow {
    let text = format!("name: x\nparams: {params}\ntasks: {{a: {{run: ls}}}}");
    definition::parse(text.as_bytes(), "x.yaml").unwrap_or_else(|refused| panic!("{refused}")).workflow
}

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const MOMENT: Moment = Moment { created_at_ms: 1_741_503_600_123, nominal_time_ms: Some(1_741_503_600_000) };

#[test]
fn parameters_are_read_by_type() {
    let workflow = workflow(
        "{s: {type: string}, i: {type: integer}, n: {type: number}, b: {type: boolean}, l: {type: list}, o: {type: object}, a: {type: any}, d: \"{{ run.nominal_time | date('%Y-%m-%d') }}\", k: 3}",
    );
    let all = [
        ("s", " 012 {{ x }}"),
        ("i", "012"),
        ("n", "-1.50"),
        ("b", "true"),
        ("l", "[1,\"a\"]"),
        ("o", "{\"b\":1,\"a\":18446744073709551615}"),
        ("a", "text"),
    ];
    let resolved = resolve_params(&workflow, &given(&all), MOMENT).unwrap();
    let values: Vec<_> = resolved.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        values,
        [
            ("a", "\"text\""),
            ("b", "true"),
            ("d", "\"2025-03-09\""),
            ("i", "12"),
            ("k", "3"),
            ("l", "[1,\"a\"]"),
            ("n", "-1.5"),
            ("o", "{\"b\":1,\"a\":18446744073709551615}"),
            ("s", "\" 012 {{ x }}\""),
        ]
    );
}

#[test]
fn wrong_parameters_are_all_named() {
    let workflow = workflow(
        "{limit: {type: integer}, flag: {type: boolean, default: true}, list: {type: list, default: []}}",
    );
    let errors = resolve_params(&workflow, &given(&[("limt", "3"), ("flag", "yes"), ("list", "[1")]), MOMENT)
        .unwrap_err();
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "there is no parameter `limt`; did you mean `limit`?",
            "the parameter `limit` (integer) has no default; give it a value",
            "the parameter `flag` is `true` or `false`, not \"yes\"",
            "the parameter `list` is a JSON list such as [1, 2], not \"[1\"",
        ]
    );
    let huge = resolve_params(&workflow, &given(&[("limit", "99999999999999999999")]), MOMENT).unwrap_err();
    assert!(matches!(&huge[..], [ParamError::WrongType { name, .. }] if name == "limit"));
}

fn context() -> Context {
    Context {
        run: RunFacts { id: 41, workflow: "etl".to_owned(), namespace: "data".to_owned(), moment: MOMENT },
        params: given(&[
            ("text", "\"it's; $(id) {{ run.id }}\""),
            ("list", "[1,{\"a\":\"b\"}]"),
            ("big", "9007199254740993"),
            ("yes", "true"),
        ]),
        outputs: given(&[("fetch-a", "{\"path\":\"/tmp/x\",\"n\":1.5}"), ("none", "")]),
        attempt: 2,
    }
}

fn env(text: &str) -> Result<String, String> {
    let task = Task {
        name: "me".to_owned(),
        templated: true,
        env: vec![EnvVar { name: "A".to_owned(), value: text.to_owned() }],
        ..Task::default()
    };
    resolve_task(&task, &context()).map(|task| task.env[0].value.clone()).map_err(|error| error.to_string())
}

#[test]
fn values_become_the_text_one_expects() {
    for (template, expected) in [
        ("plain", "plain"),
        ("{{ params.text }}", "it's; $(id) {{ run.id }}"),
        ("{{ params.list }}", "[1,{\"a\":\"b\"}]"),
        ("{{ params.big }}", "9007199254740993"),
        ("{{ params.yes }}", "true"),
        ("{{ tasks['fetch-a'].outputs.path }}:{{ tasks['fetch-a'].outputs.n }}\n", "/tmp/x:1.5\n"),
        (
            "{{ run.id }} {{ run.workflow }} {{ run.namespace }} {{ task.name }} {{ task.attempt }}",
            "41 etl data me 2",
        ),
        ("{{ run.created_at }} {{ run.nominal_time }}", "2025-03-09T07:00:00.123Z 2025-03-09T07:00:00.000Z"),
        ("{{ run.nominal_time | date('%Y-%m-%d %H:%M') }}", "2025-03-09 07:00"),
        ("{% if params.big > 3 %}big{% else %}small{% endif %}", "big"),
        ("{{ params.none | default('d') }}", "d"),
    ] {
        assert_eq!(env(template).as_deref(), Ok(expected), "{template}");
    }
}

#[test]
fn what_is_missing_is_named() {
    for (template, expected) in [
        ("{{ params.txt }}", "env.A: `params.txt` does not exist"),
        ("{{ tasks.fetch.outputs.path }}", "env.A: `tasks.fetch` does not exist"),
        ("{{ tasks['none'].outputs.path }}", "env.A: `tasks.none.outputs.path` does not exist"),
        (
            "{{ params.text | date('%Y') }}",
            "env.A: `date` takes an instant such as run.nominal_time, not `it's; $(id) {{ run.id }}`",
        ),
    ] {
        assert_eq!(env(template).as_ref().map_err(String::as_str), Err(expected));
    }
    for template in [
        "{{ item }}",
        "{{ params.text",
        "{% include 'x' %}",
        "{{ debug() }}",
        "{{ run.created_at | date('%!') }}",
        "{{ nofilter | x }}",
    ] {
        assert!(env(template).unwrap_err().starts_with("env.A: "), "{template}");
    }
    assert!(env("{{ item }}").unwrap_err().contains("item"));
}

#[test]
fn a_resolved_working_directory_is_absolute() {
    let process = Process {
        command: vec!["x".to_owned(), "{{ run.id }}".to_owned()],
        working_dir: "{{ params.text }}".to_owned(),
    };
    let mut task =
        Task { templated: true, executor: Some(Executor::Process(process.clone())), ..Task::default() };
    assert!(resolve_task(&task, &context()).unwrap_err().to_string().contains("not absolute"));
    task.executor = Some(Executor::Process(Process { working_dir: "/x/{{ run.id }}".to_owned(), ..process }));
    let resolved = resolve_task(&task, &context()).unwrap();
    let Some(Executor::Process(process)) = resolved.executor else { panic!("a process") };
    assert_eq!(
        (process.working_dir.as_str(), process.command[1].as_str(), resolved.templated),
        ("/x/41", "41", false)
    );
}

fn declared(outputs: &[(&str, ValueType)]) -> Task {
    let outputs =
        outputs.iter().map(|(name, value)| Output { name: (*name).to_owned(), r#type: (*value).into() });
    Task { outputs: outputs.collect(), ..Task::default() }
}

#[test]
fn outputs_are_json_or_lines() {
    let task = declared(&[("s", ValueType::String), ("i", ValueType::Integer), ("l", ValueType::List)]);
    let expected = r#"{"s":"a=b","i":12,"l":[1,2]}"#;
    assert_eq!(check_outputs(&task, b"l=[1, 2]\r\n\ni=012\ns=a=b").as_deref(), Ok(expected));
    assert_eq!(check_outputs(&task, br#" {"i":12,"l":[1,2],"s":"a=b"} "#).as_deref(), Ok(expected));
    assert_eq!(check_outputs(&declared(&[]), b"").as_deref(), Ok(""));
}

#[test]
fn wrong_outputs_are_named() {
    let task = declared(&[("path", ValueType::String), ("n", ValueType::Integer)]);
    let error = |file: &[u8]| check_outputs(&task, file).unwrap_err().to_string();
    assert_eq!(error(b"path=x"), "declared outputs were not written: n");
    assert_eq!(error(b""), "declared outputs were not written: path, n");
    assert_eq!(error(b"pth=x\nn=1"), "the output `pth` is not declared; did you mean `path`?");
    assert_eq!(error(b"path=x\nn=one"), "the output `n` is declared as integer, but is one");
    assert_eq!(error(br#"{"path":1,"n":1}"#), "the output `path` is declared as string, but is 1");
    assert_eq!(
        error(b"path=x\npath=y\nn=1"),
        "the output file is neither a JSON object nor KEY=VALUE lines: line 2 writes `path` a second time"
    );
    assert!(error(b"path").contains("line 1 has no `=`"));
    assert!(error(br#"{"path":"x","path":"y"}"#).contains("written twice"));
    assert!(error(br#"{"path":"#).contains("line 1, column 9"));
    assert_eq!(error(b"path=\xff"), "the output file is not UTF-8: byte 0xff at offset 5");
    assert_eq!(
        check_outputs(&declared(&[]), b"x=1").unwrap_err(),
        OutputError::Undeclared { name: "x".to_owned(), suggestion: None }
    );
    let exact = format!("n=1\npath={}", "x".repeat(MAX_OUTPUT_BYTES - 9));
    assert!(check_outputs(&task, exact.as_bytes()).is_ok());
    assert!(error(format!("{exact}x").as_bytes()).contains("65537 bytes; the limit is 65536 bytes (64 KiB)"));
}
