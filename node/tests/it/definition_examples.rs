//! The files in `examples/`, and the definitions of the format's own specification that this version understands.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use clawhive_node::definition;
use clawhive_node::template::{Context, Moment, RunFacts, check_outputs, resolve_params, resolve_task};
use clawhive_proto::{Workflow, task::Executor};

fn examples() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
        .collect();
    found.sort();
    found
}

#[test]
fn every_example_is_valid_and_without_warnings() {
    let examples = examples();
    assert!(examples.len() >= 5);
    for (name, text) in examples {
        let parsed = definition::parse(&text, &name).unwrap_or_else(|refused| panic!("{refused}"));
        assert_eq!(parsed.warnings, [], "{name}");
    }
}

/// Runs the tasks of a workflow one after the other as a claw would: clean environment, own directory, outputs by file.
fn run(workflow: &Workflow, params: &[(&str, &str)]) -> (BTreeMap<String, String>, String) {
    let given = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let moment = Moment { created_at_ms: 1_741_503_600_000, nominal_time_ms: None };
    let params = resolve_params(workflow, &given, moment).unwrap();
    let run = RunFacts { id: 7, workflow: workflow.name.clone(), namespace: "default".to_owned(), moment };
    let mut context = Context { run, params, attempt: 1, ..Context::default() };
    let mut log = String::new();
    for task in &workflow.tasks {
        let dir = tempfile::tempdir().unwrap();
        let resolved = resolve_task(task, &context).unwrap();
        let mut command = match resolved.executor.unwrap() {
            Executor::Run(text) => {
                let mut shell = Command::new("sh");
                shell.args(["-eu", "-c", &text]);
                shell
            }
            Executor::Process(process) => {
                let mut program = Command::new(&process.command[0]);
                program.args(&process.command[1..]);
                program
            }
        };
        let output_file = dir.path().join("output");
        command.current_dir(dir.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command.env("CLAWHIVE_OUTPUT", &output_file).env("CLAWHIVE_TASK", &task.name);
        command.envs(resolved.env.iter().map(|variable| (&variable.name, &variable.value)));
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}: {}", task.name, String::from_utf8_lossy(&done.stderr));
        log.push_str(&String::from_utf8(done.stdout).unwrap());
        let written = fs::read(&output_file).unwrap_or_default();
        context.outputs.insert(task.name.clone(), check_outputs(task, &written).unwrap());
    }
    (context.outputs, log)
}

fn example(name: &str) -> Workflow {
    let (_, text) = examples().into_iter().find(|(found, _)| found == name).unwrap();
    definition::parse(&text, name).unwrap().workflow
}

#[test]
fn wordfreq_counts_right() {
    let workflow = example("wordfreq.yaml");
    let (outputs, log) = run(&workflow, &[("top", "3")]);
    // Counted anew from the texts in the file.
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for part in ["harbour", "mill", "light"] {
        let json: serde_json::Value = serde_json::from_str(&outputs[&format!("fetch_{part}")]).unwrap();
        let text = json["text"].as_str().unwrap().to_lowercase();
        for word in text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
            *counts.entry(word.to_owned()).or_default() += 1;
        }
    }
    let words: usize = counts.values().sum();
    assert!(words > 200, "{words}");
    assert_eq!(outputs["report"], format!("{{\"first\":\"the\",\"words\":{words}}}"));
    let merged: serde_json::Value = serde_json::from_str(&outputs["merge"]).unwrap();
    assert_eq!(merged["distinct"], counts.len());
    assert!(
        log.contains(&format!("{words} words, {} different; the 3 most frequent:\n", counts.len())),
        "{log}"
    );
    assert!(log.contains(&format!("{:6}  the\n", counts["the"])), "{log}");
}

#[test]
fn parameter_text_never_becomes_code() {
    let workflow = example("params.yaml");
    let hostile = "it's; echo INJECTED $(id) `id` \"$HOME\" {{ run.id }}";
    let (_, log) = run(&workflow, &[("name", hostile), ("times", "1")]);
    assert_eq!(
        log,
        format!(
            "Hello, {hostile}! It is 2025-03-09.\nHello, {hostile}! It is 2025-03-09.\none, two\nrun 7\n"
        )
    );
}
