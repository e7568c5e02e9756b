//! Input that wants to hurt: large graphs, bombs, random bytes, mutated files. Nothing panics, nothing takes long.

use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

use clawhive_node::definition::{self, canonical_json, render};
use clawhive_node::template::{self, Context};
use clawhive_proto::{EnvVar, Task};
use proptest::prelude::*;

use crate::definition::testdata;

/// Far above what is measured even without optimisation; what it catches is quadratic.
const LONG: Duration = Duration::from_secs(20);

fn codes(text: &str) -> Vec<String> {
    let started = Instant::now();
    let found = match definition::parse(text.as_bytes(), "hostile.yaml") {
        Ok(_) => Vec::new(),
        Err(refused) => refused.errors.into_iter().map(|error| error.code).collect(),
    };
    let took = started.elapsed();
    assert!(took < LONG, "{:?}... took {took:?}", text.chars().take(30).collect::<String>());
    found
}

fn chain(length: usize, closed: bool) -> String {
    let mut text = "name: chain\ntasks:\n".to_owned();
    for at in 0..length {
        let need = if at > 0 { at - 1 } else { length - 1 };
        if at > 0 || closed {
            writeln!(text, "  t{at}: {{needs: t{need}, run: ls}}").unwrap();
        } else {
            writeln!(text, "  t{at}: {{run: ls}}").unwrap();
        }
    }
    text
}

#[test]
fn a_chain_of_fifty_thousand_is_a_definition_and_as_a_ring_is_refused() {
    assert_eq!(codes(&chain(50_000, false)), [""; 0]);
    let refused = definition::parse(chain(50_000, true).as_bytes(), "ring.yaml").unwrap_err();
    assert_eq!(refused.errors.len(), 1);
    assert!(
        refused.errors[0].message.ends_with("-> t49998 -> t49999 -> t0"),
        "{}",
        refused.errors[0].message
    );
    assert!(refused.errors[0].message.contains("(49977 more)"), "{}", refused.errors[0].message);
}

/// 10,000 tasks with 100,000 needs.
fn large() -> String {
    let mut text = "name: large\ntasks:\n".to_owned();
    for at in 0..10_000usize {
        let needs: Vec<String> =
            (1..=10).filter(|step| at >= step * 7).map(|step| format!("t{}", at - step * 7)).collect();
        let list = needs.join(", ");
        writeln!(text, "  t{at}:\n    needs: [{list}]\n    run: echo\n    env: {{A: \"{{{{ run.id }}}}\"}}")
            .unwrap();
    }
    text
}

#[test]
fn a_large_graph_is_checked_quickly() {
    let text = large();
    let started = Instant::now();
    let parsed = definition::parse(text.as_bytes(), "large.yaml").unwrap();
    let took = started.elapsed();
    let edges: usize = parsed.workflow.tasks.iter().map(|task| task.needs.len()).sum();
    println!("10,000 tasks, {edges} needs, {} bytes of YAML: {took:?}", text.len());
    assert!(edges > 99_000);
    let json = canonical_json(&parsed.workflow).to_string();
    assert!(took < LONG);
    if json.len() <= definition::MAX_FILE_BYTES {
        let started = Instant::now();
        assert_eq!(definition::parse(json.as_bytes(), "large.json").unwrap().workflow, parsed.workflow);
        println!("the same as {} bytes of JSON: {:?}", json.len(), started.elapsed());
    }
}

#[test]
fn distant_references_are_followed_in_near_linear_time() {
    let mut text = "name: far\ntasks:\n  t0: {run: ls, outputs: {x: string}}\n".to_owned();
    for at in 1..5000 {
        let far = at / 2;
        writeln!(text, "  t{at}: {{needs: t{}, run: ls, outputs: {{x: string}}, env: {{A: \"{{{{ tasks.t{far}.outputs.x }}}}\"}}}}", at - 1).unwrap();
    }
    assert_eq!(codes(&text), [""; 0]);
    text.push_str("  beside: {run: ls, env: {A: \"{{ tasks.t9.outputs.x }}\"}}\n");
    assert_eq!(codes(&text), ["not-upstream"]);
}

#[test]
fn bombs_are_refused_at_once() {
    let mut laughs = "name: x\na0: &a0 [x]\n".to_owned();
    for at in 1..30 {
        let before = at - 1;
        writeln!(laughs, "a{at}: &a{at} [{}]", vec![format!("*a{before}"); 9].join(",")).unwrap();
    }
    assert!(codes(&laughs).iter().any(|code| code == "anchor"));
    let limit = definition::MAX_FILE_BYTES;
    for open in ["[", "{", "- ", "? ", "[{", "{a: ", "a: [", "{\"a\":["] {
        let text = format!("{}x", open.repeat((limit - 1) / open.len()));
        let found = codes(&text);
        assert!(!found.is_empty() && found.len() <= 2, "{open}: {found:?}");
    }
    for unit in [
        "a: 1\n", "[],", "- \n", "#\n", "\n", "\"", "'", "|\n", "a\n", "&a ", "!x ", "*a ", ": ", "%Y\n",
        "---\n", "\\", "é",
    ] {
        codes(&unit.repeat(limit / 4 / unit.len()));
        codes(&format!("name: x\ntasks: {}", unit.repeat(limit / 4 / unit.len())));
        codes(&format!("name: x\ntasks: [{}", unit.repeat(limit / 4 / unit.len())));
    }
    let numbers = format!("{{\"tasks\": [{}0]}}", "0,".repeat(limit / 2 - 20));
    assert_eq!(codes(&numbers), ["too-many-values"]);
}

#[test]
fn many_errors_are_counted_and_not_kept() {
    let mut text = "name: x\ntasks:\n".to_owned();
    for at in 0..5000 {
        writeln!(text, "  t{at}: {{rnu: ls}}").unwrap();
    }
    let refused = definition::parse(text.as_bytes(), "x.yaml").unwrap_err();
    assert_eq!(refused.errors.len() + refused.omitted, 10_000);
    assert_eq!(refused.errors.len(), 100);
    let frame = render::Frame {
        source_name: "x.yaml",
        text: text.as_bytes(),
        style: render::Style::Plain,
        width: 80,
    };
    let shown = render::render(&frame, &refused.errors, &[], refused.omitted);
    assert!(shown.ends_with("x.yaml: 10000 errors, 9900 of them not shown, nothing stored\n"));
}

#[test]
fn a_template_neither_runs_for_ever_nor_grows() {
    for hostile in [
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 100000000 }}",
        "{{ range(100000) | list | length }}{{ 'y' * 9999999 }}",
        "{% for a in range(9000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}",
    ] {
        let env = vec![EnvVar { name: "A".to_owned(), value: hostile.to_owned() }];
        let task = Task { env, templated: true, ..Task::default() };
        let started = Instant::now();
        let error = template::resolve_task(&task, &Context::default()).unwrap_err();
        assert!(
            error.message.contains("too m")
                || error.message.contains("limit")
                || error.message.contains("range"),
            "{error}"
        );
        assert!(started.elapsed() < LONG);
    }
}

fn all_ways(bytes: &[u8]) {
    for name in ["any.yaml", "any.json"] {
        match definition::parse(bytes, name) {
            Ok(parsed) => {
                let canonical = canonical_json(&parsed.workflow).to_string();
                let again = definition::parse(canonical.as_bytes(), "canonical.json");
                assert_eq!(again.map(|again| again.workflow), Ok(parsed.workflow), "{canonical}");
            }
            Err(refused) => {
                assert!(!refused.errors.is_empty());
                for style in [render::Style::Terminal, render::Style::Plain] {
                    let frame = render::Frame { source_name: name, text: bytes, style, width: 80 };
                    let shown = render::render(&frame, &refused.errors, &refused.warnings, refused.omitted);
                    assert!(shown.contains("nothing stored"));
                }
            }
        }
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let files = fs::read_dir(testdata()).unwrap().chain(fs::read_dir(examples).unwrap());
    let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "yaml" || end == "json"));
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).filter(|text| text.len() < 8000).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        all_ways(&bytes);
    }

    #[test]
    fn random_yaml_signs_never_panic(text in "[-a:{}\\[\\],|>&*!?#%'\"\\\\ \n\t~0-9é\u{85}\u{2028}\u{feff}]{0,120}") {
        all_ways(text.as_bytes());
        all_ways(format!("name: x\ntasks:\n  a: {{run: {text}}}").as_bytes());
    }

    #[test]
    fn random_templates_never_panic(text in "(\\{\\{|\\}\\}|\\{%|%\\}|\\{#|params|run|tasks|\\.|\\['|'\\]|\\||date|raw|endraw|for|in|if|endif| |-|é|\"|[a-z]){0,20}") {
        let text = serde_json::to_string(&text).unwrap();
        all_ways(format!("{{\"name\": \"x\", \"tasks\": {{\"a\": {{\"run\": {text}, \"env\": {{\"A\": {text}}}}}}}}}").as_bytes());
    }

    #[test]
    fn mutated_files_never_panic(
        seed in any::<prop::sample::Index>(),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..12, proptest::collection::vec(any::<u8>(), 0..4)), 1..5),
        signs in "[-:{}\\[\\],|&*!'\" \n]{0,3}",
    ) {
        let seeds = seeds();
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        for (at, length, with) in cuts {
            if bytes.is_empty() { break; }
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            let with = if with.len() % 2 == 0 { signs.clone().into_bytes() } else { with };
            bytes.splice(at..end, with);
        }
        all_ways(&bytes);
    }
}
