//! `import wfcommons FILE`: prints the workflow.

use clawhive_node::import::wfcommons::{self, Decimal, MAX_RECORDING_BYTES};
use serde_json::json;

use super::definition::File;
use crate::cli::args::WfcommonsArgs;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};

pub(in crate::cli) async fn run(args: &WfcommonsArgs, output: &Output) -> Result<Exit, Failure> {
    let scale = Decimal::parse(&args.time_scale)
        .map_err(|reason| Failure::usage(format!("--time-scale {}: {reason}", args.time_scale)))?;
    let file = File::read_up_to(&args.file, MAX_RECORDING_BYTES as u64 + 1)?;
    let imported = wfcommons::import(&file.text, scale)
        .map_err(|error| Failure::new(Exit::Usage, "invalid", format!("{}: {error}", file.name)))?;
    match output.format {
        Format::Table | Format::Yaml => output.print(&imported.yaml)?,
        Format::Json => output.document(&json!({
            "workflow": imported.yaml,
            "tasks": imported.tasks,
            "edges": imported.edges,
        }))?,
    }
    if output.stderr.terminal {
        eprintln!("{} tasks, {} edges", imported.tasks, imported.edges);
    }
    Ok(Exit::Done)
}
