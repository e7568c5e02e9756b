//! Arguments of the verbs about nodes and the cluster.

use std::time::Duration;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum NodeVerb {
    Ls(NodeLsArgs),
    /// Give a node a vote, or say how a new machine joins
    ///
    /// With the id of a node: it gets a vote once it has caught up. Without: prints the command that starts a new node on
    /// its machine; the machine asks to be let in itself.
    #[command(
        after_help = "Examples:\n  clawhive node join\n  clawhive node join 4\n  clawhive node join 4 --wait 5m"
    )]
    Join(JoinArgs),
    /// Give a node nothing new to run; what it runs goes on to its end
    #[command(after_help = "Examples:\n  clawhive node drain 3\n  clawhive node drain 3 --wait 1h")]
    Drain(NodeArgs),
    /// Give a drained node work again
    #[command(after_help = "Examples:\n  clawhive node activate 3")]
    Activate(NodeArgs),
    /// Take a node's vote; it keeps a replica and runs tasks
    #[command(after_help = "Examples:\n  clawhive node demote 4")]
    Demote(NodeArgs),
    /// Take a node out of the cluster for good, dead or alive
    ///
    /// Its id is never used again and its data directory may not come back: the machine joins again as a new node, with an
    /// empty directory. Refused when too few of the voters that are left are reachable.
    #[command(
        after_help = "Examples:\n  clawhive node drain 5 --wait 1h && clawhive node remove 5\n  clawhive node remove 5"
    )]
    Remove(NodeArgs),
}

/// List the nodes of the cluster; without a quorum, as the node asked knows them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  clawhive node ls\n  clawhive node ls -o json\n  clawhive node ls --stale"
)]
pub(in crate::cli) struct NodeLsArgs {
    /// What the node asked has, without asking others; it may be behind
    #[arg(long)]
    pub(in crate::cli) stale: bool,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ClusterVerb {
    /// Show leader, quorum and nodes; works without a quorum
    #[command(
        after_help = "Examples:\n  clawhive cluster status\n  clawhive --server 10.0.0.2:7400 cluster status -o json"
    )]
    Status,
    /// Say in one word how the cluster is, and what to do; works without a quorum
    ///
    /// ok: nothing to do. degraded: something is missing, and more may be lost. at_risk: one more voter lost stops the
    /// cluster. no_quorum: nothing is decided (exit code 7).
    #[command(after_help = "Examples:\n  clawhive cluster health\n  clawhive cluster health -o json")]
    Health,
    /// Let another voter lead: the one named, or whoever is furthest along
    #[command(
        after_help = "Examples:\n  clawhive cluster transfer-leader\n  clawhive cluster transfer-leader 2"
    )]
    TransferLeader(TransferLeaderArgs),
    /// Compare the states of all nodes after one log entry; exit code 1 when one differs or does not answer
    #[command(after_help = "Examples:\n  clawhive cluster digest\n  clawhive cluster digest -o json")]
    Digest,
    /// Let a cluster that was restored from a snapshot start tasks and fire timers
    #[command(after_help = "Examples:\n  clawhive --server 10.0.0.1:7400 cluster resume")]
    Resume,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct JoinArgs {
    /// A node without a vote, as `clawhive node ls` shows it
    #[arg(value_parser = node)]
    pub(in crate::cli) node: Option<u64>,
    /// Wait until it votes, no longer than this (exit code 4)
    #[arg(long, value_name = "DURATION", value_parser = super::duration, requires = "node")]
    pub(in crate::cli) wait: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct NodeArgs {
    /// The node, as `clawhive node ls` shows it
    #[arg(value_parser = node)]
    pub(in crate::cli) node: u64,
    /// Wait until nothing is left to be done, no longer than this (exit code 4)
    #[arg(long, value_name = "DURATION", value_parser = super::duration)]
    pub(in crate::cli) wait: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TransferLeaderArgs {
    /// The node that is to lead
    #[arg(value_parser = node)]
    pub(in crate::cli) node: Option<u64>,
}

fn node(text: &str) -> Result<u64, &'static str> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected the number of a node, as `clawhive node ls` shows it"),
        Ok(id) => Ok(id),
    }
}
