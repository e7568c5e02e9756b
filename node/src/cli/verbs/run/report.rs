//! The end of a run: what its last tasks printed, or what went wrong.

use std::collections::BTreeSet;

use clawhive_client::Client;
use clawhive_proto::{GetRunRequest, LogStream, ReadLogsRequest, RunState, RunView, TaskState, TaskView};
use clawhive_statemachine::names;
use futures::StreamExt;
use serde_json::{Value, json};

use super::board::Board;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, duration, escape, run_json, why_text};
use crate::cli::session::Session;

/// More last tasks than this print too much.
const LEAVES: usize = 5;
/// On a terminal, longer outputs are only named.
const LINES: usize = 40;
/// Failed tasks told in full.
const FAILURES: usize = 5;
const LOG_LINES: u32 = 10;
/// A log held in memory, at most.
const LOG_BYTES: usize = 4 << 20;

pub(super) fn brief(run: u64) -> GetRunRequest {
    GetRunRequest { run, brief: true, stale: false }
}

/// Tells how the run ended.
pub(super) async fn tell(
    session: &Session,
    run: u64,
    board: &Board,
    output: &Output,
) -> Result<Exit, Failure> {
    let client = &session.client;
    let view = client.get_run(run).await?;
    let row = view.run.clone().unwrap_or_default();
    let failures = failures(client, &view).await;
    if output.format != Format::Table {
        let mut document = run_json(&view);
        document["failures"] = failures.iter().map(Failed::json).collect();
        output.document(&document)?;
        return Ok(Exit::of_run(&row));
    }
    if row.state() == RunState::Succeeded {
        print_leaves(client, &view, output).await?;
    }
    for failed in &failures {
        eprint!("{}", failed.text(output));
    }
    let untold = view.tasks.iter().filter(|task| has_failed(task)).count().saturating_sub(failures.len());
    if untold > 0 {
        eprintln!("and {untold} more failed tasks");
    }
    let state = output.stderr.paint(&names::run_state(row.state()), Hue::of_run(row.state()));
    let took = duration(row.ended_at_ms.saturating_sub(row.created_at_ms));
    let tasks = match row.state() {
        RunState::Succeeded if row.tasks == 1 => "1 task".to_owned(),
        RunState::Succeeded => format!("{} tasks", row.tasks),
        _ => board.outcome(),
    };
    let why = match names::reason(row.reason()).as_str() {
        "" | "task_failed" | "cancelled" => String::new(),
        reason => format!(" ({})", reason.replace('_', " ")),
    };
    eprintln!("run {run} {state}{why}: {tasks} in {took}");
    if row.state() != RunState::Succeeded {
        let logs = match failures.first() {
            Some(first) => format!(" · clawhive logs {run} {}", first.task),
            None => String::new(),
        };
        eprintln!("{} clawhive show {run}{logs}", output.stderr.cyan("hint:"));
    }
    Ok(Exit::of_run(&row))
}

/// What the tasks printed that no other task needs: the results of the run, to standard output.
async fn print_leaves(client: &Client, view: &RunView, output: &Output) -> Result<(), Failure> {
    let leaves = leaves(view);
    if leaves.len() > LEAVES {
        eprintln!("{} last tasks; what they printed: clawhive logs {} TASK", leaves.len(), view.id);
        return Ok(());
    }
    for task in &leaves {
        let log = match read(client, view.id, task, 0, Some(LogStream::Stdout)).await {
            Ok(log) => log,
            Err(why) => {
                eprintln!("what {task} printed cannot be read: {why}");
                continue;
            }
        };
        if log.bytes.is_empty() {
            continue;
        }
        let lines = log.bytes.iter().filter(|byte| **byte == b'\n').count();
        if log.cut || (output.stdout.terminal && lines > LINES) {
            eprintln!("{task} printed more than {LINES} lines: clawhive logs {} {task}", view.id);
            continue;
        }
        if output.stdout.terminal || leaves.len() > 1 {
            eprintln!("{}", output.stderr.paint(&format!("── {task} ──"), Hue::Dim));
        }
        match output.stdout.terminal {
            true => output.print(&safe(&log.bytes))?,
            false => output.bytes(&log.bytes)?,
        }
    }
    Ok(())
}

/// Fit for a terminal, with a line feed at its end.
fn safe(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| format!("{}\n", escape(line))).collect()
}

/// Tasks that no other task needs, in the order of the file.
fn leaves(view: &RunView) -> Vec<String> {
    let needed: BTreeSet<&str> =
        view.tasks.iter().flat_map(|task| task.needs.iter().map(String::as_str)).collect();
    let leaves = view.tasks.iter().filter(|task| !needed.contains(task.name.as_str()));
    leaves.map(|task| task.name.clone()).collect()
}

/// One failed task, for people and for programs.
#[derive(Debug)]
struct Failed {
    task: String,
    attempt: u32,
    max_attempts: u32,
    reason: String,
    log: Vec<String>,
    /// Why there is no log.
    no_log: Option<String>,
}

impl Failed {
    fn json(&self) -> Value {
        json!({
            "task": self.task,
            "attempt": self.attempt,
            "reason": self.reason,
            "log": self.log,
        })
    }

    fn text(&self, output: &Output) -> String {
        let stream = output.stderr;
        let attempt = match (self.attempt, self.max_attempts) {
            (0, _) => String::new(),
            (made, most) if most > 1 => format!(" (attempt {made} of {most})"),
            (made, _) => format!(" (attempt {made})"),
        };
        let mut text =
            format!("{} task {} failed: {}{attempt}\n", stream.red("error:"), self.task, self.reason);
        for line in &self.log {
            text.push_str(&format!("  {} {}\n", stream.dim("|"), escape(line)));
        }
        match &self.no_log {
            Some(why) => text.push_str(&format!("  {} its log cannot be read: {why}\n", stream.dim("|"))),
            None if self.log.is_empty() && self.attempt > 0 => {
                text.push_str(&format!("  {} (it wrote nothing)\n", stream.dim("|")));
            }
            None => {}
        }
        text
    }
}

fn has_failed(task: &TaskView) -> bool {
    task.row.as_ref().is_some_and(|row| row.state() == TaskState::Failed)
}

async fn failures(client: &Client, view: &RunView) -> Vec<Failed> {
    let mut all = Vec::new();
    for task in view.tasks.iter().filter(|task| has_failed(task)).take(FAILURES) {
        let row = task.row.clone().unwrap_or_default();
        let attempt = task.attempts.last();
        let reason = match attempt.map(why_text).filter(|why| !why.is_empty()) {
            Some(why) => why,
            None if row.message.is_empty() => names::reason(row.reason()),
            None => format!("{}: {}", names::reason(row.reason()), escape(&row.message)),
        };
        let mut failed = Failed {
            task: task.name.clone(),
            attempt: row.attempt,
            max_attempts: task.max_attempts,
            reason,
            log: Vec::new(),
            no_log: None,
        };
        if row.attempt > 0 {
            match read(client, view.id, &task.name, LOG_LINES, None).await {
                Ok(log) => failed.log = last_lines(&log.bytes),
                Err(why) => failed.no_log = Some(why),
            }
        }
        all.push(failed);
    }
    all
}

fn last_lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES as usize);
    lines[from..].iter().map(|line| (*line).to_owned()).collect()
}

struct Log {
    bytes: Vec<u8>,
    /// There was more than is held in memory.
    cut: bool,
}

/// The newest attempt's log, of one stream or of both.
async fn read(
    client: &Client,
    run: u64,
    task: &str,
    tail_lines: u32,
    only: Option<LogStream>,
) -> Result<Log, String> {
    let request = ReadLogsRequest { run, task: task.to_owned(), tail_lines, ..Default::default() };
    let mut chunks = client.logs(request);
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| error.to_string())?;
        if !chunk.unavailable.is_empty() {
            return Err(chunk.unavailable);
        }
        if only.is_none_or(|only| chunk.stream() == only) {
            bytes.extend_from_slice(&chunk.data);
        }
        if bytes.len() > LOG_BYTES {
            return Ok(Log { bytes, cut: true });
        }
    }
    Ok(Log { bytes, cut: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn leaves_are_what_nobody_needs() {
        let task = |name: &str, needs: &[&str]| TaskView {
            name: name.into(),
            needs: needs.iter().map(|need| (*need).to_owned()).collect(),
            ..Default::default()
        };
        let tasks = vec![task("a", &[]), task("b", &["a"]), task("c", &["a"]), task("d", &["c"])];
        assert_eq!(leaves(&RunView { tasks, ..Default::default() }), ["b", "d"]);
    }

    #[test]
    fn a_failure_shows_its_last_lines() {
        let failed = Failed {
            task: "merge".into(),
            attempt: 2,
            max_attempts: 2,
            reason: "exit 3".into(),
            log: last_lines(b"one\ntwo \x1b[2J\n"),
            no_log: None,
        };
        expect![[r"
            error: task merge failed: exit 3 (attempt 2 of 2)
              | one
              | two \x1b[2J
        "]]
        .assert_eq(&failed.text(&Output::plain(Format::Table)));
        let silent = Failed { log: vec![], max_attempts: 1, ..failed };
        expect![[r"
            error: task merge failed: exit 3 (attempt 2)
              | (it wrote nothing)
        "]]
        .assert_eq(&silent.text(&Output::plain(Format::Table)));
    }

    #[test]
    fn no_more_than_the_last_lines_are_shown() {
        let text: String = (0..50).map(|n| format!("line {n}\n")).collect();
        let lines = last_lines(text.as_bytes());
        assert_eq!((lines.len(), lines[0].as_str()), (10, "line 40"));
    }
}
