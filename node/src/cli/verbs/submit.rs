//! `submit FILE|NAME`: starts a run and prints its id.

use std::path::Path;

use clawhive_client::Submit;
use serde_json::json;

use super::definition::{File, with_options};
use crate::cli::args::{Global, SubmitArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(
    args: &SubmitArgs,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let file = match names_a_file(&args.what) {
        true => Some(File::read(Path::new(&args.what))?),
        false => None,
    };
    if let Some(file) = &file {
        file.check(output)?;
    }
    let submit = match &file {
        Some(file) => Submit::definition(file.text.clone()),
        None => Submit::workflow(&args.what),
    };
    let session = Session::open(global, Local::LOOK).await?;
    let submitted = session.client.submit(with_options(submit, &args.options)).await.map_err(|error| {
        let failure = Failure::from(error);
        match &file {
            Some(file) => file.explain(failure, output),
            None => failure.hint(format!("is {:?} a file? it was looked up as a stored workflow", args.what)),
        }
    })?;
    if output.format == Format::Table {
        output.print(&format!("{}\n", submitted.run))?;
        if submitted.replayed {
            eprintln!("run {} was there already, by its idempotency key", submitted.run);
        }
        if session.is_own_node() {
            eprintln!("no server runs here: run {} starts when one does (clawhive dev)", submitted.run);
        }
    } else {
        output.document(&json!({
            "run": submitted.run.to_string(),
            "replayed": submitted.replayed,
            "namespace": submitted.namespace,
            "workflow": submitted.workflow,
            "version": submitted.version,
            "log_index": submitted.log_index.to_string(),
        }))?;
    }
    session.close().await;
    Ok(Exit::Done)
}

/// A name of a stored workflow holds no capital letter, and what is there as a file is meant as a file.
fn names_a_file(what: &str) -> bool {
    let ending = [".yaml", ".yml", ".json"].iter().any(|ending| what.ends_with(ending));
    what == "-" || ending || what.starts_with(['.', '/']) || Path::new(what).is_file()
}

#[cfg(test)]
mod tests {
    use super::names_a_file;

    #[test]
    fn files_are_told_from_names() {
        for file in ["flow.yaml", "a/b.json", "./flow", "/etc/flow", "-", "Cargo.toml"] {
            assert!(names_a_file(file), "{file}");
        }
        for name in ["nightly-etl", "data/nightly-etl"] {
            assert!(!names_a_file(name), "{name}");
        }
    }
}
