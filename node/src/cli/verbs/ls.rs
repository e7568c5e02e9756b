//! `ls`: runs, newest first.

use clawhive_proto::{ListRunsRequest, RunRow, RunState, RunView};
use clawhive_statemachine::names;
use serde_json::json;

use crate::cli::args::{Global, LsArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, age, freshness_json, now_ms, run_json, span};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(args: &LsArgs, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let page = session.client.list_runs(request(args)).await?;
    if output.format == Format::Table {
        output.stale(page.freshness.as_ref())?;
        output.table(&table(&page.runs, now_ms()), "no runs")?;
        if !page.next_cursor.is_empty() {
            eprintln!("{}", output.stderr.dim(&format!("more: --cursor {}", page.next_cursor)));
        }
    } else {
        let runs = page.runs.iter().map(|view| {
            let mut run = run_json(view);
            if let Some(fields) = run.as_object_mut() {
                // Not asked for, so not known: an empty list would say that there are none.
                fields.remove("tasks");
                fields.remove("counts");
                fields.remove("freshness");
            }
            run
        });
        let next = if page.next_cursor.is_empty() { json!(null) } else { json!(page.next_cursor) };
        let runs = runs.collect::<Vec<_>>();
        let freshness = freshness_json(page.freshness.as_ref());
        output.document(&json!({ "runs": runs, "next_cursor": next, "freshness": freshness }))?;
    }
    session.close().await;
    Ok(Exit::Done)
}

fn request(args: &LsArgs) -> ListRunsRequest {
    let workflow = args.workflow.as_deref().unwrap_or_default();
    let (namespace, workflow) = workflow.split_once('/').unwrap_or(("", workflow));
    ListRunsRequest {
        states: args.states.iter().map(|state| RunState::from(*state).into()).collect(),
        namespace: namespace.to_owned(),
        workflow: workflow.to_owned(),
        limit: args.limit,
        cursor: args.cursor.clone().unwrap_or_default(),
        stale: args.stale,
    }
}

fn table(runs: &[RunView], now_ms: u64) -> Table {
    let mut table = Table::new(&["RUN", "WORKFLOW", "STATE", "TASKS", "AGE", "DURATION", "REASON"]);
    for view in runs {
        let row = view.run.clone().unwrap_or_default();
        let plain = |text: String| (text, Hue::Plain);
        table.row([
            (view.id.to_string(), Hue::Bold),
            plain(workflow_name(&row)),
            (names::run_state(row.state()), Hue::of_run(row.state())),
            plain(format!("{}/{}", row.tasks.saturating_sub(row.unfinished), row.tasks)),
            plain(age(row.created_at_ms, now_ms)),
            plain(span(row.started_at_ms, row.ended_at_ms, now_ms)),
            plain(reason(&row)),
        ]);
    }
    table
}

/// With its namespace when that is not the usual one.
pub(super) fn workflow_name(row: &RunRow) -> String {
    match row.namespace.as_str() {
        "default" | "" => row.workflow.clone(),
        namespace => format!("{namespace}/{}", row.workflow),
    }
}

fn reason(row: &RunRow) -> String {
    let failed = if row.failed > 0 { format!("{} failed", row.failed) } else { String::new() };
    match (row.state(), names::reason(row.reason())) {
        (RunState::Succeeded | RunState::Cancelled, _) => String::new(),
        (_, reason) if reason.is_empty() || reason == "task_failed" => failed,
        (_, reason) => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::Reason;
    use expect_test::expect;

    fn view(id: u64, change: impl FnOnce(&mut RunRow)) -> RunView {
        let mut row = RunRow {
            namespace: "default".into(),
            workflow: "wordfreq".into(),
            state: RunState::Succeeded.into(),
            tasks: 14,
            succeeded: 14,
            created_at_ms: 1_000_000,
            started_at_ms: 1_000_100,
            ended_at_ms: 1_002_400,
            ..Default::default()
        };
        change(&mut row);
        RunView { id, run: Some(row), ..Default::default() }
    }

    #[test]
    fn runs_stand_in_columns() {
        let runs = [
            view(12, |row| {
                row.state = RunState::Running.into();
                row.namespace = "data".into();
                (row.unfinished, row.ended_at_ms) = (2, 0);
            }),
            view(11, |row| {
                row.state = RunState::Failed.into();
                row.reason = Reason::TaskFailed.into();
                row.failed = 2;
            }),
            view(10, |row| {
                row.state = RunState::Pending.into();
                (row.unfinished, row.started_at_ms, row.ended_at_ms) = (14, 0, 0);
            }),
            view(9, |_| {}),
        ];
        let text = table(&runs, 1_200_000).text(Output::plain(Format::Table).stdout);
        expect![[r"
            RUN  WORKFLOW       STATE      TASKS  AGE  DURATION  REASON
            12   data/wordfreq  running    12/14  3m   3m19s
            11   wordfreq       failed     14/14  3m   2.3s      2 failed
            10   wordfreq       pending    0/14   3m
            9    wordfreq       succeeded  14/14  3m   2.3s
        "]]
        .assert_eq(&text);
    }

    #[test]
    fn colours_are_round_the_words_only() {
        let mut stream = Output::plain(Format::Table).stdout;
        stream.colour = true;
        let text = table(&[view(1, |_| {})], 1_000_000).text(stream);
        assert!(text.contains("succeeded\u{1b}"), "{text:?}");
        assert!(text.lines().all(|line| !line.ends_with(' ')), "{text:?}");
    }
}
