//! `cancel RUN`.

use clawhive_statemachine::names;
use serde_json::json;

use crate::cli::args::{CancelArgs, Global};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(
    args: &CancelArgs,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let answer = session.client.cancel(args.run.0, &args.reason).await?;
    let state = names::run_state(answer.state());
    if output.format != Format::Table {
        output.document(&json!({
            "run": args.run.to_string(),
            "state": state,
            "already_ended": answer.already_ended,
        }))?;
    } else if answer.already_ended {
        output.print(&format!("run {} had already ended: {state}\n", args.run))?;
    } else if clawhive_client::has_ended(answer.state()) {
        output.print(&format!("run {} {state}\n", args.run))?;
    } else {
        output.print(&format!("run {} is being cancelled\n", args.run))?;
    }
    session.close().await;
    Ok(Exit::Done)
}
