//! Templates: values only. They are resolved by the proposer when a task is dispatched; what is applied from the log
//! holds none. Nothing here reads files, the clock or the environment, and a template can neither run for ever nor grow
//! without bound.
//!
//! Names a template knows: `params.NAME`, `run.{id,workflow,namespace,created_at,nominal_time}`, `task.{name,attempt}` and
//! `tasks.NAME.outputs.OUTPUT` of tasks upstream. Instants are RFC 3339 text in UTC; `run.nominal_time` of a run that no
//! schedule made is the instant it was created. A name that does not exist is an error that names it.
//!
//! The text of a `run` task is never a template: a value pasted into shell text would become code. It goes through `env`.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use clawhive_proto::{Task, task::Executor};
use jiff::Timestamp;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

mod outputs;
mod params;
pub(crate) mod scan;
mod typed;

pub use outputs::{MAX_OUTPUT_BYTES, OutputError, check_outputs};
pub use params::{Moment, ParamError, resolve_params};
pub(crate) use typed::fits;

/// The largest text that one template may become, in bytes.
pub const MAX_RESOLVED_BYTES: usize = 256 * 1024;

/// Steps (and 64-byte pieces of data) that one template may use.
const FUEL: u64 = 50_000;

/// What `run` holds in a task's template.
pub(crate) const RUN_NAMES: [&str; 5] = ["id", "workflow", "namespace", "created_at", "nominal_time"];

/// What `run` holds in the default of a parameter: the run has no id before it is submitted.
pub(crate) const PARAM_RUN_NAMES: [&str; 4] = ["workflow", "namespace", "created_at", "nominal_time"];

/// What `task` holds.
pub(crate) const TASK_NAMES: [&str; 2] = ["name", "attempt"];

/// Facts about a run that its templates can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFacts {
    /// The run id.
    pub id: u64,
    /// The name of its workflow.
    pub workflow: String,
    /// The namespace of its workflow.
    pub namespace: String,
    /// When it was submitted and for which instant it stands.
    pub moment: Moment,
}

/// Everything that the templates of one attempt can name, besides the name of its task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The run.
    pub run: RunFacts,
    /// Parameter name to JSON text, complete (see [`resolve_params`]).
    pub params: BTreeMap<String, String>,
    /// Task name to the JSON object text of its outputs, for the tasks upstream that have succeeded.
    pub outputs: BTreeMap<String, String>,
    /// The number of this attempt, from 1.
    pub attempt: u32,
}

/// A template that has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct TemplateError {
    /// Where the template stands in the task: `env.DATE`, `process.command[1]`.
    pub path: String,
    /// What is wrong; names the missing name.
    pub message: String,
}

/// Whether a string holds template signs. `{#` alone does not count: `${#name}` is shell.
pub fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// The task with every template of its executor and environment replaced by its value.
pub fn resolve_task(task: &Task, context: &Context) -> Result<Task, TemplateError> {
    let mut resolved = task.clone();
    resolved.templated = false;
    if !task.templated {
        return Ok(resolved);
    }
    let names = names(task, context)?;
    if let Some(Executor::Process(process)) = &mut resolved.executor {
        for (index, word) in process.command.iter_mut().enumerate() {
            resolve(word, &names, || format!("process.command[{index}]"))?;
        }
        resolve(&mut process.working_dir, &names, || "process.working_dir".to_owned())?;
        if !process.working_dir.is_empty() && !process.working_dir.starts_with('/') {
            let message = format!("the working directory `{}` is not absolute", process.working_dir);
            return Err(TemplateError { path: "process.working_dir".to_owned(), message });
        }
    }
    for variable in &mut resolved.env {
        let name = &variable.name;
        resolve(&mut variable.value, &names, || format!("env.{name}"))?;
    }
    Ok(resolved)
}

fn resolve(text: &mut String, names: &Value, path: impl Fn() -> String) -> Result<(), TemplateError> {
    if is_template(text) {
        *text = render(text, names).map_err(|message| TemplateError { path: path(), message })?;
    }
    Ok(())
}

fn names(task: &Task, context: &Context) -> Result<Value, TemplateError> {
    let mut params = BTreeMap::new();
    for (name, json) in &context.params {
        params.insert(name.as_str(), json_value(json, || format!("params.{name}"))?);
    }
    let mut tasks = BTreeMap::new();
    for (name, json) in &context.outputs {
        let outputs = json_value(json, || format!("tasks.{name}.outputs"))?;
        tasks.insert(name.as_str(), Value::from_pairs([("outputs", outputs)]));
    }
    let task_names = Value::from_pairs([
        ("name", Value::from(task.name.as_str())),
        ("attempt", Value::from(context.attempt)),
    ]);
    Ok(Value::from_pairs([
        ("params", Value::from_pairs(params)),
        (
            "run",
            run_names(
                &context.run.workflow,
                &context.run.namespace,
                context.run.moment,
                Some(context.run.id),
            ),
        ),
        ("task", task_names),
        ("tasks", Value::from_pairs(tasks)),
    ]))
}

fn json_value(json: &str, path: impl Fn() -> String) -> Result<Value, TemplateError> {
    if json.is_empty() {
        return Ok(Value::from_pairs([] as [(&str, Value); 0]));
    }
    let parsed = typed::parse_json(json).map_err(|message| TemplateError { path: path(), message })?;
    Ok(typed::template_value(&parsed))
}

pub(crate) fn run_names(workflow: &str, namespace: &str, moment: Moment, id: Option<u64>) -> Value {
    let mut names = BTreeMap::from([
        ("workflow", Value::from(workflow)),
        ("namespace", Value::from(namespace)),
        ("created_at", Value::from(instant(moment.created_at_ms))),
        ("nominal_time", Value::from(instant(moment.nominal_time_ms.unwrap_or(moment.created_at_ms)))),
    ]);
    if let Some(id) = id {
        names.insert("id", Value::from(id));
    }
    Value::from_pairs(names)
}

fn instant(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let instant = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{instant:.3}")
}

/// Renders one template; the error is a sentence that names what is missing.
pub(crate) fn render(template: &str, names: &Value) -> Result<String, String> {
    let compiled = ENVIRONMENT.template_from_str(template).map_err(|error| sentence(&error))?;
    let text = compiled.render(names).map_err(|error| match error.kind() {
        ErrorKind::UndefinedError => undefined(template, names).unwrap_or_else(|| sentence(&error)),
        _ => sentence(&error),
    })?;
    if text.len() > MAX_RESOLVED_BYTES {
        return Err(format!("the value has {} bytes; the limit is {MAX_RESOLVED_BYTES} bytes", text.len()));
    }
    if text.contains('\0') {
        return Err("the value holds a NUL character, which a program cannot be given".to_owned());
    }
    Ok(text)
}

/// Names the first reference of the template that the names do not hold.
fn undefined(template: &str, names: &Value) -> Option<String> {
    for reference in scan::references(template) {
        let mut value = names.get_attr(reference.root).ok()?;
        let mut walked = reference.root.to_owned();
        for step in &reference.path {
            value = value.get_item(&Value::from(step.as_ref())).unwrap_or(Value::UNDEFINED);
            walked = format!("{walked}.{step}");
            if value.is_undefined() {
                return Some(format!("`{walked}` does not exist"));
            }
        }
    }
    None
}

/// The names that a template reads and does not set itself, or why it does not compile.
pub(crate) fn undeclared(template: &str) -> Result<HashSet<String>, String> {
    let compiled = ENVIRONMENT.template_from_str(template).map_err(|error| sentence(&error))?;
    let mut names = compiled.undeclared_variables(false);
    names.retain(|name| !ENVIRONMENT.globals().any(|(global, _)| global == name));
    Ok(names)
}

/// Whether a filter of this name exists.
pub(crate) fn has_filter(name: &str) -> bool {
    let tried = ENVIRONMENT.empty_state().apply_filter(name, &[]);
    !matches!(tried, Err(error) if error.kind() == ErrorKind::UnknownFilter)
}

fn sentence(error: &Error) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return "it needs too many steps or too much memory".to_owned();
    }
    let detail: Cow<'_, str> = match error.detail() {
        Some(detail) => detail.to_owned().into(),
        None => error.kind().to_string().into(),
    };
    detail.into_owned()
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    // A value is what was written: its last line break too.
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build().unwrap_or_default();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(syntax);
    environment.set_formatter(format_value);
    environment.add_filter("date", date);
    // It prints what a template can see; a definition has no use for it.
    environment.remove_global("debug");
    environment
});

/// Text stays as it is; lists, maps and booleans are written as JSON writes them.
fn format_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::None => {
            let json = serde_json::to_string(value)
                .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
            out.write_str(&json).map_err(Error::from)
        }
        ValueKind::Bool => out.write_str(if value.is_true() { "true" } else { "false" }).map_err(Error::from),
        _ => minijinja::escape_formatter(out, state, value),
    }
}

/// `date('%Y-%m-%d')`: an instant as text, in UTC.
fn date(value: &str, format: &str) -> Result<String, Error> {
    let wrong = |message: String| Error::new(ErrorKind::InvalidOperation, message);
    let instant: Timestamp = value
        .parse()
        .map_err(|_| wrong(format!("`date` takes an instant such as run.nominal_time, not `{value}`")))?;
    jiff::fmt::strtime::format(format, instant)
        .map_err(|error| wrong(format!("`date` does not know this format: {error}")))
}
