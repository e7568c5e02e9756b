//! The raw arguments, as clap reads them, with their help. What they mean is for each verb to check.

mod locks;
mod members;
mod reading;
mod schedule;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clawhive_node::definition::parse_duration;

use super::ids::Run;
use super::output::Format;
pub(super) use locks::{KvConditions, KvDeleteArgs, KvGetArgs, KvLsArgs, KvPutArgs, KvVerb, LockArgs};
pub(super) use members::{ClusterVerb, JoinArgs, NodeArgs, NodeLsArgs, NodeVerb, TransferLeaderArgs};
pub(super) use reading::{EventsArgs, LogsArgs, LsArgs, ShowArgs};
pub(super) use schedule::{ApplyArgs, NextArgs, ScheduleVerb};

/// Runs workflow graphs: alone, or as peers that survive the loss of any one.
#[derive(Debug, Parser)]
#[command(name = "clawhive", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  clawhive run flow.yaml                 run a workflow here, with its data in .clawhive/
  clawhive ls                            see it again
  clawhive dev --nodes 3                 three peers on this machine
  clawhive --server 10.0.0.1:7400 ls     ask a cluster

Exit codes:
  0 done, or the run succeeded    1 the run failed               2 usage, or a refused definition
  3 cancelled                     4 timed out                    5 not found
  6 conflict                      7 no server, or no quorum      8 not allowed
  9 anything unexpected";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Global {
    /// How to answer; json and yaml are one document on standard output, also on failure
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        default_value_t,
        value_name = "table|json|yaml",
        hide_possible_values = true,
        hide_default_value = true,
        hide_env_values = true,
        help_heading = "For all commands",
        env = "CLAWHIVE_OUTPUT_FORMAT"
    )]
    pub(super) output: Format,
    /// Peers of the cluster to ask; without it the node of ./.clawhive/
    #[arg(
        long,
        global = true,
        value_name = "ADDR[,ADDR]",
        env = "CLAWHIVE_SERVER",
        hide_env_values = true,
        help_heading = "For all commands"
    )]
    pub(super) server: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Run(RunArgs),
    Dev(DevArgs),
    Server(ServerArgs),
    Validate(ValidateArgs),
    Apply(ApplyArgs),
    Submit(SubmitArgs),
    Wait(WaitArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Logs(LogsArgs),
    Events(EventsArgs),
    Cancel(CancelArgs),
    /// Look at schedules, pause, resume, trigger them
    Schedule {
        #[command(subcommand)]
        verb: ScheduleVerb,
    },
    Lock(LockArgs),
    /// Keep small values under keys
    Kv {
        #[command(subcommand)]
        verb: KvVerb,
    },
    /// Look at the nodes of a cluster, and change which there are
    Node {
        #[command(subcommand)]
        verb: NodeVerb,
    },
    /// Look at a cluster as a whole
    Cluster {
        #[command(subcommand)]
        verb: ClusterVerb,
    },
    /// Save, look into and restore backups
    Snapshot {
        #[command(subcommand)]
        verb: SnapshotVerb,
    },
    /// Make workflow files of other tools' files
    Import {
        #[command(subcommand)]
        verb: ImportVerb,
    },
    /// Measure what the performance goals name, as ratios within one run
    Bench(super::bench::Args),
    Completions(CompletionsArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum SnapshotVerb {
    Save(SnapshotSaveArgs),
    Inspect(SnapshotInspectArgs),
    Restore(SnapshotRestoreArgs),
}

/// Save the whole state of a cluster to a file, while it works on
///
/// The file has everything that was acknowledged before, is checked when it has come, and gets its name only then.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive --server 10.0.0.1:7400 snapshot save backup.snap\n  clawhive snapshot save backup.snap --force -o json"
)]
pub(super) struct SnapshotSaveArgs {
    /// Where to
    pub(super) file: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    pub(super) force: bool,
}

/// Check a snapshot file and say what is in it; no server is needed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive snapshot inspect backup.snap\n  clawhive snapshot inspect backup.snap -o json"
)]
pub(super) struct SnapshotInspectArgs {
    /// The file
    pub(super) file: PathBuf,
}

/// Make a new cluster of a snapshot file, in an empty directory; no server is needed
///
/// The new cluster has an id of its own and one node, so it cannot mix with what is left of the old one. Workflows, runs,
/// keys, request ids and idempotency keys are as they were; what ran is lost and runs again as its delivery says;
/// schedules are paused. No task starts before `clawhive cluster resume`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive snapshot restore backup.snap --data /var/lib/clawhive\n  clawhive server --data /var/lib/clawhive\n  clawhive cluster resume"
)]
pub(super) struct SnapshotRestoreArgs {
    /// The file
    pub(super) file: PathBuf,
    /// The data directory of the first node: empty, or not there yet
    #[arg(long, value_name = "DIR")]
    pub(super) data: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(super) enum ImportVerb {
    Wfcommons(WfcommonsArgs),
}

/// Run a workflow file and follow it to its end
///
/// Uses the cluster given by --server, else a node of its own with its data in ./.clawhive/. Progress goes to standard
/// error; standard output gets what the last tasks of the graph printed. Ctrl-C cancels the run, twice leaves it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive run flow.yaml\n  clawhive run flow.yaml -p date=2026-03-01 -p limit=10\n  clawhive run flow.yaml --ephemeral > report.txt\n  clawhive --server 10.0.0.1:7400 run flow.yaml --detach"
)]
pub(super) struct RunArgs {
    /// The workflow file, YAML or JSON; `-` is standard input
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) submit: SubmitOptions,
    /// Print the run id and leave the run to the server
    #[arg(long)]
    pub(super) detach: bool,
    /// Keep nothing: the node's data lives in a temporary directory
    #[arg(long, conflicts_with_all = ["detach"])]
    pub(super) ephemeral: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct SubmitOptions {
    /// Give a parameter its value
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) params: Vec<(String, String)>,
    /// One run per key: a repeat answers with the first run
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) idempotency_key: Option<String>,
    /// Mark the run
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) labels: Vec<(String, String)>,
}

/// Run nodes on this machine, for development
///
/// One node in this process, or several as processes of their own. Prints a line per node and `ready` when a leader
/// serves; the verbs used in this directory find it by themselves. Stops with Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive dev\n  clawhive dev --nodes 3\n  clawhive dev --nodes 3 --ephemeral --port 8400"
)]
pub(super) struct DevArgs {
    /// How many nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub(super) nodes: u16,
    /// Where the data of all nodes is
    #[arg(long, value_name = "DIR", default_value = super::claim::DIRECTORY, conflicts_with = "ephemeral")]
    pub(super) data: PathBuf,
    /// Keep nothing
    #[arg(long)]
    pub(super) ephemeral: bool,
    /// For clients of the first node; each further node 10 higher, ports for peers 1 higher
    #[arg(long, default_value_t = 7400, value_parser = clap::value_parser!(u16).range(1..=65000))]
    pub(super) port: u16,
}

/// Run one node of a cluster
///
/// Settings come from flags, then CLAWHIVE_* variables, then the file. With neither --bootstrap nor --join it goes on
/// with what is in the data directory. Prints `ready listen=ADDR node=ID` when it serves; SIGTERM ends it well.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive server --data /var/lib/clawhive --bootstrap\n  clawhive server --data n2 --listen 10.0.0.2:7400 --peer-listen 10.0.0.2:7401 --join 10.0.0.1:7401\n  clawhive server --config /etc/clawhive.toml"
)]
pub(super) struct ServerArgs {
    /// The data directory
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Address for clients [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDR")]
    pub(super) listen: Option<std::net::SocketAddr>,
    /// Address for peers [default: 127.0.0.1:7401]
    #[arg(long, value_name = "ADDR")]
    pub(super) peer_listen: Option<std::net::SocketAddr>,
    /// Make a new cluster of one; refused when the data directory is not empty
    #[arg(long, conflicts_with = "join")]
    pub(super) bootstrap: bool,
    /// Ask one of these peers (their addresses for peers) to add this node
    #[arg(long, value_name = "ADDR[,ADDR]", value_delimiter = ',')]
    pub(super) join: Vec<String>,
    /// What the node is to the cluster
    #[arg(long, value_enum)]
    pub(super) role: Option<RoleArg>,
    /// A TOML file with settings
    #[arg(long, value_name = "FILE", env = "CLAWHIVE_CONFIG")]
    pub(super) config: Option<PathBuf>,
    /// A label of this node
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = pair)]
    pub(super) labels: Vec<(String, String)>,
    /// Tasks that may run here at once
    #[arg(long)]
    pub(super) slots: Option<u32>,
    /// How log lines on standard error are written
    #[arg(long, value_enum)]
    pub(super) log_format: Option<LogFormatArg>,
    /// Only check the settings: exit 0 when a node would start with them, 2 with every fault otherwise
    #[arg(long)]
    pub(super) check: bool,
    /// Only print the settings in effect and where each comes from; the table can be used as a settings file
    #[arg(long)]
    pub(super) print_settings: bool,
    /// End when standard input is closed: the parent is gone
    #[arg(long, hide = true)]
    pub(super) exit_with_parent: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum RoleArg {
    Voter,
    Claw,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum LogFormatArg {
    Text,
    Json,
}

/// Check a workflow file; nothing is stored and no server is needed
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive validate flow.yaml\n  clawhive validate flow.yaml -o json    the canonical form, defaults filled in"
)]
pub(super) struct ValidateArgs {
    /// The workflow file, YAML or JSON; `-` is standard input
    pub(super) file: PathBuf,
}

/// Start a run and print its id
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive submit flow.yaml\n  clawhive submit data/nightly-etl -p date=2026-03-01\n  clawhive wait $(clawhive submit flow.yaml)"
)]
pub(super) struct SubmitArgs {
    /// A workflow file, or the [NAMESPACE/]NAME of a stored workflow
    #[arg(value_name = "FILE|NAME")]
    pub(super) what: String,
    #[command(flatten)]
    pub(super) options: SubmitOptions,
}

/// Wait until a run has ended; the exit code tells how
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clawhive wait 42\n  clawhive wait 42 --wait-timeout 10m")]
pub(super) struct WaitArgs {
    /// The run
    pub(super) run: Run,
    /// Wait no longer than this (exit code 4); the run goes on
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) wait_timeout: Option<Duration>,
}

/// Cancel a run: waiting tasks never start, running ones are stopped
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  clawhive cancel 42\n  clawhive cancel 42 --reason 'wrong date'")]
pub(super) struct CancelArgs {
    /// The run
    pub(super) run: Run,
    /// Why, for those who look at it later
    #[arg(long, default_value = "")]
    pub(super) reason: String,
}

/// Make a workflow of a recorded execution (WfFormat 1.5) whose tasks sleep the recorded time
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive import wfcommons recording.json > flow.yaml\n  clawhive import wfcommons recording.json --time-scale 0.01 | clawhive run -"
)]
pub(super) struct WfcommonsArgs {
    /// The recording
    pub(super) file: PathBuf,
    /// Multiply the recorded times by this
    #[arg(long, value_name = "X", default_value = "1")]
    pub(super) time_scale: String,
}

/// Print the completions for a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive completions bash > ~/.local/share/bash-completion/completions/clawhive\n  source <(clawhive completions zsh)"
)]
pub(super) struct CompletionsArgs {
    /// The shell
    pub(super) shell: clap_complete::Shell,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map(Duration::from_millis).map_err(|error| error.to_string())
}
