//! The arguments of `apply` and `schedule`.

use std::path::PathBuf;

use clap::Subcommand;

use super::pair;

/// Store a workflow and start its schedules
///
/// An unchanged file makes no new version. A changed schedule begins now and never fires for the past; `submit` and
/// `run` start no schedule.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clawhive apply flow.yaml\n  clawhive apply flow.yaml -o json")]
pub(in crate::cli) struct ApplyArgs {
    /// The workflow file, YAML or JSON; `-` is standard input
    pub(in crate::cli) file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ScheduleVerb {
    /// List schedules and when they are due
    #[command(
        after_help = "Examples:\n  clawhive schedule ls\n  clawhive schedule ls --namespace data -o json"
    )]
    Ls {
        /// Only of this namespace
        #[arg(long, default_value = "")]
        namespace: String,
    },
    /// Show a schedule and what became of its last occurrences
    #[command(
        after_help = "Examples:\n  clawhive schedule show data/nightly-etl\n  clawhive schedule show tick:often --last 50"
    )]
    Show {
        /// [namespace/]workflow[:schedule]
        name: String,
        /// So many records
        #[arg(long, default_value_t = 10, value_name = "N")]
        last: u32,
    },
    Next(NextArgs),
    /// Make a run of a schedule now; refused while an earlier run has not ended when `overlap` is `skip`
    #[command(
        after_help = "Examples:\n  clawhive schedule trigger data/nightly-etl\n  clawhive schedule trigger tick --force"
    )]
    Trigger {
        /// [namespace/]workflow[:schedule]
        name: String,
        /// Also while an earlier run has not ended
        #[arg(long)]
        force: bool,
        /// Give a parameter its value
        #[arg(short = 'p', long = "param", value_name = "NAME=VALUE", value_parser = pair)]
        params: Vec<(String, String)>,
    },
    /// Stop firing a schedule until it is resumed
    #[command(
        after_help = "Examples:\n  clawhive schedule pause data/nightly-etl --reason 'warehouse moves'"
    )]
    Pause {
        /// [namespace/]workflow[:schedule]
        name: String,
        /// Why, for those who look at it later
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Fire a paused or suspended schedule again; what was due meanwhile is not made up for, unless `missed` says so
    #[command(after_help = "Examples:\n  clawhive schedule resume data/nightly-etl")]
    Resume {
        /// [namespace/]workflow[:schedule]
        name: String,
    },
}

/// Tell the coming occurrences of a schedule, or of an expression (no server is asked)
///
/// Those after --from and not after --until. The notes: `gap`, the wall time is skipped by a change of the clock and this
/// is right after it; `overlap`, the wall time comes twice.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive schedule next data/nightly-etl\n  clawhive schedule next --cron '30 2 * * *' --timezone America/New_York --from 2025-03-08T00:00:00Z --count 3 -o json"
)]
pub(in crate::cli) struct NextArgs {
    /// [namespace/]workflow[:schedule]
    #[arg(required_unless_present = "cron", conflicts_with = "cron")]
    pub(in crate::cli) name: Option<String>,
    /// A cron expression
    #[arg(long, value_name = "EXPR")]
    pub(in crate::cli) cron: Option<String>,
    /// Its time zone, by its IANA name
    #[arg(long, value_name = "ZONE", default_value = "UTC", conflicts_with = "name")]
    pub(in crate::cli) timezone: String,
    /// After this time (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) from: Option<jiff::Timestamp>,
    /// Not after this time
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) until: Option<jiff::Timestamp>,
    /// So many [default: 10; with --until 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(in crate::cli) count: Option<u32>,
}
