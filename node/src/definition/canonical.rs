//! The canonical form as a file: every default filled in, and read back as the same definition.

use clawhive_proto::{
    Backoff, Delivery, OnFailure, Overlap, Param, Retries, Task, Timeouts, Workflow, task::Executor,
};
use serde_json::{Map, Value, json};

use super::params::type_word;
use super::policy::{BACKOFFS, DELIVERIES};
use super::schedule;
use super::values::duration_text;
use super::workflow::ON_FAILURE;

/// The definition in the shape of the file format. Limits that are not set read `none`; what has no default and was not
/// written (a parameter's default, a working directory) is left out.
pub fn canonical_json(workflow: &Workflow) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("name", json!(workflow.name));
    put("title", json!(workflow.title));
    put("namespace", json!(workflow.namespace));
    put("labels", json!(workflow.labels));
    put("params", workflow.params.iter().map(|param| (param.name.clone(), parameter(param))).collect());
    put("priority", json!(workflow.priority));
    put(
        "max_parallel",
        if workflow.max_parallel == 0 { json!("none") } else { json!(workflow.max_parallel) },
    );
    put("timeout", limit(workflow.timeout_ms));
    put("on_failure", json!(on_failure(workflow.on_failure())));
    if !workflow.schedules.is_empty() {
        put("schedule", schedule::canonical(&workflow.schedules));
    }
    if !workflow.schedules.is_empty() || workflow.overlap() != Overlap::Allow {
        put("overlap", json!(schedule::overlap_word(workflow.overlap())));
    }
    put("tasks", workflow.tasks.iter().map(|one| (one.name.clone(), task(one, &workflow.tasks))).collect());
    Value::Object(out)
}

fn parameter(param: &Param) -> Value {
    let mut out = Map::new();
    out.insert("type".to_owned(), json!(type_word(param.r#type())));
    if let Some(default) = &param.default_json {
        let value = super::json_value(default.as_bytes(), super::MAX_FILE_BYTES).unwrap_or(Value::Null);
        out.insert("default".to_owned(), value);
    }
    out.insert("description".to_owned(), json!(param.description));
    Value::Object(out)
}

fn task(task: &Task, tasks: &[Task]) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("title", json!(task.title));
    let names =
        task.needs.iter().filter_map(|need| tasks.get(*need as usize)).map(|upstream| json!(upstream.name));
    put("needs", names.collect());
    match &task.executor {
        Some(Executor::Run(text)) => {
            put("run", json!(text));
        }
        Some(Executor::Process(process)) => {
            let mut value = json!({ "command": process.command });
            if !process.working_dir.is_empty() {
                value["working_dir"] = json!(process.working_dir);
            }
            put("process", value);
        }
        None => {}
    }
    put("env", task.env.iter().map(|variable| (variable.name.clone(), json!(variable.value))).collect());
    let outputs = task.outputs.iter().map(|output| (output.name.clone(), json!(type_word(output.r#type()))));
    put("outputs", outputs.collect());
    put("retries", retries(&task.retries.unwrap_or_default()));
    put("timeout", timeouts(&task.timeout.unwrap_or_default()));
    put("delivery", json!(delivery(task.delivery())));
    Value::Object(out)
}

/// The word of the file format.
fn delivery(value: Delivery) -> &'static str {
    DELIVERIES.iter().find(|(_, known)| *known == value).map_or("at_least_once", |(word, _)| word)
}

fn retries(retries: &Retries) -> Value {
    json!({
        "max_attempts": retries.max_attempts,
        "delay": duration_text(retries.delay_ms),
        "backoff": backoff(retries.backoff()),
        "max_delay": duration_text(retries.max_delay_ms),
        "jitter": f64::from(retries.jitter_permille) / 1000.0,
    })
}

fn timeouts(timeouts: &Timeouts) -> Value {
    json!({
        "execution": limit(timeouts.execution_ms),
        "queue": limit(timeouts.queue_ms),
        "grace": duration_text(timeouts.grace_ms),
    })
}

fn limit(ms: u64) -> Value {
    if ms == 0 { json!("none") } else { json!(duration_text(ms)) }
}

fn on_failure(value: OnFailure) -> &'static str {
    ON_FAILURE.iter().find(|(_, known)| *known == value).map_or("continue", |(word, _)| word)
}

fn backoff(value: Backoff) -> &'static str {
    BACKOFFS.iter().find(|(_, known)| *known == value).map_or("exponential", |(word, _)| word)
}
