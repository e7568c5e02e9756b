//! `show RUN`: the run with its tasks, or one task with its attempts.

use std::collections::BTreeMap;

use clawhive_proto::{GetRunRequest, Reason, RunView, TaskRow, TaskState, TaskView};
use clawhive_statemachine::names;
use serde_json::Value;

use super::ls::workflow_name;
use crate::cli::args::{Global, ShowArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{
    Format, Hue, Output, Stream, Table, attempt_json, escape, now_ms, rfc3339, run_json, shortened, span,
    task_json, why_text,
};
use crate::cli::session::{Local, Session};

/// Tasks shown of a big run, unless all are asked for.
const TASKS_SHOWN: usize = 40;

pub(in crate::cli) async fn run(args: &ShowArgs, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let request = GetRunRequest { run: args.run.0, stale: args.stale, ..Default::default() };
    let view = session.client.get_run_with(request).await?;
    session.close().await;
    if output.format == Format::Table {
        output.stale(view.freshness.as_ref())?;
    }
    let Some(name) = &args.task else {
        match output.format {
            Format::Table => output.print(&run_text(&view, args.all, now_ms(), output.stdout))?,
            _ => output.document(&run_json(&view))?,
        }
        return Ok(Exit::Done);
    };
    let task = view.tasks.iter().find(|task| task.name == *name).ok_or_else(|| {
        let failure =
            Failure::new(Exit::NotFound, "not_found", format!("run {} has no task {name:?}", args.run));
        failure.hint(format!("clawhive show {} --all lists its tasks", args.run))
    })?;
    match output.format {
        Format::Table => output.print(&task_text(&view, task, now_ms(), output.stdout))?,
        _ => output.document(&task_json(task))?,
    }
    Ok(Exit::Done)
}

fn run_text(view: &RunView, all: bool, now_ms: u64, stream: Stream) -> String {
    let row = view.run.clone().unwrap_or_default();
    let mut head = Vec::new();
    let mut field = |name: &str, text: String| {
        if !text.is_empty() {
            head.push(format!("{name:<10} {text}"));
        }
    };
    let state = stream.paint(&names::run_state(row.state()), Hue::of_run(row.state()));
    let reason = names::reason(row.reason());
    let stop = row.stop.as_ref().map(|stop| stop.message.clone()).unwrap_or_default();
    let why: Vec<String> = [reason, escape(&stop)].into_iter().filter(|text| !text.is_empty()).collect();
    field("Run", view.id.to_string());
    field("Workflow", format!("{} version {}", workflow_name(&row), row.version));
    field("State", if why.is_empty() { state } else { format!("{state} ({})", why.join(": ")) });
    if row.schedule_uid != 0 {
        let at = match row.nominal_ms {
            0 => "by hand".to_owned(),
            nominal_ms => format!("at {}", names::time(nominal_ms)),
        };
        let schedule = names::schedule(&row.namespace, &row.workflow, &row.schedule);
        field("Schedule", format!("{} {at}", escape(&schedule)));
    }
    let params: Vec<String> = row.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
    field("Params", escape(&params.join(" ")));
    let labels: Vec<String> = row.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    field("Labels", escape(&labels.join(" ")));
    field("Key", escape(&row.idempotency_key));
    field("Created", rfc3339(row.created_at_ms).as_str().unwrap_or_default().to_owned());
    field("Duration", span(row.started_at_ms, row.ended_at_ms, now_ms));
    field("Tasks", counts(&view.tasks));
    let mut text = format!("{}\n\n", head.join("\n"));

    let mut shown: Vec<&TaskView> = view.tasks.iter().collect();
    let left_out = if all { 0 } else { shown.len().saturating_sub(TASKS_SHOWN) };
    if left_out > 0 {
        // What matters first; the order of the file within.
        shown.sort_by_key(|task| urgency(state_of(task)));
        shown.truncate(TASKS_SHOWN);
    }
    text.push_str(&tasks_table(&shown, now_ms, stream).text(stream));
    if left_out > 0 {
        text.push_str(&stream.dim(&format!("{left_out} more tasks: clawhive show {} --all", view.id)));
        text.push('\n');
    }
    text
}

fn state_of(task: &TaskView) -> TaskState {
    task.row.as_ref().map_or(TaskState::Unspecified, |row| row.state())
}

/// What a reader looks for first.
fn urgency(state: TaskState) -> u8 {
    match state {
        TaskState::Failed | TaskState::Quarantined => 0,
        TaskState::Retrying => 1,
        TaskState::Running | TaskState::Dispatched => 2,
        TaskState::Ready => 3,
        TaskState::UpstreamFailed | TaskState::Cancelled | TaskState::Skipped => 4,
        TaskState::Pending | TaskState::Unspecified => 5,
        TaskState::Succeeded => 6,
    }
}

/// `14: 12 succeeded, 1 failed, 1 upstream_failed`.
fn counts(tasks: &[TaskView]) -> String {
    let mut counts: BTreeMap<(u8, String), usize> = BTreeMap::new();
    for task in tasks {
        let state = state_of(task);
        *counts.entry((urgency(state), names::task_state(state))).or_default() += 1;
    }
    let parts: Vec<String> =
        counts.iter().rev().map(|((_, name), count)| format!("{count} {name}")).collect();
    format!("{}: {}", tasks.len(), parts.join(", "))
}

fn tasks_table(tasks: &[&TaskView], now_ms: u64, stream: Stream) -> Table {
    let mut table = Table::new(&["TASK", "STATE", "ATTEMPTS", "DURATION", "NEEDS", "REASON"]);
    for task in tasks {
        let row = task.row.clone().unwrap_or_default();
        let plain = |text: String| (text, Hue::Plain);
        let attempts = match (row.attempt, task.max_attempts) {
            (0, _) => String::new(),
            (made, 0 | 1) => made.to_string(),
            (made, most) => format!("{made} of {most}"),
        };
        let fitting = (stream.width / 3).max(24);
        let name = if stream.terminal { shortened(&task.name, fitting) } else { task.name.clone() };
        let needs = if stream.terminal { shortened(&task.needs.join(","), 32) } else { task.needs.join(",") };
        table.row([
            (name, Hue::Bold),
            (names::task_state(row.state()), Hue::of_task(row.state())),
            plain(attempts),
            plain(span(row.started_at_ms, row.ended_at_ms, now_ms)),
            (needs, Hue::Dim),
            plain(why_of_task(task)),
        ]);
    }
    table
}

/// Why a task is not well: the newest attempt's reason, or the task's own.
fn why_of_task(task: &TaskView) -> String {
    let row = task.row.clone().unwrap_or_default();
    match row.state() {
        TaskState::Succeeded => return String::new(),
        // The state says it.
        TaskState::Cancelled if row.reason() == Reason::Cancelled => return String::new(),
        TaskState::Cancelled => return names::reason(row.reason()),
        _ => {}
    }
    match task.attempts.last().map(why_text) {
        Some(why) if !why.is_empty() => shortened(&why, 80),
        _ => reason_and_message(&row),
    }
}

/// Of a task that has no attempt to tell of.
fn reason_and_message(row: &TaskRow) -> String {
    match (names::reason(row.reason()), row.message.as_str()) {
        (reason, "") => reason,
        (reason, message) if reason.is_empty() => shortened(&escape(message), 80),
        (reason, message) => format!("{reason}: {}", shortened(&escape(message), 80)),
    }
}

fn task_text(view: &RunView, task: &TaskView, now_ms: u64, stream: Stream) -> String {
    let row = task.row.clone().unwrap_or_default();
    let state = stream.paint(&names::task_state(row.state()), Hue::of_task(row.state()));
    let why = why_of_task(task);
    let mut text = format!("Task       {} of run {}\nState      {state}", task.name, view.id);
    if !why.is_empty() {
        text.push_str(&format!(" ({why})"));
    }
    text.push('\n');
    if !task.needs.is_empty() {
        text.push_str(&format!("Needs      {}\n", task.needs.join(", ")));
    }
    if let Ok(Value::Object(outputs)) = serde_json::from_str::<Value>(&task.outputs_json) {
        for (place, (name, value)) in outputs.iter().enumerate() {
            let label = if place == 0 { "Outputs" } else { "" };
            text.push_str(&format!("{label:<10} {name} = {}\n", escape(&value.to_string())));
        }
    }
    if task.attempts.is_empty() {
        return text;
    }
    let mut table = Table::new(&["ATTEMPT", "STATE", "CLAW", "FENCE", "STARTED", "DURATION", "REASON"]);
    for attempt in &task.attempts {
        let row = attempt.row.clone().unwrap_or_default();
        // The names of documents, so that both read alike.
        let state = attempt_json(attempt)["state"].as_str().unwrap_or_default().to_owned();
        let hue = match state.as_str() {
            "succeeded" => Hue::Good,
            "failed" => Hue::Bad,
            "running" => Hue::Busy,
            _ => Hue::Odd,
        };
        let plain = |text: String| (text, Hue::Plain);
        table.row([
            plain(attempt.number.to_string()),
            (state, hue),
            plain(row.claw.to_string()),
            plain(row.fence.to_string()),
            plain(rfc3339(row.started_at_ms).as_str().unwrap_or_default().to_owned()),
            plain(span(row.started_at_ms, row.ended_at_ms, now_ms)),
            plain(shortened(&why_text(attempt), 100)),
        ]);
    }
    format!("{text}\n{}", table.text(stream))
}

#[cfg(test)]
mod tests;
