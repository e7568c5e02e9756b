//! Recorded executions become workflows with the same tasks and edges.

use std::fs;
use std::path::Path;

use clawhive_node::definition;
use clawhive_node::import::wfcommons::{Decimal, ImportError, import};
use clawhive_proto::task::Executor;
use serde_json::{Value, json};

fn recording(tasks: &[(&str, &[&str], &[&str], Value)]) -> Vec<u8> {
    let specified: Vec<Value> = tasks
        .iter()
        .map(|(id, parents, children, _)| json!({"id": id, "name": id, "parents": parents, "children": children}))
        .collect();
    let executed: Vec<Value> =
        tasks.iter().map(|(id, _, _, runtime)| json!({"id": id, "runtimeInSeconds": runtime})).collect();
    let root = json!({
        "name": "My Genome 1.0!", "schemaVersion": "1.5",
        "workflow": {"specification": {"tasks": specified}, "execution": {"tasks": executed}},
    });
    root.to_string().into_bytes()
}

#[test]
fn tasks_sleep_and_edges_count_once() {
    let recording = recording(&[
        ("a", &[], &["b"], json!(1.5)),
        ("b", &["a"], &[], json!(0.035)),
        ("with space", &["a", "b"], &[], json!(1130.461781)),
        ("no", &[], &[], json!(0)),
    ]);
    let imported = import(&recording, Decimal::parse("0.001").unwrap()).unwrap();
    assert_eq!((imported.tasks, imported.edges), (4, 3));
    let workflow = definition::parse(imported.yaml.as_bytes(), "x.yaml").unwrap().workflow;
    assert_eq!((workflow.name.as_str(), workflow.title.as_str()), ("my-genome-1.0-", "My Genome 1.0!"));
    let tasks: Vec<_> = workflow
        .tasks
        .iter()
        .map(|task| match &task.executor {
            Some(Executor::Process(process)) => {
                (task.name.as_str(), &task.needs[..], process.command.join(" "))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        tasks,
        [
            ("a", &[][..], "sleep 0.0015".to_owned()),
            ("b", &[0][..], "sleep 0.000035".to_owned()),
            ("with_u20_space", &[0, 1][..], "sleep 1.130462".to_owned()),
            ("no", &[][..], "sleep 0".to_owned()),
        ]
    );
    assert_eq!(workflow.tasks[2].title, "with space");
}

#[test]
fn a_wrong_recording_says_what_is_wrong() {
    let error = |text: &[u8]| import(text, Decimal::ONE).unwrap_err().to_string();
    assert!(error(b"{").contains("line 1, column 2"));
    assert!(error(b"{}").contains("`workflow.specification.tasks` (expected a list)"));
    let unknown = recording(&[("a", &["ghost"], &[], json!(1))]);
    assert_eq!(error(&unknown), "the task `a` names `ghost`, which is not recorded");
    let twice = recording(&[("a", &[], &[], json!(1)), ("a", &[], &[], json!(1))]);
    assert_eq!(import(&twice, Decimal::ONE), Err(ImportError::Duplicate("a".to_owned())));
    let negative = recording(&[("a", &[], &[], json!(-1))]);
    assert_eq!(error(&negative), "the runtime of the task `a` is not usable: it is negative");
    assert!(error(&recording(&[("a", &[], &[], json!("x"))])).contains("not usable"));
    let collision = recording(&[("a b", &[], &[], json!(1)), ("a_u20_b", &[], &[], json!(1))]);
    assert!(error(&collision).contains("would both become"));
    let cycle = recording(&[("a", &["b"], &[], json!(1)), ("b", &["a"], &[], json!(1))]);
    assert!(error(&cycle).contains("a -> b -> a"));
    let long = "x y".repeat(60);
    assert!(matches!(
        import(&recording(&[(&long, &[], &[], json!(1))]), Decimal::ONE),
        Err(ImportError::LongName(_))
    ));
    let text = String::from_utf8(recording(&[("a", &[], &[], json!(1))]))
        .unwrap()
        .replace("runtimeInSeconds", "runtime");
    assert_eq!(import(text.as_bytes(), Decimal::ONE), Err(ImportError::NoRuntime("a".to_owned())));
}

/// Recordings that lie beside the repository, when they do: their counts are those of their published table.
#[test]
fn published_recordings_keep_their_tasks_and_edges() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases/wfcommons");
    let expected = [
        ("epigenomics-chameleon-hep-1seq-100k-001.json", 41, 48),
        ("montage-chameleon-2mass-005d-001.json", 58, 114),
        ("rnaseq-dirt02-001.json", 197, 451),
        ("bwa-chameleon-large-001.json", 1004, 4000),
    ];
    let mut seen = 0;
    for (name, tasks, edges) in expected {
        let Ok(text) = fs::read(folder.join(name)) else { continue };
        let started = std::time::Instant::now();
        let imported = import(&text, Decimal::parse("0.001").unwrap()).unwrap();
        println!(
            "{name}: {} bytes in {:?}, {} bytes out",
            text.len(),
            started.elapsed(),
            imported.yaml.len()
        );
        assert_eq!((imported.tasks, imported.edges), (tasks, edges), "{name}");
        seen += 1;
    }
    assert_eq!(seen, if folder.exists() { expected.len() } else { 0 });
}
