//! How the state and the answers are printed in scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use clawhive_statemachine::ids::{RunId, TaskIndex};
use clawhive_statemachine::plan;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::read::RunFilter;
use clawhive_statemachine::{Applied, MemStore, ReadStore, Table, key, names, read};

use super::locks;
use super::play::{Play, Words};
use crate::cluster::DAY_MS;

/// More lines of one kind than this are counted instead of printed.
const MOST: usize = 16;

fn clock(time_ms: u64) -> String {
    let ms = time_ms - DAY_MS;
    let seconds = ms / 1_000;
    let text = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if ms.is_multiple_of(1_000) { text } else { format!("{text}.{:03}", ms % 1_000) }
}

/// The answers and the events of an entry.
pub fn applied(play: &Play, applied: &Applied) -> String {
    let mut printed = String::new();
    let answers: Vec<String> = applied.outcomes.iter().map(|outcome| answer(outcome.kind.as_ref())).collect();
    lines(&mut printed, "", &answers);
    let index = play.cluster.log.len() as u64;
    for (at, batch) in read::events(&play.cluster.store, index - 1, 1) {
        assert_eq!(at, index);
        let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let events: Vec<String> = batch
            .events
            .iter()
            .map(|event| {
                let names = names.entry(event.run).or_insert_with(|| play.names(event.run));
                self::event(event, names)
            })
            .collect();
        lines(&mut printed, "  ", &events);
    }
    printed
}

fn lines(printed: &mut String, indent: &str, lines: &[String]) {
    for line in lines.iter().take(MOST) {
        writeln!(printed, "{indent}{line}").unwrap();
    }
    if lines.len() > MOST {
        writeln!(printed, "{indent}... {} more", lines.len() - MOST).unwrap();
    }
}

fn answer(answer: Option<&Answer>) -> String {
    match answer.unwrap() {
        Answer::Done(_) => "done".into(),
        Answer::Rejected(it) => {
            let code = it.code().as_str_name().trim_start_matches("REJECTION_CODE_");
            format!("refused {code}: {}", it.message)
        }
        Answer::RunSubmitted(it) => {
            let again = if it.replayed { " again" } else { "" };
            format!("run {}{again} of version {}", it.run, it.version)
        }
        Answer::WorkflowPut(it) => {
            format!("version {} {}", it.version, if it.created { "created" } else { "unchanged" })
        }
        Answer::NodeAdded(it) => format!("node {}", it.node),
        Answer::Progress(it) => format!("{} done{}", it.done, if it.more { ", more to do" } else { "" }),
        Answer::Granted(it) => format!("{} granted, {} stale", it.granted, it.stale),
        Answer::KeyTxnDone(_) | Answer::LockGranted(_) | Answer::LockQueued(_) => {
            locks::answer(answer.unwrap())
        }
    }
}

fn event(event: &Event, names: &[String]) -> String {
    let mut text = String::new();
    if event.run > 0 {
        write!(text, "{}", event.run).unwrap();
    }
    if event.task_plus_1 > 0 {
        write!(text, "/{}", names[event.task_plus_1 as usize - 1]).unwrap();
    }
    write!(text, " {}", names::event_kind(event.kind())).unwrap();
    if event.attempt > 0 {
        write!(text, " attempt {}", event.attempt).unwrap();
    }
    if event.claw > 0 {
        write!(text, " claw {}", event.claw).unwrap();
    }
    if event.reason() != Reason::Unspecified {
        write!(text, " ({})", names::reason(event.reason())).unwrap();
    }
    if !event.detail.is_empty() {
        write!(text, ": {}", event.detail).unwrap();
    }
    text.trim_start().into()
}

/// `show WHAT [..]`.
pub fn show(play: &Play, words: &Words<'_>) -> String {
    let store = &play.cluster.store;
    let newest = read::meta(store).next_run.saturating_sub(1);
    let third = words.bare.get(2).copied();
    let run = || third.map_or(newest, |run| run.parse().unwrap());
    let mut printed = String::new();
    let found = match words.bare[1] {
        "tasks" => tasks(play, run()),
        "run" => vec![show_run(store, run())],
        "runs" => runs(store),
        "claws" => claws(store),
        "attempts" => attempts(play, third.unwrap()),
        "ready" => ready(play),
        "timers" => timers(play),
        "counts" => read::state_counts(store, RunId(run()))
            .iter()
            .map(|it| format!("{} {}", names::task_state(it.state()), it.count))
            .collect(),
        "locks" => locks::show_locks(store),
        "keys" => locks::show_keys(store),
        "backlog" => vec![format!("{} rows", store.len(Table::Backlog))],
        "requests" => {
            let rows = |table| store.len(table);
            vec![format!(
                "{} request ids, {} idempotency keys",
                rows(Table::Requests),
                rows(Table::Idempotency)
            )]
        }
        other => panic!("nothing to show as {other}"),
    };
    let found = if found.is_empty() { vec!["none".into()] } else { found };
    lines(&mut printed, "", &found);
    printed
}

fn tasks(play: &Play, run: u64) -> Vec<String> {
    let names = play.names(run);
    let line = |(index, row): (TaskIndex, TaskRow)| {
        let mut text = format!("{} {}", names[index.0 as usize], names::task_state(row.state()));
        if row.held {
            text += " held";
        }
        if row.remaining > 0 && row.state() == TaskState::Pending {
            write!(text, " waits for {}", row.remaining).unwrap();
        }
        if row.attempt > 0 {
            write!(text, " attempt {}", row.attempt).unwrap();
        }
        if row.fence > 0 {
            write!(text, " claw {} token {}", row.claw, row.fence).unwrap();
        }
        if row.reason() != Reason::Unspecified {
            write!(text, " ({})", names::reason(row.reason())).unwrap();
        }
        text
    };
    read::tasks(&play.cluster.store, RunId(run)).into_iter().map(line).collect()
}

fn show_run(store: &MemStore, run: u64) -> String {
    let Some(row) = read::run(store, RunId(run)) else { return "none".into() };
    let mut text = format!("run {run} of {} version {}: ", row.workflow, row.version);
    text += &names::run_state(row.state());
    if row.reason() != Reason::Unspecified {
        write!(text, " ({})", names::reason(row.reason())).unwrap();
    }
    if row.stop.is_some() && row.ended_at_ms == 0 {
        text += " stopping";
    }
    write!(text, "; {} of {} unfinished", row.unfinished, row.tasks).unwrap();
    write!(text, ", {} succeeded, {} failed", row.succeeded, row.failed).unwrap();
    write!(text, ", {} admitted, {} held", row.admitted, row.held).unwrap();
    if row.ended_at_ms > 0 {
        write!(text, "; ended {}", clock(row.ended_at_ms)).unwrap();
    }
    text
}

fn runs(store: &MemStore) -> Vec<String> {
    let page = read::list_runs(store, &RunFilter { limit: 100, ..RunFilter::default() });
    page.runs
        .iter()
        .map(|(id, row)| format!("run {id} of {}: {}", row.workflow, names::run_state(row.state())))
        .collect()
}

fn claws(store: &MemStore) -> Vec<String> {
    let line = |(id, row): (_, ClawRow)| {
        let state = names::claw_state(row.state());
        let left = row.remaining_ms.map_or_else(String::new, |left| format!(", {left} ms left"));
        format!("claw {id} {state} {}/{} renewed {} times{left}", row.used, row.slots, row.renew_seq)
    };
    read::claws(store).into_iter().map(line).collect()
}

fn attempts(play: &Play, place: &str) -> Vec<String> {
    let (run, task) = play.place(place);
    let line = |(number, row): (_, AttemptRow)| {
        let mut text = format!("attempt {number} {} claw {}", names::attempt_state(row.state()), row.claw);
        write!(text, " token {} dispatched {}", row.fence, clock(row.dispatched_at_ms)).unwrap();
        if row.ended_at_ms > 0 {
            write!(text, " ended {}", clock(row.ended_at_ms)).unwrap();
        }
        if row.reason() != Reason::Unspecified {
            write!(text, " ({})", names::reason(row.reason())).unwrap();
        }
        text
    };
    read::attempts(&play.cluster.store, RunId(run), TaskIndex(task)).into_iter().map(line).collect()
}

fn ready(play: &Play) -> Vec<String> {
    let store = &play.cluster.store;
    let mut found = Vec::new();
    store.scan(Table::Ready, &[], None, &mut |_, value| {
        let (run, task) = key::parse_task(value).unwrap();
        found.push(format!("{run}/{}", play.names(run.0)[task.0 as usize]));
        std::ops::ControlFlow::Continue(())
    });
    found
}

fn timers(play: &Play) -> Vec<String> {
    let all = plan::fire::plan(&play.cluster.store, u64::MAX, 1_000).command.unwrap_or_default();
    let line = |timer: &TimerKey| {
        let kind = timer.kind().as_str_name().trim_start_matches("TIMER_KIND_").to_lowercase();
        let place = match timer.kind() {
            TimerKind::RunTimeout => format!("{}", timer.run),
            _ => format!("{}/{}", timer.run, play.names(timer.run)[timer.task as usize]),
        };
        format!("{} {kind} {place}", clock(timer.due_ms))
    };
    all.timers.iter().map(line).collect()
}
