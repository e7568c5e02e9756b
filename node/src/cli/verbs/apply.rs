//! `apply FILE`: stores a workflow and starts its schedules.

use serde_json::json;

use super::definition::{File, tell_warnings};
use crate::cli::args::{ApplyArgs, Global};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(args: &ApplyArgs, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let file = File::read(&args.file)?;
    let checked = file.check(output)?;
    tell_warnings(&file, &checked, output);
    let session = Session::open(global, Local::LOOK).await?;
    let stored = session.client.put_workflow(file.text.clone()).await;
    let stored = stored.map_err(|error| file.explain(Failure::from(error), output))?;
    if output.format == Format::Table {
        let what = if stored.created { "" } else { " (unchanged)" };
        output.print(&format!("{}/{} version {}{what}\n", stored.namespace, stored.name, stored.version))?;
        if session.is_own_node() && !checked.workflow.schedules.is_empty() {
            eprintln!("no server runs here: nothing fires until one does (clawhive dev)");
        }
    } else {
        output.document(&json!({
            "namespace": stored.namespace,
            "workflow": stored.name,
            "version": stored.version,
            "created": stored.created,
        }))?;
    }
    session.close().await;
    Ok(Exit::Done)
}
