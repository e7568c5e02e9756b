//! `completions SHELL`.

use clap::CommandFactory;

use crate::cli::args::{Args, CompletionsArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};

pub(in crate::cli) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "clawhive", &mut script);
    Output::of_process(Format::Table).bytes(&script)?;
    Ok(Exit::Done)
}
