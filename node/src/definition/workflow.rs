//! The top level of a definition.

use clawhive_proto::{OnFailure, Workflow};

use super::keys::{self, Level};
use super::params::{labels, params};
use super::policy;
use super::report::{Path, Report};
use super::source::Span;
use super::task::{self, Defaults, Draft};
use super::tree::{Entry, Map, Node, Value};
use super::values::{WORKFLOW_NAME, choice, is_none, limit, name, prose, text, whole};
use super::{graph, references, schedule};

pub(crate) const ON_FAILURE: [(&str, OnFailure); 2] =
    [("continue", OnFailure::Continue), ("stop", OnFailure::Stop)];

/// Tasks named by the remark about missing timeouts, at most.
const MAX_NAMED: usize = 5;

/// Reads the whole definition. Faults are in the report; the answer is of use only when there is none.
pub(crate) fn read(report: &mut Report<'_>, root: &Node<'_>) -> Option<Workflow> {
    let path = Path::ROOT;
    if matches!(root.value, Value::Null) {
        let help = "a workflow has at least a name and a task; see the examples";
        report.error("empty", root.span, &path, "the file is empty", help);
        return None;
    }
    let map = keys::level(report, root, &path, Level::Workflow)?;
    let mut workflow = Workflow { namespace: "default".to_owned(), ..Workflow::default() };
    let start = Span::new(root.span.start as usize, root.span.start as usize);
    match map.get("name") {
        Some(entry) => workflow.name = workflow_name(report, entry, &path.key("name")),
        None => {
            let help = format!("write `name: my-workflow`; the rule is {}", WORKFLOW_NAME.pattern);
            report.error("missing-key", start, &path, "the workflow has no `name`", help);
        }
    }
    if let Some(entry) = map.get("namespace") {
        workflow.namespace = workflow_name(report, entry, &path.key("namespace"));
    }
    header(report, map, &mut workflow);
    let defaults = read_defaults(report, map);
    let drafts = match map.get("tasks") {
        Some(entry) => read_tasks(report, entry, &path.key("tasks"), defaults),
        None => {
            let help = "write `tasks:` and below it `name: {run: ...}`";
            report.error("missing-key", start, &path, "the workflow has no `tasks`", help);
            None
        }
    };
    let mut drafts = drafts.unwrap_or_default();
    let tasks_path = path.key("tasks");
    let sound = graph::resolve(report, &mut drafts, &tasks_path);
    references::check(report, &drafts, &workflow.params, sound, &tasks_path);
    if let Some(entry) = map.get("params") {
        references::check_params(report, &entry.value, &path.key("params"));
        schedule::check_params(report, map, &workflow.params, &path.key("params"));
    }
    if !report.failed() {
        remark_on_timeouts(report, map, &drafts);
    }
    workflow.tasks = drafts.into_iter().map(|draft| draft.task).collect();
    Some(workflow)
}

fn workflow_name(report: &mut Report<'_>, entry: &Entry<'_>, path: &Path<'_>) -> String {
    let Some(written) = text(report, &entry.value, path) else { return String::new() };
    name(report, entry.value.span, path, written, &WORKFLOW_NAME);
    written.to_owned()
}

fn header(report: &mut Report<'_>, map: &Map<'_>, workflow: &mut Workflow) {
    let path = Path::ROOT;
    for entry in &map.entries {
        let (here, value) = (path.key(&entry.key), &entry.value);
        match &*entry.key {
            "title" => workflow.title = prose(report, value, &here, 256).unwrap_or_default(),
            "labels" => workflow.labels = labels(report, value, &here),
            "params" => workflow.params = params(report, value, &here),
            "priority" => {
                let help = "0 is the lowest, 9 runs first";
                workflow.priority = whole(report, value, &here, 0..=9, help).unwrap_or_default();
            }
            "max_parallel" if is_none(value) => workflow.max_parallel = 0,
            "max_parallel" => {
                let help = "the number of tasks of one run at once; without a limit write `none`";
                workflow.max_parallel = whole(report, value, &here, 1..=1_000_000, help).unwrap_or_default();
            }
            "timeout" if matches!(value.value, Value::Map(_)) => {
                let message = "the timeout of a workflow is one duration for the whole run";
                let help = "`execution` and `queue` belong to a task's `timeout` or to `defaults.timeout`";
                report.error("wrong-type", value.span, &here, message, help);
            }
            "timeout" => workflow.timeout_ms = limit(report, value, &here).unwrap_or_default(),
            "schedule" => workflow.schedules = schedule::schedules(report, entry, &here),
            "overlap" => workflow.set_overlap(schedule::overlap(report, value, &here)),
            "on_failure" => {
                workflow.on_failure = choice(report, value, &here, &ON_FAILURE).unwrap_or_default().into();
            }
            _ => {}
        }
    }
}

fn read_defaults(report: &mut Report<'_>, map: &Map<'_>) -> Defaults {
    let path = Path::ROOT.key("defaults");
    let mut defaults = Defaults::default();
    let Some(entry) = map.get("defaults") else { return defaults };
    let Some(map) = keys::level(report, &entry.value, &path, Level::Defaults) else { return defaults };
    if let Some(entry) = map.get("retries") {
        let here = path.key("retries");
        defaults.retries = policy::retries(report, &entry.value, &here);
        if !policy::check_defaults(report, defaults.retries, entry.key_span, &here) {
            defaults.retries = defaults.retries.reported();
        }
    }
    if let Some(entry) = map.get("timeout") {
        defaults.timeout = policy::timeout(report, &entry.value, &path.key("timeout"));
    }
    if let Some(entry) = map.get("delivery") {
        defaults.delivery = choice(report, &entry.value, &path.key("delivery"), &policy::DELIVERIES);
    }
    defaults
}

fn read_tasks<'n, 's>(
    report: &mut Report<'_>,
    entry: &'n Entry<'s>,
    path: &Path<'_>,
    defaults: Defaults,
) -> Option<Vec<Draft<'n>>> {
    let map = match &entry.value.value {
        Value::Map(map) => map,
        Value::Bad => return None,
        Value::Null => {
            empty_tasks(report, entry.key_span, path);
            return None;
        }
        Value::List(items) if items.is_empty() => {
            empty_tasks(report, entry.key_span, path);
            return None;
        }
        other => {
            let message = format!("expected a map of tasks, found {}", other.kind());
            let help = "the name of a task is its key: `tasks: {build: {run: make}}`";
            report.error("wrong-type", entry.value.span, path, message, help);
            return None;
        }
    };
    if map.entries.is_empty() {
        empty_tasks(report, entry.key_span, path);
        return None;
    }
    Some(map.entries.iter().map(|entry| task::read(report, entry, &path.key(&entry.key), defaults)).collect())
}

fn empty_tasks(report: &mut Report<'_>, span: Span, path: &Path<'_>) {
    report.error(
        "empty-tasks",
        span,
        path,
        "the workflow has no tasks",
        "write at least one: `tasks: {hello: {run: echo hello}}`",
    );
}

/// One remark for all tasks whose attempts may run for ever.
fn remark_on_timeouts(report: &mut Report<'_>, map: &Map<'_>, drafts: &[Draft<'_>]) {
    let endless: Vec<&str> = drafts
        .iter()
        .filter(|draft| draft.task.timeout.is_some_and(|timeout| timeout.execution_ms == 0))
        .map(|draft| draft.task.name.as_str())
        .collect();
    let (Some(entry), false) = (map.get("tasks"), endless.is_empty()) else { return };
    let named = endless.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = match endless.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = match endless.len() {
        1 => format!("the task {named} has no execution timeout"),
        _ => format!("the tasks {named}{more} have no execution timeout"),
    };
    let help = "`defaults: {timeout: 1h}` gives every task one";
    report.warning("no-timeout", entry.key_span, &Path::ROOT.key("tasks"), message, help);
}
