//! Templates against the definition they stand in: syntax, names that do not exist, and outputs of tasks that are not
//! upstream. What is wrong here would otherwise fail a run at its last task.

use std::collections::{HashMap, HashSet};

use clawhive_proto::Param;

use super::graph::dependents;
use super::keys::{listed, nearest};
use super::report::{Path, Report};
use super::source::Span;
use super::task::{Draft, Templated, locate};
use super::tree::{Map, Node, Value};
use crate::template::{self, PARAM_RUN_NAMES, RUN_NAMES, TASK_NAMES, scan};

/// Checks every template of every task. `sound` says that the graph has no fault, so that upstreams are meaningful.
pub(crate) fn check(
    report: &mut Report<'_>,
    drafts: &[Draft<'_>],
    params: &[Param],
    sound: bool,
    path: &Path<'_>,
) {
    if drafts.iter().all(|draft| draft.templates.is_empty()) {
        return;
    }
    let tasks: HashMap<&str, u32> = drafts
        .iter()
        .enumerate()
        .map(|(at, draft)| (draft.task.name.as_str(), u32::try_from(at).unwrap_or(u32::MAX)))
        .collect();
    let params: HashSet<&str> = params.iter().map(|param| param.name.as_str()).collect();
    let mut far: Vec<FarReference> = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let task_path = path.key(&draft.task.name);
        for place in &draft.templates {
            let here = task_path.below(&place.path);
            let here = Here { text: place.text, span: place.span, path: &here };
            let Some(references) = sound_template(report, &here, &["params", "run", "task", "tasks"]) else {
                continue;
            };
            for reference in references {
                let span = locate(report, place.span, reference.text);
                match reference.root {
                    "params" => param_exists(report, &reference, &params, span, here.path),
                    "run" => known(report, &reference, &RUN_NAMES, span, here.path),
                    "task" => known(report, &reference, &TASK_NAMES, span, here.path),
                    _ => {
                        let upstream = output_exists(report, &reference, drafts, &tasks, span, here.path);
                        if let Some(upstream) = upstream
                            && sound
                            && draft.task.needs.binary_search(&upstream).is_err()
                        {
                            far.push(FarReference { task: at, upstream, span, place, text: reference.text });
                        }
                    }
                }
            }
        }
    }
    not_upstream(report, drafts, &far, path);
}

/// Checks the templates in the defaults of parameters: they are resolved when a run is submitted.
pub(crate) fn check_params(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) {
    let Value::Map(map) = &node.value else { return };
    for entry in &map.entries {
        let default = match &entry.value.value {
            Value::Map(long) => default_of(long),
            _ => Some(&entry.value),
        };
        let Some(Node { span, value: Value::Text(text) }) = default else { continue };
        if !template::is_template(text) {
            continue;
        }
        let here = path.key(&entry.key);
        let here = Here { text, span: *span, path: &here };
        for reference in sound_template(report, &here, &["run"]).unwrap_or_default() {
            if reference.root != "run" {
                continue;
            }
            known(report, &reference, &PARAM_RUN_NAMES, locate(report, *span, reference.text), here.path);
        }
    }
}

fn default_of<'n, 's>(map: &'n Map<'s>) -> Option<&'n Node<'s>> {
    map.get("default").map(|entry| &entry.value)
}

struct Here<'t, 'p> {
    text: &'t str,
    span: Span,
    path: &'p Path<'p>,
}

/// The references of a template that compiles and names only these roots.
fn sound_template<'t>(
    report: &mut Report<'_>,
    here: &Here<'t, '_>,
    roots: &[&str],
) -> Option<Vec<scan::Reference<'t>>> {
    let undeclared = match template::undeclared(here.text) {
        Ok(names) => names,
        Err(error) => {
            let help = if here.text.contains("{#") || here.text.contains("{%") || here.text.contains("{{") {
                "text that is no template but holds these signs goes into {% raw %}...{% endraw %}"
            } else {
                ""
            };
            report.error(
                "template-syntax",
                here.span,
                here.path,
                format!("this template is wrong: {error}"),
                help,
            );
            return None;
        }
    };
    for name in &undeclared {
        if roots.contains(&name.as_str()) {
            continue;
        }
        let message = format!("a template knows no name `{name}` here");
        let dashed = here.text.contains(&format!("-{name}")) || here.text.contains(&format!("- {name}"));
        let help = match nearest(name, roots.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if dashed => "a task name with a dash is written tasks[\"the-name\"]".to_owned(),
            None => format!("it knows {}", listed(roots)),
        };
        report.error("template-name", locate(report, here.span, name), here.path, message, help);
    }
    let references = scan::references(here.text);
    for filter in scan::filters(here.text) {
        if !template::has_filter(filter) {
            let message = format!("there is no filter `{filter}`");
            let help = if filter.starts_with("date") || filter.starts_with("strf") {
                "did you mean `date`? As in {{ run.nominal_time | date('%Y-%m-%d') }}"
            } else {
                ""
            };
            report.error("template-name", locate(report, here.span, filter), here.path, message, help);
        }
    }
    // A root that the template itself assigns (`{% set run = ... %}`) is not ours.
    Some(references.into_iter().filter(|found| undeclared.iter().any(|name| name == found.root)).collect())
}

fn param_exists(
    report: &mut Report<'_>,
    reference: &scan::Reference<'_>,
    params: &HashSet<&str>,
    span: Span,
    path: &Path<'_>,
) {
    let Some(name) = reference.path.first() else { return };
    if params.contains(name.as_ref()) {
        return;
    }
    let help = match nearest(name, params.iter().copied()) {
        Some(near) => format!("did you mean `params.{near}`?"),
        None => format!("declare it: `params: {{{name}: {{type: string}}}}`"),
    };
    report.error("template-name", span, path, format!("there is no parameter `{name}`"), help);
}

fn known(
    report: &mut Report<'_>,
    reference: &scan::Reference<'_>,
    names: &[&str],
    span: Span,
    path: &Path<'_>,
) {
    let Some(name) = reference.path.first() else { return };
    if names.contains(&name.as_ref()) {
        return;
    }
    let help = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{}.{near}`?", reference.root),
        None => format!("`{}` has here {}", reference.root, listed(names)),
    };
    report.error("template-name", span, path, format!("`{}` has no `{name}` here", reference.root), help);
}

/// The task that a `tasks....` reference names, when it and the output exist.
fn output_exists(
    report: &mut Report<'_>,
    reference: &scan::Reference<'_>,
    drafts: &[Draft<'_>],
    tasks: &HashMap<&str, u32>,
    span: Span,
    path: &Path<'_>,
) -> Option<u32> {
    let name = reference.path.first()?;
    let Some(position) = tasks.get(name.as_ref()) else {
        let help = match nearest(name, tasks.keys().copied()) {
            Some(near) if near.starts_with(name.as_ref()) && near.contains(['-', ':', '.']) => {
                format!("a name like this is written tasks[{:?}]", near)
            }
            Some(near) => format!("did you mean `tasks.{near}`?"),
            None => {
                match tasks.keys().find(|key| key.starts_with(name.as_ref()) && key.contains(['-', ':', '.']))
                {
                    Some(key) => format!("a name like this is written tasks[{:?}]", key),
                    None => String::new(),
                }
            }
        };
        report.error("template-name", span, path, format!("there is no task `{name}`"), help);
        return None;
    };
    let outputs = &drafts[*position as usize].task.outputs;
    let names = || outputs.iter().map(|output| output.name.as_str());
    match (reference.path.get(1).map(AsRef::as_ref), reference.path.get(2)) {
        (None, _) | (Some("outputs"), None) => {}
        (Some("outputs"), Some(output)) => {
            if !names().any(|known| known == output) {
                let help = match nearest(output, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("declare it at `{name}`: `outputs: {{{output}: string}}`"),
                };
                let message = format!("the task `{name}` declares no output `{output}`");
                report.error("template-name", span, path, message, help);
                return None;
            }
        }
        (Some(other), _) => {
            let message = format!("a template sees only the outputs of a task, not `{other}`");
            report.error(
                "template-name",
                span,
                path,
                message,
                format!("write `tasks.{name}.outputs.{other}`"),
            );
            return None;
        }
    }
    Some(*position)
}

/// A reference to a task that is not a direct need.
struct FarReference<'d> {
    task: usize,
    upstream: u32,
    span: Span,
    place: &'d Templated<'d>,
    text: &'d str,
}

/// Reports references to tasks that are not upstream at any distance. Sixty-four referenced tasks are followed through the
/// graph at once, one bit each, so the cost stays near linear.
fn not_upstream(report: &mut Report<'_>, drafts: &[Draft<'_>], far: &[FarReference<'_>], path: &Path<'_>) {
    if far.is_empty() {
        return;
    }
    let order = topological(drafts);
    let mut targets: Vec<u32> = far.iter().map(|reference| reference.upstream).collect();
    targets.sort_unstable();
    targets.dedup();
    for chunk in targets.chunks(64) {
        let mut reached = vec![0u64; drafts.len()];
        for at in &order {
            let needs = &drafts[*at as usize].task.needs;
            reached[*at as usize] = needs.iter().fold(0, |bits, need| {
                let own = chunk.binary_search(need).map_or(0, |bit| 1 << bit);
                bits | reached[*need as usize] | own
            });
        }
        for reference in far {
            let Ok(bit) = chunk.binary_search(&reference.upstream) else { continue };
            if reached[reference.task] & (1 << bit) == 0 {
                let (task, upstream) =
                    (&drafts[reference.task].task.name, &drafts[reference.upstream as usize].task.name);
                let message =
                    format!("`{}` is read, but `{upstream}` is not upstream of `{task}`", reference.text);
                let help = format!("add `{upstream}` to the `needs` of `{task}`");
                let task_path = path.key(task);
                report.error(
                    "not-upstream",
                    reference.span,
                    &task_path.below(&reference.place.path),
                    message,
                    help,
                );
            }
        }
    }
}

fn topological(drafts: &[Draft<'_>]) -> Vec<u32> {
    let dependents = dependents(drafts);
    let mut waiting: Vec<usize> = drafts.iter().map(|draft| draft.task.needs.len()).collect();
    let ids = 0..u32::try_from(drafts.len()).unwrap_or(u32::MAX);
    let mut order: Vec<u32> = ids.filter(|at| waiting[*at as usize] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for dependent in &dependents[at as usize] {
            waiting[*dependent as usize] -= 1;
            if waiting[*dependent as usize] == 0 {
                order.push(*dependent);
            }
        }
    }
    order
}
