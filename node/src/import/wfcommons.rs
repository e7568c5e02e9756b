//! Recorded executions of scientific workflows (WfCommons, format 1.5) as workflows whose tasks sleep as long as the
//! recorded ones ran, scaled.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use serde_json::Value;

use crate::definition::{self, TASK_NAME, WORKFLOW_NAME, shortened};

mod decimal;

pub use decimal::Decimal;

/// The largest file that is read, in bytes. Larger than a definition may be: a recording carries much that is left out.
pub const MAX_RECORDING_BYTES: usize = 64 * 1024 * 1024;

/// Why a recording has no workflow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Not readable as JSON.
    #[error("the recording is not readable: {0}")]
    Unreadable(String),
    /// Something that the format has is not there.
    #[error("the recording has no `{path}` (expected {expected}); is it WfFormat 1.5?")]
    Missing {
        /// Where.
        path: String,
        /// What is expected there.
        expected: &'static str,
    },
    /// A task is described twice.
    #[error("the task `{0}` is recorded twice")]
    Duplicate(String),
    /// A task has no runtime.
    #[error("the task `{0}` has no `runtimeInSeconds` in workflow.execution.tasks")]
    NoRuntime(String),
    /// A runtime that is no number of seconds.
    #[error("the runtime of the task `{task}` is not usable: {reason}")]
    Runtime {
        /// Its id.
        task: String,
        /// What is wrong.
        reason: String,
    },
    /// A parent or child that is not recorded.
    #[error("the task `{task}` names `{other}`, which is not recorded")]
    UnknownTask {
        /// Its id.
        task: String,
        /// The unknown id.
        other: String,
    },
    /// Two ids become the same task name.
    #[error("the ids `{first}` and `{second}` would both become the task name `{name}`")]
    Collision {
        /// The one.
        first: String,
        /// The other.
        second: String,
        /// The name.
        name: String,
    },
    /// An id that no task name can hold.
    #[error("the id `{0}` is too long for a task name (128 characters)")]
    LongName(String),
    /// What came out is not a valid workflow, e.g. because the recording has a cycle.
    #[error("the recording makes no valid workflow:\n{0}")]
    Refused(String),
}

/// A workflow and what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The text of the workflow file.
    pub yaml: String,
    /// How many tasks it has.
    pub tasks: usize,
    /// How many needs its tasks have together.
    pub edges: usize,
}

struct Recorded<'v> {
    id: &'v str,
    name: String,
    needs: BTreeSet<usize>,
    sleep: String,
}

/// Reads a recording and writes the workflow that replays it, each task sleeping its recorded time times `time_scale`.
pub fn import(recording: &[u8], time_scale: Decimal) -> Result<Imported, ImportError> {
    let root = definition::json_value(recording, MAX_RECORDING_BYTES).map_err(ImportError::Unreadable)?;
    let specified = list(&root, &["workflow", "specification", "tasks"])?;
    let executed = list(&root, &["workflow", "execution", "tasks"])?;
    let mut runtimes: HashMap<&str, &Value> = HashMap::with_capacity(executed.len());
    for (index, task) in executed.iter().enumerate() {
        let id = id(task, "workflow.execution.tasks", index)?;
        let runtime = task.get("runtimeInSeconds").ok_or_else(|| ImportError::NoRuntime(id.to_owned()))?;
        if runtimes.insert(id, runtime).is_some() {
            return Err(ImportError::Duplicate(id.to_owned()));
        }
    }
    let mut positions: HashMap<&str, usize> = HashMap::with_capacity(specified.len());
    for (index, task) in specified.iter().enumerate() {
        let id = id(task, "workflow.specification.tasks", index)?;
        if positions.insert(id, index).is_some() {
            return Err(ImportError::Duplicate(id.to_owned()));
        }
    }
    if let Some(id) = runtimes.keys().find(|id| !positions.contains_key(*id)) {
        let path = format!("workflow.specification.tasks[id={id}]");
        return Err(ImportError::Missing { path, expected: "a task for each execution" });
    }
    let mut tasks = Vec::with_capacity(specified.len());
    for (index, task) in specified.iter().enumerate() {
        let id = id(task, "workflow.specification.tasks", index)?;
        let runtime = runtimes.get(id).ok_or_else(|| ImportError::NoRuntime(id.to_owned()))?;
        let sleep = Decimal::parse(&runtime.to_string())
            .and_then(|seconds| seconds.times(time_scale))
            .map(Decimal::seconds)
            .map_err(|reason| ImportError::Runtime { task: id.to_owned(), reason: reason.to_owned() })?;
        tasks.push(Recorded { id, name: task_name(id)?, needs: BTreeSet::new(), sleep });
    }
    // An edge counts once, whichever side records it.
    for (index, task) in specified.iter().enumerate() {
        for parent in links(task, "parents", &tasks[index], &positions)? {
            tasks[index].needs.insert(parent);
        }
        for child in links(task, "children", &tasks[index], &positions)? {
            tasks[child].needs.insert(index);
        }
    }
    no_collisions(&tasks)?;
    let yaml = write_yaml(&root, &tasks, time_scale);
    match definition::parse(yaml.as_bytes(), "the imported workflow") {
        Ok(_) => {
            Ok(Imported { yaml, tasks: tasks.len(), edges: tasks.iter().map(|task| task.needs.len()).sum() })
        }
        Err(diagnostics) => Err(ImportError::Refused(diagnostics.to_string())),
    }
}

fn list<'v>(root: &'v Value, path: &[&str]) -> Result<&'v Vec<Value>, ImportError> {
    let found = path.iter().try_fold(root, |value, key| value.get(key)).and_then(Value::as_array);
    found.ok_or_else(|| ImportError::Missing { path: path.join("."), expected: "a list" })
}

fn id<'v>(task: &'v Value, path: &str, index: usize) -> Result<&'v str, ImportError> {
    let id = task.get("id").and_then(Value::as_str);
    id.ok_or_else(|| ImportError::Missing { path: format!("{path}[{index}].id"), expected: "text" })
}

fn links(
    task: &Value,
    key: &str,
    own: &Recorded<'_>,
    positions: &HashMap<&str, usize>,
) -> Result<Vec<usize>, ImportError> {
    let expected = "a list of task ids";
    let path = || format!("workflow.specification.tasks[id={}].{key}", own.id);
    let Some(value) = task.get(key) else { return Ok(Vec::new()) };
    let items = value.as_array().ok_or_else(|| ImportError::Missing { path: path(), expected })?;
    let mut found = Vec::with_capacity(items.len());
    for item in items {
        let other = item.as_str().ok_or_else(|| ImportError::Missing { path: path(), expected })?;
        let unknown = || ImportError::UnknownTask { task: own.id.to_owned(), other: shortened(other) };
        found.push(*positions.get(other).ok_or_else(unknown)?);
    }
    Ok(found)
}

/// The id itself where the rule allows it; else with each other character as `_uHEX_`.
fn task_name(id: &str) -> Result<String, ImportError> {
    if TASK_NAME.allows(id) {
        return Ok(id.to_owned());
    }
    let mut name = String::with_capacity(id.len() + 8);
    for c in id.chars() {
        let allowed = if name.is_empty() { TASK_NAME.first } else { TASK_NAME.rest };
        match u8::try_from(c) {
            Ok(byte) if byte.is_ascii() && allowed(byte) => name.push(c),
            _ => {
                // Writing into a string does not fail.
                let _ = write!(name, "_u{:x}_", c as u32);
            }
        }
    }
    if TASK_NAME.allows(&name) { Ok(name) } else { Err(ImportError::LongName(shortened(id))) }
}

fn no_collisions(tasks: &[Recorded<'_>]) -> Result<(), ImportError> {
    let mut names: HashMap<&str, &str> = HashMap::with_capacity(tasks.len());
    for task in tasks {
        if let Some(first) = names.insert(&task.name, task.id) {
            let (first, second) = (first.to_owned(), task.id.to_owned());
            return Err(ImportError::Collision { first, second, name: task.name.clone() });
        }
    }
    Ok(())
}

fn write_yaml(root: &Value, tasks: &[Recorded<'_>], time_scale: Decimal) -> String {
    let title = root.get("name").and_then(Value::as_str).unwrap_or("recording");
    let edges: usize = tasks.iter().map(|task| task.needs.len()).sum();
    let mut out = String::with_capacity(tasks.len() * 120);
    let lines = [
        format!("# A recorded execution (WfCommons): {} tasks, {edges} needs.", tasks.len()),
        format!("# Each task sleeps as long as the recorded one ran, times {time_scale}."),
        format!("name: {}", scalar(&workflow_name(title))),
        format!(
            "title: {}",
            scalar(&title.chars().filter(|c| !c.is_control()).take(256).collect::<String>())
        ),
        "tasks:".to_owned(),
    ];
    for line in lines {
        out.push_str(&line);
        out.push('\n');
    }
    for task in tasks {
        // Writing into a string does not fail.
        let _ = writeln!(out, "  {}:", scalar(&task.name));
        if task.name != task.id {
            let title: String = task.id.chars().filter(|c| !c.is_control()).take(256).collect();
            let _ = writeln!(out, "    title: {}", scalar(&title));
        }
        if !task.needs.is_empty() {
            let names: Vec<String> = task.needs.iter().map(|need| scalar(&tasks[*need].name)).collect();
            if names.len() <= 4 {
                let _ = writeln!(out, "    needs: [{}]", names.join(", "));
            } else {
                let _ = writeln!(out, "    needs:\n      - {}", names.join("\n      - "));
            }
        }
        let _ = writeln!(out, "    process: {{command: [sleep, {:?}]}}", task.sleep);
    }
    out
}

/// A name by the rule, near the title: the title itself stays beside it.
fn workflow_name(title: &str) -> String {
    let mut name: String = title
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii() && (WORKFLOW_NAME.rest)(c as u8) { c } else { '-' })
        .skip_while(|c| !c.is_ascii_alphanumeric())
        .take(WORKFLOW_NAME.max)
        .collect();
    if name.is_empty() {
        name.push_str("recording");
    }
    name
}

/// Text as a YAML scalar: plain where that cannot be read as anything else, else in double quotes as JSON writes it.
fn scalar(text: &str) -> String {
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let simple = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let word = matches!(
        text.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if starts && simple && !word { text.to_owned() } else { Value::from(text).to_string() }
}
