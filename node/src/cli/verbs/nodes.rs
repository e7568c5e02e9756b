//! `node ls|join|drain|activate|demote|remove`.

use std::time::Duration;

use clawhive_client::{Client, Error};
use clawhive_proto::{NodeChanged, NodeRole, NodeState, NodeView};
use serde_json::json;

use crate::cli::args::{Global, JoinArgs, NodeArgs, NodeLsArgs, NodeVerb};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, duration, nodes_json, stale_text};
use crate::cli::session::{Local, Session};

/// How often it is looked whether a change is done.
const LOOK: Duration = Duration::from_millis(200);

/// Up to so many entries a node is as good as up to date: it lacks what is just being written.
const FRESH: u64 = 1_000;

pub(in crate::cli) async fn run(verb: &NodeVerb, global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let client = &session.client;
    let done = match verb {
        NodeVerb::Ls(args) => ls(args, client, output).await,
        NodeVerb::Join(JoinArgs { node: None, .. }) => how_to_join(client, output).await,
        NodeVerb::Join(JoinArgs { node: Some(node), wait }) => {
            change(client, Change::Join, *node, *wait, output).await
        }
        NodeVerb::Drain(args) => of(client, Change::Drain, args, output).await,
        NodeVerb::Activate(args) => of(client, Change::Activate, args, output).await,
        NodeVerb::Demote(args) => of(client, Change::Demote, args, output).await,
        NodeVerb::Remove(args) => of(client, Change::Remove, args, output).await,
    };
    session.close().await;
    done
}

async fn ls(args: &NodeLsArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let list = client.list_nodes(args.stale).await?;
    if output.format == Format::Table {
        match list.freshness.as_ref().filter(|freshness| freshness.stale) {
            // Not asked for: said beside the table, so that scripts find the table as ever.
            Some(freshness) if !args.stale => eprintln!("no quorum: {}", stale_text(freshness)),
            _ => output.stale(list.freshness.as_ref())?,
        }
        output.table(&table(&list.nodes), "no nodes")?;
    } else {
        output.document(&nodes_json(&list))?;
    }
    Ok(Exit::Done)
}

/// A line per node; the leader has a star.
pub(super) fn table(nodes: &[NodeView]) -> Table {
    let heading = ["NODE", "LISTEN", "PEERS", "ROLE", "STATE", "RUNNING", "APPLIED", "LABELS", "VERSION"];
    let mut table = Table::new(&heading);
    for node in nodes {
        let row = node.row.clone().unwrap_or_default();
        let plain = |text: String| (text, Hue::Plain);
        let hue = match node.state.as_str() {
            "active" => Hue::Good,
            "down" => Hue::Bad,
            _ => Hue::Odd,
        };
        let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row([
            (format!("{}{}", node.id, if node.leader { "*" } else { "" }), Hue::Bold),
            plain(row.listen),
            plain(row.peer_listen),
            plain(node.role.clone()),
            (node.state.clone(), hue),
            plain(format!("{}/{}", node.running, node.slots)),
            plain(applied(node)),
            plain(if labels.is_empty() { "-".to_owned() } else { labels.join(",") }),
            plain(row.version),
        ]);
    }
    table
}

fn applied(node: &NodeView) -> String {
    match (node.state.as_str(), node.lag) {
        ("down", _) => "-".to_owned(),
        (_, lag) if lag > FRESH || node.role == "learner" => format!("{} (lacks {lag})", node.applied_index),
        _ => node.applied_index.to_string(),
    }
}

/// The command for a new machine; it asks for admission itself.
async fn how_to_join(client: &Client, output: &Output) -> Result<Exit, Failure> {
    let nodes = client.nodes().await?;
    let up = nodes.iter().filter(|node| node.state != "down" && node.role != "learner");
    let peers: Vec<String> =
        up.filter_map(|node| node.row.as_ref()).map(|row| row.peer_listen.clone()).collect();
    let join = peers.join(",");
    let command =
        format!("clawhive server --data DIR --listen HOST:7400 --peer-listen HOST:7401 --join {join}");
    if output.format == Format::Table {
        output.print(&format!(
            "On the new machine, with an empty DIR and its own address as HOST:\n\n  {command}\n\nIt catches up without a \
             vote, and gets one when it is close; `clawhive node ls` shows how far\nit is. With --role claw it gets no \
             vote and only runs tasks.\n"
        ))?;
    } else {
        output.document(&json!({ "command": command, "peers": peers }))?;
    }
    Ok(Exit::Done)
}

/// What can be done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Join,
    Drain,
    Activate,
    Demote,
    Remove,
}

async fn of(client: &Client, change: Change, args: &NodeArgs, output: &Output) -> Result<Exit, Failure> {
    self::change(client, change, args.node, args.wait, output).await
}

async fn change(
    client: &Client,
    change: Change,
    node: u64,
    wait: Option<Duration>,
    output: &Output,
) -> Result<Exit, Failure> {
    let answer = match change {
        Change::Join => client.set_node_role(node, NodeRole::Voter).await,
        Change::Demote => client.set_node_role(node, NodeRole::Claw).await,
        Change::Drain => client.set_node_state(node, NodeState::Draining).await,
        Change::Activate => client.set_node_state(node, NodeState::Active).await,
        Change::Remove => client.remove_node(node).await,
    };
    let mut changed = answer.map_err(told)?;
    let mut timed_out = false;
    if let (Some(wait), false) = (wait, changed.settled) {
        timed_out = tokio::time::timeout(wait, settled(client, change, node, &mut changed)).await.is_err();
    }
    if output.format == Format::Table {
        output.print(&format!("{}\n", text(change, node, &changed)))?;
    } else {
        output.document(&json!({
            "node": node.to_string(),
            "settled": changed.settled,
            "waits_for": if changed.settled { serde_json::Value::Null } else { json!(changed.waits_for) },
            "running": changed.running,
            "log_index": changed.log_index.to_string(),
        }))?;
    }
    match (timed_out, wait) {
        (true, Some(wait)) => {
            let wait = duration(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            if output.format == Format::Table {
                eprintln!("not done within {wait}; it goes on");
            }
            Ok(Exit::TimedOut)
        }
        _ => Ok(Exit::Done),
    }
}

/// Looks until nothing is left to be done, and keeps in `changed` what it waits for.
async fn settled(client: &Client, change: Change, node: u64, changed: &mut NodeChanged) {
    loop {
        tokio::time::sleep(LOOK).await;
        // A cluster that does not answer is asked again.
        let Ok(nodes) = client.nodes().await else { continue };
        let shown = nodes.into_iter().find(|shown| shown.id == node);
        changed.settled = match (change, &shown) {
            (Change::Remove, shown) => shown.is_none(),
            (_, None) => continue,
            (Change::Join, Some(shown)) => shown.role == "voter",
            (Change::Demote, Some(shown)) => shown.role != "voter",
            (Change::Drain, Some(shown)) => shown.running == 0,
            (Change::Activate, Some(_)) => true,
        };
        if let Some(shown) = shown {
            changed.running = shown.running;
            changed.waits_for = shown.note;
        }
        if changed.settled {
            return;
        }
    }
}

fn text(change: Change, node: u64, changed: &NodeChanged) -> String {
    let waits = &changed.waits_for;
    match (change, changed.settled) {
        (Change::Join, true) => format!("node {node} votes"),
        (Change::Join, false) => format!("node {node} is to vote: {waits}"),
        (Change::Demote, true) => {
            format!("node {node} has no vote any more; it keeps a replica and runs tasks")
        }
        (Change::Demote, false) => format!("node {node} is to lose its vote: {waits}"),
        (Change::Drain, true) => format!("node {node} is drained: nothing runs on it"),
        (Change::Drain, false) => format!("node {node} is draining: {waits}"),
        (Change::Activate, _) => format!("node {node} takes work again"),
        (Change::Remove, settled) => {
            let mut text = match settled {
                true => format!("node {node} is removed"),
                false => format!("node {node} is being removed: {waits}"),
            };
            if changed.running > 0 {
                let runs = changed.running;
                text.push_str(&format!("; its {runs} attempts run elsewhere once its lease has ended"));
            }
            text
        }
    }
}

/// A refusal, with where to look.
fn told(error: Error) -> Failure {
    let hint = match &error {
        Error::NotFound { .. } => Some("`clawhive node ls` lists the nodes that there are"),
        Error::Conflict { .. } => Some("`clawhive cluster health` shows which nodes are missing"),
        _ => None,
    };
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_and_what_is_left_too() {
        let settled = NodeChanged { settled: true, ..NodeChanged::default() };
        let waits = NodeChanged { waits_for: "2 attempts still run on it".into(), ..NodeChanged::default() };
        assert_eq!(text(Change::Drain, 3, &settled), "node 3 is drained: nothing runs on it");
        assert_eq!(text(Change::Drain, 3, &waits), "node 3 is draining: 2 attempts still run on it");
        let runs = NodeChanged { running: 2, ..settled };
        assert_eq!(
            text(Change::Remove, 3, &runs),
            "node 3 is removed; its 2 attempts run elsewhere once its lease has ended"
        );
    }

    #[test]
    fn a_refusal_says_where_to_look() {
        let message = "removing node 3 would lose the quorum: 2 of 4 voters reachable, 3 needed".to_owned();
        let failure = told(Error::Conflict { message });
        assert!(format!("{failure:?}").contains("cluster health"), "{failure:?}");
    }
}
