//! `events RUN`: what happened, in the order of the log.

use clawhive_proto::{EventView, ListEventsRequest};
use futures::StreamExt;

use crate::cli::args::{EventsArgs, Global};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, escape, event_json, rfc3339};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(
    args: &EventsArgs,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let local = if args.follow { Local::WORK } else { Local::LOOK };
    let session = Session::open(global, local).await?;
    let workflow = args.workflow.as_deref().unwrap_or_default();
    let (of, workflow) = workflow.split_once('/').unwrap_or(("", workflow));
    let namespace = args.namespace.as_deref().unwrap_or(of);
    if !of.is_empty() && of != namespace {
        let text = format!("--workflow {of}/{workflow} is not in --namespace {namespace}");
        return Err(Failure::usage(text));
    }
    let request = ListEventsRequest {
        run: args.run.map_or(0, |run| run.0),
        after_log_index: args.after,
        follow: args.follow,
        namespace: namespace.to_owned(),
        workflow: workflow.to_owned(),
        kinds: args.kinds.clone(),
        progress: false,
    };
    let mut events = session.client.events(request);
    if args.follow {
        while let Some(event) = events.next().await {
            let event = event?;
            match output.format {
                Format::Table => output.print(&line(&event, args.run.is_none()))?,
                _ => output.item(&event_json(&event))?,
            }
        }
    } else {
        let mut all = Vec::new();
        while let Some(event) = events.next().await {
            all.push(event?);
        }
        match output.format {
            Format::Table => output.table(&table(&all, args.run.is_none()), "no events")?,
            _ => output.document(&all.iter().map(event_json).collect())?,
        }
    }
    drop(events);
    session.close().await;
    Ok(Exit::Done)
}

fn table(events: &[EventView], of_all: bool) -> Table {
    let mut heading = vec!["INDEX", "TIME", "EVENT", "RUN", "TASK", "ATTEMPT", "CLAW", "REASON", "DETAIL"];
    if !of_all {
        heading.retain(|name| *name != "RUN");
    }
    let mut table = Table::new(&heading);
    for event in events {
        let mut cells = cells(event);
        if !of_all {
            cells.remove(3);
        }
        table.row(cells);
    }
    table
}

fn cells(event: &EventView) -> Vec<(String, Hue)> {
    let number = |of: u64| if of == 0 { String::new() } else { of.to_string() };
    let hue = match event.kind.rsplit('_').next() {
        Some("succeeded") => Hue::Good,
        Some("failed" | "expired") => Hue::Bad,
        Some("running" | "started") => Hue::Busy,
        Some("retrying" | "cancelled" | "stopping") => Hue::Odd,
        _ => Hue::Plain,
    };
    vec![
        (event.log_index.to_string(), Hue::Dim),
        (rfc3339(event.time_ms).as_str().unwrap_or_default().to_owned(), Hue::Dim),
        (event.kind.clone(), hue),
        (number(event.run), Hue::Plain),
        (event.task.clone(), Hue::Plain),
        (number(event.attempt.into()), Hue::Plain),
        (number(event.claw), Hue::Plain),
        (event.reason.clone(), Hue::Plain),
        (escape(&event.detail), Hue::Plain),
    ]
}

/// One event of a stream, whose widths are not known before.
fn line(event: &EventView, of_all: bool) -> String {
    let mut line = String::new();
    let widths = [6, 24, 20, 4, 0, 0, 0, 0, 0];
    for (place, ((text, _), width)) in cells(event).into_iter().zip(widths).enumerate() {
        if (place == 3 && !of_all) || (text.is_empty() && width == 0) {
            continue;
        }
        let text = match place {
            5 => format!("attempt {text}"),
            6 => format!("claw {text}"),
            _ => text,
        };
        line.push_str(&format!("{text:<width$}  "));
    }
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn events_stand_in_columns_and_flow_in_lines() {
        let event = EventView {
            log_index: 12,
            time_ms: 1_772_323_200_007,
            kind: "task_failed".into(),
            run: 3,
            task: "merge".into(),
            attempt: 2,
            claw: 1,
            reason: "exit".into(),
            ..Default::default()
        };
        let submitted = EventView {
            kind: "run_submitted".into(),
            log_index: 9,
            time_ms: 1,
            run: 3,
            ..Default::default()
        };
        let text = table(&[submitted, event.clone()], false).text(Output::plain(Format::Table).stdout);
        expect![[r"
            INDEX  TIME                      EVENT          TASK   ATTEMPT  CLAW  REASON  DETAIL
            9      1970-01-01T00:00:00.001Z  run_submitted
            12     2026-03-01T00:00:00.007Z  task_failed    merge  2        1     exit
        "]]
        .assert_eq(&text);
        expect!["12      2026-03-01T00:00:00.007Z  task_failed           merge  attempt 2  claw 1  exit\n"]
            .assert_eq(&line(&event, false));
    }
}
