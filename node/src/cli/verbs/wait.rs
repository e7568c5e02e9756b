//! `wait RUN`: until it has ended.

use clawhive_statemachine::names;
use serde_json::json;

use crate::cli::args::{Global, WaitArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, duration, run_json, span};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(args: &WaitArgs, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::WORK).await?;
    let waiting = session.client.wait(args.run.0);
    let view = match args.wait_timeout {
        None => waiting.await?,
        Some(limit) => match tokio::time::timeout(limit, waiting).await {
            Ok(view) => view?,
            Err(_) => {
                session.close().await;
                let limit = duration(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
                let message = format!("run {} has not ended within {limit}; it goes on", args.run);
                let failure = Failure::new(Exit::TimedOut, "timeout", message);
                return Err(failure.with("run", json!(args.run.to_string())));
            }
        },
    };
    let row = view.run.clone().unwrap_or_default();
    if output.format == Format::Table {
        let state = output.stdout.paint(&names::run_state(row.state()), Hue::of_run(row.state()));
        let took = span(row.created_at_ms, row.ended_at_ms, row.ended_at_ms);
        output.print(&format!("run {} {state} after {took}\n", view.id))?;
    } else {
        output.document(&run_json(&view))?;
    }
    session.close().await;
    Ok(Exit::of_run(&row))
}
