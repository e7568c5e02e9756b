//! The arguments of verbs that look at runs: `ls`, `show`, `logs`, `events`.

use clap::ValueEnum;
use clawhive_proto::RunState;

use crate::cli::ids::Run;

/// List runs, newest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive ls\n  clawhive ls --state failed --limit 10\n  clawhive ls --workflow data/nightly-etl -o json"
)]
pub(in crate::cli) struct LsArgs {
    /// Only runs in this state; may be given several times
    #[arg(long = "state", value_enum, value_name = "STATE", value_delimiter = ',')]
    pub(in crate::cli) states: Vec<RunStateArg>,
    /// Only runs of this workflow
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(in crate::cli) workflow: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(in crate::cli) limit: u32,
    /// Go on where an earlier answer ended
    #[arg(long, value_name = "CURSOR")]
    pub(in crate::cli) cursor: Option<String>,
    /// What the node asked has, also without a quorum; it may be behind
    #[arg(long)]
    pub(in crate::cli) stale: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(in crate::cli) enum RunStateArg {
    Pending,
    Running,
    Paused,
    Succeeded,
    Failed,
    Cancelled,
}

impl From<RunStateArg> for RunState {
    fn from(state: RunStateArg) -> Self {
        match state {
            RunStateArg::Pending => Self::Pending,
            RunStateArg::Running => Self::Running,
            RunStateArg::Paused => Self::Paused,
            RunStateArg::Succeeded => Self::Succeeded,
            RunStateArg::Failed => Self::Failed,
            RunStateArg::Cancelled => Self::Cancelled,
        }
    }
}

/// Show a run with its tasks, or one task with its attempts
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive show 42\n  clawhive show 42 --task merge\n  clawhive show 42 --all\n  clawhive show 42 -o json"
)]
pub(in crate::cli) struct ShowArgs {
    /// The run
    pub(in crate::cli) run: Run,
    /// Only this task, with all its attempts
    #[arg(long, value_name = "TASK")]
    pub(in crate::cli) task: Option<String>,
    /// All tasks, however many
    #[arg(long)]
    pub(in crate::cli) all: bool,
    /// What the node asked has, also without a quorum; it may be behind
    #[arg(long)]
    pub(in crate::cli) stale: bool,
}

/// Print what tasks wrote
///
/// Lines of several tasks carry the task's name, lines of standard error a mark. Control characters are shown as text on
/// a terminal; --raw gives the bytes as they are.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive logs 42\n  clawhive logs 42 report -f\n  clawhive logs 42 report --attempt 1 --raw > report.log"
)]
pub(in crate::cli) struct LogsArgs {
    /// The run
    pub(in crate::cli) run: Run,
    /// The task; all tasks without it
    pub(in crate::cli) task: Option<String>,
    /// Of this attempt instead of the newest
    #[arg(long, value_name = "N", requires = "task", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) attempt: Option<u32>,
    /// Stay and print what comes, until the end
    #[arg(short = 'f', long)]
    pub(in crate::cli) follow: bool,
    /// Only the last lines of each attempt
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(in crate::cli) tail: Option<u32>,
    /// The bytes as they are
    #[arg(long)]
    pub(in crate::cli) raw: bool,
}

/// Print what happened to a run, in the order of the log
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive events 42\n  clawhive events 42 -f -o json\n  clawhive events --workflow etl --kind run_failed -f\n  clawhive events --after 1042 --namespace data"
)]
pub(in crate::cli) struct EventsArgs {
    /// The run; everything in the cluster without it
    pub(in crate::cli) run: Option<Run>,
    /// Only what came after this log index; an error when that is no longer kept
    #[arg(long, value_name = "LOG_INDEX", default_value_t = 0)]
    pub(in crate::cli) after: u64,
    /// Only of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub(in crate::cli) namespace: Option<String>,
    /// Only of this workflow
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(in crate::cli) workflow: Option<String>,
    /// Only of this kind (run_failed, task_succeeded, lock_acquired, ...); may be given several times
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub(in crate::cli) kinds: Vec<String>,
    /// Stay and print what comes
    #[arg(short = 'f', long)]
    pub(in crate::cli) follow: bool,
}
