//! Schedules in scripts, with a calendar of their own: times are milliseconds and zones are nobody's business here.
//!
//! ```text
//! workflow NAME .. schedule=every:10s | schedule=a@every:10s,b@cron:stuck [overlap=skip] [missed=latest] [window=D]
//!     [by=submit]                      stored on the way of a submit: schedules stay as they are
//! schedules [limit=N]                  plan::schedule, proposed; `schedules all` until nothing is due
//! fire_schedule NAME nominal=T [next=T] [version=N] [params_error=..]     a command of one's own
//! plan_schedule NAME [first=T last=T count=N] next=T
//! pause_schedule NAME | resume_schedule NAME | trigger NAME [force=yes]
//! show schedules | occurrences NAME
//! ```
//! NAME is `workflow` or `workflow:schedule`. The calendars: `every:D`; `cron:stuck` and `cron:back` are the next full
//! minute, and from there no later one; `cron:noon` is 12:00 once; `cron:broken` has no answer.

use clawhive_statemachine::plan::schedule::{SchedulePlan, plan};
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::schedule::When;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{MemStore, names, read};

use super::play::{Words, duration, time_of_day};
use super::show::clock;
use crate::cluster::DAY_MS;

fn calendar(schedule: &Schedule, after: u64) -> Result<Option<u64>, String> {
    let full_minute = |after: u64| after / 60_000 * 60_000;
    let stands = after == full_minute(after);
    Ok(match &schedule.when {
        Some(When::EveryMs(ms)) => Some(after + ms),
        Some(When::Cron(text)) => match text.as_str() {
            "stuck" if stands => Some(after),
            "back" if stands => Some(after - 1),
            "stuck" | "back" => Some(full_minute(after) + 60_000),
            "noon" => Some(DAY_MS + 43_200_000).filter(|noon| *noon > after),
            _ => return Err("there is no zone Mars/Olympus".into()),
        },
        None => None,
    })
}

/// What the leader would propose.
pub fn planned(store: &MemStore, now: u64, words: &Words<'_>) -> SchedulePlan {
    plan(store, now, words.number("limit").unwrap_or(100) as usize, &calendar)
}

/// The schedules of a `workflow` line.
pub fn definitions(workflow: &mut Workflow, words: &Words<'_>) {
    if words.get("overlap") == Some("skip") {
        workflow.set_overlap(Overlap::Skip);
    }
    let Some(list) = words.get("schedule") else { return };
    for text in list.split(',') {
        let (name, text) = text.split_once('@').unwrap_or(("", text));
        let when = match text.split_once(':').unwrap() {
            ("every", period) => When::EveryMs(duration(period)),
            (_, text) => When::Cron(text.into()),
        };
        let mut schedule = Schedule { name: name.into(), when: Some(when), ..Schedule::default() };
        if words.get("missed") == Some("latest") {
            schedule.set_missed(MissedPolicy::Latest);
        }
        schedule.missed_window_ms = words.get("window").map_or(0, duration);
        workflow.schedules.push(schedule);
    }
}

fn of(name: &str) -> ScheduleRef {
    let (workflow, schedule) = name.split_once(':').unwrap_or((name, ""));
    ScheduleRef { namespace: "default".into(), workflow: workflow.into(), schedule: schedule.into() }
}

/// The commands of one's own.
pub fn command(store: &MemStore, verb: &str, words: &Words<'_>) -> Option<Kind> {
    let of = of(words.bare.get(1)?);
    let row = read::schedule(store, &of).unwrap_or_default();
    let time = |key: &str| words.get(key).map_or(0, time_of_day);
    Some(match verb {
        "fire_schedule" => {
            let newest = read::workflow(store, "default", &of.workflow).map_or(0, |row| row.latest_version);
            Kind::FireSchedule(FireSchedule {
                of: Some(of),
                revision: row.revision,
                nominal_ms: time("nominal"),
                next_ms: time("next"),
                version: words.number("version").unwrap_or(newest),
                params_error: words.get("params_error").unwrap_or_default().into(),
                ..FireSchedule::default()
            })
        }
        "plan_schedule" => {
            let skipped = words.number("count").map(|count| Skipped {
                first_ms: time("first"),
                last_ms: time("last"),
                count,
                reason: SkipReason::Missed as i32,
            });
            let (revision, cursor_ms, next_ms) = (row.revision, row.cursor_ms, time("next"));
            Kind::PlanSchedule(PlanSchedule { of: Some(of), revision, cursor_ms, skipped, next_ms })
        }
        "pause_schedule" | "resume_schedule" => {
            let reason = if verb == "pause_schedule" { "by hand".into() } else { String::new() };
            Kind::PauseSchedule(PauseSchedule { of: Some(of), paused: verb == "pause_schedule", reason })
        }
        "trigger" => {
            let force = words.get("force").is_some();
            Kind::TriggerSchedule(TriggerSchedule { of: Some(of), force, ..TriggerSchedule::default() })
        }
        _ => return None,
    })
}

/// `show schedules`.
pub fn schedules(store: &MemStore) -> Vec<String> {
    let line = |(of, row): (ScheduleRef, ScheduleRow)| {
        let name = names::schedule(&of.namespace, &of.workflow, &of.schedule);
        let next = match row.next_ms {
            _ if row.never => "never".into(),
            0 => "to be planned".into(),
            next => clock(next),
        };
        let state = names::schedule_state(row.state());
        let because = if row.message.is_empty() { String::new() } else { format!(" ({})", row.message) };
        format!(
            "{name} {state}{because}: cursor {} next {next}; {} fired, {} skipped, {} active",
            clock(row.cursor_ms),
            row.fired,
            row.skipped,
            row.active
        )
    };
    read::schedules(store, "", "").into_iter().map(line).collect()
}

/// `show occurrences NAME`, newest first.
pub fn occurrences(store: &MemStore, name: &str) -> Vec<String> {
    let line = |found: read::Occurrence| {
        let (row, at) = (found.row, clock(found.nominal_ms));
        match row.run {
            0 if row.count > 1 => {
                let reason = names::skip_reason(row.skipped());
                format!("{at} to {}: {reason} ({})", clock(row.last_ms), row.count)
            }
            0 => format!("{at}: {} {}", names::skip_reason(row.skipped()), row.detail).trim_end().into(),
            run => format!("{at}: run {run}"),
        }
    };
    read::occurrences(store, &of(name), u64::MAX, 100).into_iter().map(line).collect()
}
