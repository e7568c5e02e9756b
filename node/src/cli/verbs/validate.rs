//! `validate FILE`.

use clawhive_node::definition::canonical_json;

use super::definition::{File, tell_warnings};
use crate::cli::args::ValidateArgs;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};

pub(in crate::cli) async fn run(args: &ValidateArgs, output: &Output) -> Result<Exit, Failure> {
    let file = File::read(&args.file)?;
    let checked = file.check(output)?;
    if output.format != Format::Table {
        output.document(&canonical_json(&checked.workflow))?;
        return Ok(Exit::Done);
    }
    tell_warnings(&file, &checked, output);
    let workflow = &checked.workflow;
    let edges: usize = workflow.tasks.iter().map(|task| task.needs.len()).sum();
    let count = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let size = format!("{}, {}", count(workflow.tasks.len(), "task"), count(edges, "edge"));
    output.print(&format!("{}/{}: valid, {size}\n", workflow.namespace, workflow.name))?;
    Ok(Exit::Done)
}
