//! `schedule ls|show|next|trigger|pause|resume`.

use std::time::Duration;

use clawhive_client::Error;
use clawhive_node::calendar::{Calendar, Note, zone_data_version};
use clawhive_proto::schedule::When;
use clawhive_proto::{ListSchedulesRequest, OccurrenceView, ScheduleRow, ScheduleState, ScheduleView};
use clawhive_statemachine::names;
use serde_json::{Value, json};

use crate::cli::args::{Global, NextArgs, ScheduleVerb};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, escape, now_ms, rfc3339, schedule_json, span};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(
    verb: &ScheduleVerb,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    // An expression is the same everywhere: no server is needed for it.
    if let ScheduleVerb::Next(NextArgs { cron: Some(expression), .. }) = verb {
        let ScheduleVerb::Next(args) = verb else { return Ok(Exit::Done) };
        return tell_next(&of_expression(expression, &args.timezone)?, now_ms(), args, output);
    }
    let session = Session::open(global, Local::LOOK).await?;
    match verb {
        ScheduleVerb::Ls { namespace } => {
            let message = ListSchedulesRequest { namespace: namespace.clone(), stale: false };
            let answer = session.client.list_schedules(message).await?;
            match output.format {
                Format::Table => output.table(&table(&answer.schedules, now_ms()), "no schedules")?,
                _ => {
                    let all: Vec<Value> = answer.schedules.iter().map(without_records).collect();
                    output.document(&json!({ "schedules": all }))?;
                }
            }
        }
        ScheduleVerb::Show { name, last } => {
            let view = session.client.get_schedule(name, *last).await.map_err(explain)?;
            match output.format {
                Format::Table => output.print(&text(&view, now_ms(), output))?,
                _ => output.document(&schedule_json(&view))?,
            }
        }
        ScheduleVerb::Next(args) => {
            let name = args.name.clone().unwrap_or_default();
            let view = session.client.get_schedule(name, 0).await.map_err(explain)?;
            let row = view.row.unwrap_or_default();
            let definition = row.definition.clone().unwrap_or_default();
            let calendar = Calendar::of(&definition).map_err(Failure::unexpected)?;
            tell_next(&calendar, start(&row, args), args, output)?;
        }
        ScheduleVerb::Trigger { name, force, params } => {
            let submitted = session.client.trigger_schedule(name, params.clone(), *force).await;
            let submitted = submitted.map_err(|error| match &error {
                Error::Conflict { .. } => Failure::from(error)
                    .hint("`--force` makes a run all the same; `clawhive cancel` ends the other"),
                _ => explain(error),
            })?;
            match output.format {
                Format::Table => output.print(&format!("{}\n", submitted.run))?,
                _ => output.document(&json!({
                    "run": submitted.run.to_string(),
                    "namespace": submitted.namespace,
                    "workflow": submitted.workflow,
                    "version": submitted.version,
                    "log_index": submitted.log_index.to_string(),
                }))?,
            }
        }
        ScheduleVerb::Pause { name, reason } => {
            let view = session.client.pause_schedule(name, true, reason).await.map_err(explain)?;
            told(&view, output)?;
        }
        ScheduleVerb::Resume { name } => {
            let view = session.client.pause_schedule(name, false, "").await.map_err(explain)?;
            told(&view, output)?;
        }
    }
    session.close().await;
    Ok(Exit::Done)
}

fn explain(error: Error) -> Failure {
    let not_found = matches!(error, Error::NotFound { .. });
    let failure = Failure::from(error);
    match not_found {
        true => failure.hint("`clawhive schedule ls` lists the schedules that there are"),
        false => failure,
    }
}

/// The calendar of an expression.
fn of_expression(expression: &str, timezone: &str) -> Result<Calendar, Failure> {
    Calendar::cron(expression, timezone).map_err(|message| Failure::new(Exit::Usage, "invalid", message))
}

/// From where a stored schedule is told: an interval goes on from its last occurrence.
fn start(row: &ScheduleRow, args: &NextArgs) -> u64 {
    let from = args.from.map_or_else(now_ms, millis);
    match row.definition.as_ref().and_then(|definition| definition.when.as_ref()) {
        Some(When::EveryMs(every)) if *every > 0 && row.cursor_ms <= from => {
            row.cursor_ms + (from - row.cursor_ms) / every * every
        }
        Some(When::EveryMs(_)) => row.cursor_ms,
        _ => from,
    }
}

fn millis(time: jiff::Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or(0)
}

/// Tells the occurrences after `start` that the arguments ask for.
fn tell_next(calendar: &Calendar, start: u64, args: &NextArgs, output: &Output) -> Result<Exit, Failure> {
    let start = if args.cron.is_some() { args.from.map_or(start, millis) } else { start };
    let until = args.until.map_or(u64::MAX, millis);
    let count = args.count.unwrap_or(if args.until.is_some() { 1_000 } else { 10 });
    let mut found = Vec::new();
    let mut at = start;
    while found.len() < count as usize
        && let Some((next, note)) = calendar.next(at).filter(|(next, _)| *next <= until)
    {
        found.push((next, note));
        at = next;
    }
    let word = |note: &Option<Note>| match note {
        None => None,
        Some(Note::Gap) => Some("gap"),
        Some(Note::Overlap) => Some("overlap"),
    };
    if output.format != Format::Table {
        let one = |(time, note): &(u64, Option<Note>)| json!({ "time": rfc3339(*time), "note": word(note) });
        let occurrences: Vec<Value> = found.iter().map(one).collect();
        output.document(&json!({ "occurrences": occurrences, "zone_data": zone_data_version() }))?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&["TIME", "NOTE"]);
    for (time, note) in &found {
        let note = word(note).unwrap_or_default().to_owned();
        table.row([(names::time(*time), Hue::Plain), (note, Hue::Odd)]);
    }
    output.table(&table, "no occurrences")?;
    Ok(Exit::Done)
}

/// What a pause or a resume came to.
fn told(view: &ScheduleView, output: &Output) -> Result<(), Failure> {
    if output.format != Format::Table {
        return output.document(&without_records(view));
    }
    let row = view.row.clone().unwrap_or_default();
    output.print(&format!("{} is {}\n", name(view), names::schedule_state(row.state())))
}

fn without_records(view: &ScheduleView) -> Value {
    let mut document = schedule_json(view);
    if let Some(fields) = document.as_object_mut() {
        // Not asked for, so not known.
        fields.remove("occurrences");
    }
    document
}

fn name(view: &ScheduleView) -> String {
    let of = view.of.clone().unwrap_or_default();
    escape(&names::schedule(&of.namespace, &of.workflow, &of.schedule))
}

fn when(row: &ScheduleRow) -> (String, String) {
    let definition = row.definition.clone().unwrap_or_default();
    match definition.when {
        Some(When::Cron(expression)) => (expression, definition.timezone),
        Some(When::EveryMs(ms)) => {
            (format!("every {}", clawhive_node::definition::duration_text(ms)), String::new())
        }
        None => Default::default(),
    }
}

fn state(row: &ScheduleRow) -> (String, Hue) {
    let hue = match row.state() {
        ScheduleState::Active => Hue::Good,
        ScheduleState::Paused => Hue::Odd,
        ScheduleState::Suspended => Hue::Bad,
    };
    (names::schedule_state(row.state()), hue)
}

/// When it is due, from now.
fn due(row: &ScheduleRow, now_ms: u64) -> String {
    match row.next_ms {
        _ if row.never => "never".to_owned(),
        0 => "-".to_owned(),
        next if next <= now_ms => "now".to_owned(),
        next => format!("in {}", span(now_ms, next, now_ms)),
    }
}

fn table(schedules: &[ScheduleView], now_ms: u64) -> Table {
    let mut table = Table::new(&["SCHEDULE", "WHEN", "ZONE", "STATE", "DUE", "ACTIVE", "FIRED", "SKIPPED"]);
    for view in schedules {
        let row = view.row.clone().unwrap_or_default();
        let (when, zone) = when(&row);
        let plain = |text: String| (text, Hue::Plain);
        table.row([
            (name(view), Hue::Bold),
            plain(escape(&when)),
            plain(escape(&zone)),
            state(&row),
            plain(due(&row, now_ms)),
            plain(row.active.to_string()),
            plain(row.fired.to_string()),
            plain(row.skipped.to_string()),
        ]);
    }
    table
}

fn text(view: &ScheduleView, now_ms: u64, output: &Output) -> String {
    let row = view.row.clone().unwrap_or_default();
    let (when, zone) = when(&row);
    let zone = if zone.is_empty() { String::new() } else { format!(" in {zone}") };
    let (word, hue) = state(&row);
    let because = if row.message.is_empty() { String::new() } else { format!(": {}", escape(&row.message)) };
    let next = if row.next_ms == 0 { String::new() } else { format!("{}, ", names::time(row.next_ms)) };
    let mut text = format!(
        "Schedule  {}\nWhen      {}\nState     {}{because}\nNext      {next}{}\nRuns      {} fired, {} skipped, {} not ended\n",
        name(view),
        escape(&format!("{when}{zone}")),
        output.stdout.paint(&word, hue),
        due(&row, now_ms),
        row.fired,
        row.skipped,
        row.active,
    );
    if !view.occurrences.is_empty() {
        let mut table = Table::new(&["OCCURRENCE", "RUN", "LATE", "SKIPPED"]);
        for one in &view.occurrences {
            table.row(record(one));
        }
        text = format!("{text}\n{}", table.text(output.stdout));
    }
    text
}

fn record(one: &OccurrenceView) -> [(String, Hue); 4] {
    let row = one.row.clone().unwrap_or_default();
    let late = Duration::from_millis(row.recorded_at_ms.saturating_sub(row.last_ms));
    let at = names::time(one.nominal_ms);
    if row.run > 0 {
        let late = span(1, 1 + u64::try_from(late.as_millis()).unwrap_or(0), 1);
        return [
            (at, Hue::Plain),
            (row.run.to_string(), Hue::Bold),
            (late, Hue::Plain),
            (String::new(), Hue::Plain),
        ];
    }
    let many = if row.count > 1 {
        format!(" ({} until {})", row.count, names::time(row.last_ms))
    } else {
        String::new()
    };
    let because = if row.detail.is_empty() { String::new() } else { format!(": {}", escape(&row.detail)) };
    let skipped = format!("{}{because}{many}", names::skip_reason(row.skipped()));
    [(at, Hue::Plain), ("-".to_owned(), Hue::Dim), (String::new(), Hue::Plain), (skipped, Hue::Odd)]
}
