//! `bench`: figures of a cluster, beside a bound or a peer in the same run.

use crate::cli::args::Global;
use crate::cli::bench::{self, Args};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output};

/// Measures against `--server`, or a throwaway cluster.
pub(in crate::cli) async fn run(verb: &Args, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let servers =
        global.server.iter().flat_map(|list| list.split(',')).map(|address| address.trim().to_owned());
    let as_json = output.format != Format::Table;
    match bench::run(verb.clone(), servers.collect(), as_json).await {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(Failure::unexpected(format!("{error:#}"))),
    }
}
