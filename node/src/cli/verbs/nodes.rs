//! `node ls`.

use clawhive_proto::NodeView;
use serde_json::json;

use crate::cli::args::{Global, NodeLsArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, freshness_json, node_json};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(
    args: &NodeLsArgs,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let answer = session.client.list_nodes(args.stale).await?;
    let (nodes, freshness) = (answer.nodes, answer.freshness.as_ref());
    if output.format == Format::Table {
        output.stale(freshness)?;
        output.table(&table(&nodes), "no nodes")?;
    } else {
        let nodes = nodes.iter().map(node_json).collect::<Vec<_>>();
        output.document(&json!({ "nodes": nodes, "freshness": freshness_json(freshness) }))?;
    }
    session.close().await;
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
            plain(if node.state == "down" { "-".to_owned() } else { node.applied_index.to_string() }),
            plain(if labels.is_empty() { "-".to_owned() } else { labels.join(",") }),
            plain(row.version),
        ]);
    }
    table
}
