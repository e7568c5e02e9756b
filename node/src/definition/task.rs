//! One task: its executor, environment, outputs, policies, and the raw needs that the graph resolves later.

use clawhive_proto::{Delivery, Process, Task, task::Executor};

use super::keys::{self, LATER_EXECUTORS, Level};
use super::params::{env, no_nul, outputs};
use super::policy::{self, RetriesPart, TimeoutPart};
use super::report::{Path, Report};
use super::source::Span;
use super::tree::{Entry, Map, Node, Value};
use super::values::{TASK_NAME, choice, name, prose, shortened, text};
use crate::template;

/// A task whose needs are still names.
pub(crate) struct Draft<'n> {
    pub task: Task,
    pub name_span: Span,
    pub needs: Vec<Need<'n>>,
    /// Every string of the executor and the environment that holds a template.
    pub templates: Vec<Templated<'n>>,
}

/// One name under `needs`.
pub(crate) struct Need<'n> {
    pub name: &'n str,
    pub span: Span,
    /// `None` when `needs` is a single name.
    pub index: Option<usize>,
}

/// A template string and where it stands.
pub(crate) struct Templated<'n> {
    pub text: &'n str,
    pub span: Span,
    /// Below the task: `env.DATE`, `process.command[1]`.
    pub path: String,
}

/// What `defaults` says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Defaults {
    pub retries: RetriesPart,
    pub timeout: TimeoutPart,
    pub delivery: Option<Delivery>,
}

/// Reads one entry of `tasks`.
pub(crate) fn read<'n, 's>(
    report: &mut Report<'_>,
    entry: &'n Entry<'s>,
    path: &Path<'_>,
    defaults: Defaults,
) -> Draft<'n> {
    name(report, entry.key_span, path, &entry.key, &TASK_NAME);
    let mut draft = Draft {
        task: Task { name: entry.key.to_string(), ..Task::default() },
        name_span: entry.key_span,
        needs: Vec::new(),
        templates: Vec::new(),
    };
    let Some(map) = task_map(report, entry, path) else {
        return draft;
    };
    let task = &mut draft.task;
    if let Some(entry) = map.get("title") {
        task.title = prose(report, &entry.value, &path.key("title"), 256).unwrap_or_default();
    }
    if let Some(entry) = map.get("needs") {
        draft.needs = needs(report, &entry.value, &path.key("needs"));
    }
    task.executor = executor(report, map, entry.key_span, path, &mut draft.templates);
    if let Some(entry) = map.get("env") {
        let here = path.key("env");
        task.env = env(report, &entry.value, &here);
        if let Value::Map(variables) = &entry.value.value {
            for variable in &variables.entries {
                collect(&mut draft.templates, &variable.value, || format!("env.{}", variable.key));
            }
        }
    }
    if let Some(entry) = map.get("outputs") {
        task.outputs = outputs(report, &entry.value, &path.key("outputs"));
    }
    let own_retries = map
        .get("retries")
        .map(|entry| (policy::retries(report, &entry.value, &path.key("retries")), entry.key_span));
    task.retries = Some(policy::merge_retries(report, defaults.retries, own_retries, &path.key("retries")));
    let own_timeout = map
        .get("timeout")
        .map(|entry| policy::timeout(report, &entry.value, &path.key("timeout")))
        .unwrap_or_default();
    task.timeout = Some(policy::merge_timeouts(defaults.timeout, own_timeout));
    let here = path.key("delivery");
    let own = map
        .get("delivery")
        .map(|entry| (choice(report, &entry.value, &here, &policy::DELIVERIES), entry.key_span));
    let retries = task.retries.unwrap_or_default();
    let delivery = policy::delivery(report, own, defaults.delivery, retries, (entry.key_span, &here));
    task.set_delivery(delivery);
    task.templated = !draft.templates.is_empty();
    draft
}

fn task_map<'n, 's>(report: &mut Report<'_>, entry: &'n Entry<'s>, path: &Path<'_>) -> Option<&'n Map<'s>> {
    if matches!(entry.value.value, Value::Null) {
        let message = format!("the task `{}` says nothing", shortened(&entry.key));
        report.error(
            "no-executor",
            entry.key_span,
            path,
            message,
            "give it `run: ...` or `process: {command: [...]}`",
        );
        return None;
    }
    keys::level(report, &entry.value, path, Level::Task)
}

fn needs<'n>(report: &mut Report<'_>, node: &'n Node<'_>, path: &Path<'_>) -> Vec<Need<'n>> {
    match &node.value {
        Value::Bad => Vec::new(),
        Value::List(items) => {
            let mut needs = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                if let Some(name) = text(report, item, &path.index(index)) {
                    needs.push(Need { name, span: item.span, index: Some(index) });
                }
            }
            needs
        }
        other => match other.written() {
            Some(name) => vec![Need { name, span: node.span, index: None }],
            None => {
                let message = format!("expected a list of task names, found {}", other.kind());
                report.error(
                    "wrong-type",
                    node.span,
                    path,
                    message,
                    "write `needs: [a, b]`, or leave it out",
                );
                Vec::new()
            }
        },
    }
}

fn executor<'n>(
    report: &mut Report<'_>,
    map: &'n Map<'_>,
    name_span: Span,
    path: &Path<'_>,
    templates: &mut Vec<Templated<'n>>,
) -> Option<Executor> {
    let present: Vec<_> = map
        .entries
        .iter()
        .filter(|entry| matches!(&*entry.key, "run" | "process") || LATER_EXECUTORS.contains(&&*entry.key))
        .collect();
    if let [first, second, ..] = present[..] {
        let message = format!("a task has one executor, this one has `{}` and `{}`", first.key, second.key);
        report.error("two-executors", second.key_span, path, message, "keep one, or make two tasks of it");
    }
    if present.is_empty() {
        let help =
            "give it `run: ...` (a shell line) or `process: {command: [...]}` (a program and its arguments)";
        report.error("no-executor", name_span, path, "this task has no executor", help);
    }
    let mut executor = None;
    if let Some(entry) = map.get("process") {
        executor = process(report, &entry.value, &path.key("process"), templates).map(Executor::Process);
    }
    if let Some(entry) = map.get("run") {
        executor = run(report, &entry.value, &path.key("run")).map(Executor::Run).or(executor);
    }
    executor
}

fn run(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Option<String> {
    if matches!(node.value, Value::List(_)) {
        let help = "`run` is one shell text; a program with its arguments is `process: {command: [...]}`";
        report.error("wrong-type", node.span, path, "expected a shell text, found a list", help);
        return None;
    }
    let text = text(report, node, path)?;
    if text.trim().is_empty() {
        report.error(
            "empty",
            node.span,
            path,
            "the shell text is empty",
            "to do nothing write `run: \"true\"`",
        );
        return None;
    }
    no_nul(report, node, path, text);
    if let Some(reference) = template::scan::references(text).into_iter().find(|found| found.is_value()) {
        let message =
            format!("`run` is not a template, and `{}` would be taken as shell text", reference.text);
        let variable = reference.path.last().map_or("value", |name| name).to_uppercase();
        let help = format!(
            "pass it through env: `env: {{{variable}: \"{{{{ {} }}}}\"}}`, and write \"${variable}\" in `run`",
            reference.text
        );
        report.error("template-in-shell", locate(report, node.span, reference.text), path, message, help);
    }
    Some(text.to_owned())
}

fn process<'n>(
    report: &mut Report<'_>,
    node: &'n Node<'_>,
    path: &Path<'_>,
    templates: &mut Vec<Templated<'n>>,
) -> Option<Process> {
    let map = keys::level(report, node, path, Level::Process)?;
    let mut process = Process::default();
    match map.get("command") {
        None => {
            let help = "write `process: {command: [program, argument, ...]}`";
            report.error("missing-key", node.span, path, "`process` has no `command`", help);
        }
        Some(entry) => process.command = command(report, &entry.value, &path.key("command"), templates),
    }
    if let Some(entry) = map.get("working_dir") {
        let here = path.key("working_dir");
        if let Some(dir) = text(report, &entry.value, &here) {
            no_nul(report, &entry.value, &here, dir);
            if !dir.starts_with('/') && !dir.starts_with("{{") {
                let message = format!("the working directory `{}` is not absolute", shortened(dir));
                let help = "start it with `/`; without it a task works in a directory of its own";
                report.error("working-dir", entry.value.span, &here, message, help);
            }
            collect(templates, &entry.value, || "process.working_dir".to_owned());
            process.working_dir = dir.to_owned();
        }
    }
    Some(process)
}

fn command<'n>(
    report: &mut Report<'_>,
    node: &'n Node<'_>,
    path: &Path<'_>,
    templates: &mut Vec<Templated<'n>>,
) -> Vec<String> {
    let items = match &node.value {
        Value::List(items) => items,
        Value::Bad => return Vec::new(),
        other => {
            let message = format!("expected a list of a program and its arguments, found {}", other.kind());
            let help = "a list never passes through a shell; for a shell line use `run: ...`";
            report.error("wrong-type", node.span, path, message, help);
            return Vec::new();
        }
    };
    let mut words: Vec<&str> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let here = path.index(index);
        let Some(word) = text(report, item, &here) else { continue };
        no_nul(report, item, &here, word);
        if template::is_template(word) && is_shell_text(&words) {
            let help = "pass the value through env, or as an argument after the script, and use \"$1\" in it";
            let message = "a template inside of shell text: the value would be taken as code";
            report.error("template-in-shell", item.span, &here, message, help);
        }
        collect(templates, item, || format!("process.command[{index}]"));
        words.push(word);
    }
    if items.is_empty() || words.first().is_some_and(|program| program.is_empty()) {
        report.error(
            "empty",
            node.span,
            path,
            "the command names no program",
            "write `command: [program, argument, ...]`",
        );
    }
    words.into_iter().map(str::to_owned).collect()
}

/// Whether the word after these is the script of a `sh -c`.
fn is_shell_text(before: &[&str]) -> bool {
    const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "ash", "fish"];
    let program = before.first().and_then(|program| program.rsplit('/').next()).unwrap_or("");
    let flag = before.last().copied().unwrap_or("");
    let is_flag = flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c');
    before.len() > 1 && SHELLS.contains(&program) && is_flag
}

fn collect<'n>(templates: &mut Vec<Templated<'n>>, node: &'n Node<'_>, path: impl FnOnce() -> String) {
    if let Some(text) = node.value.written()
        && template::is_template(text)
    {
        templates.push(Templated { text, span: node.span, path: path() });
    }
}

/// The place of a part of a scalar: exact when the part stands in the file as it is, else the whole scalar.
pub(crate) fn locate(report: &Report<'_>, span: Span, part: &str) -> Span {
    match report.source.slice(span).find(part) {
        Some(at) if !part.is_empty() => {
            let start = span.start as usize + at;
            Span::new(start, start + part.len())
        }
        _ => span,
    }
}
