//! `cluster status|health|transfer-leader`: what the node asked knows works without a quorum.

use clawhive_proto::{ClusterStatusResponse, NodeView};
use serde_json::json;

use super::{digest, nodes};
use crate::cli::args::{ClusterVerb, Global, TransferLeaderArgs};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table, cluster_json, health_json};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(
    verb: &ClusterVerb,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let done = match verb {
        ClusterVerb::Status => status(&session, output).await,
        ClusterVerb::Health => health(&session, output).await,
        ClusterVerb::TransferLeader(args) => transfer_leader(args, &session, output).await,
        ClusterVerb::Digest => digest::run(&session, output).await,
        ClusterVerb::Resume => resume(&session, output).await,
    };
    session.close().await;
    done
}

async fn status(session: &Session, output: &Output) -> Result<Exit, Failure> {
    let status = session.client.cluster_status().await?;
    if output.format == Format::Table {
        output.print(&text(&status, output))?;
    } else {
        output.document(&cluster_json(&status))?;
    }
    Ok(Exit::Done)
}

/// `cluster resume`: a restored cluster may start tasks.
async fn resume(session: &Session, output: &Output) -> Result<Exit, Failure> {
    let resumed = session.client.resume_cluster().await?;
    match output.format {
        Format::Table => output.print(match resumed {
            true => "resumed: tasks start and timers fire again\n",
            false => "nothing to resume: this cluster is not suspended\n",
        })?,
        _ => output.document(&serde_json::json!({ "resumed": resumed }))?,
    }
    Ok(Exit::Done)
}

async fn health(session: &Session, output: &Output) -> Result<Exit, Failure> {
    let status = session.client.cluster_status().await?;
    if output.format == Format::Table {
        output.print(&health_text(&status, output))?;
    } else {
        output.document(&health_json(&status))?;
    }
    Ok(if status.quorum { Exit::Done } else { Exit::NoServer })
}

async fn transfer_leader(
    args: &TransferLeaderArgs,
    session: &Session,
    output: &Output,
) -> Result<Exit, Failure> {
    let moved = session.client.transfer_leader(args.node).await?;
    let (from, to) = (moved.from, moved.to);
    if output.format != Format::Table {
        output.document(&json!({ "from": from.to_string(), "to": to.to_string() }))?;
    } else if from == to {
        output.print(&format!("node {to} leads already\n"))?;
    } else {
        output.print(&format!("node {to} leads now, instead of node {from}\n"))?;
    }
    Ok(Exit::Done)
}

fn health_text(status: &ClusterStatusResponse, output: &Output) -> String {
    let stream = output.stdout;
    let hue = |word: &str| match word {
        "ok" => Hue::Good,
        "no_quorum" | "down" | "at_risk" => Hue::Bad,
        _ => Hue::Odd,
    };
    let mut text = format!(
        "Health     {}\nQuorum     {}, {} of {} voters reachable, {} more may be lost\n\n",
        stream.paint(&status.health, hue(&status.health)),
        if status.quorum { "yes" } else { "no" },
        status.reachable,
        status.voters,
        status.tolerates,
    );
    let mut table = Table::new(&["NODE", "ROLE", "HEALTH", "LACKS", "NOTE"]);
    for node in &status.nodes {
        let note = if node.note.is_empty() { "-".to_owned() } else { node.note.clone() };
        table.row([
            (format!("{}{}", node.id, if node.leader { "*" } else { "" }), Hue::Bold),
            (node.role.clone(), Hue::Plain),
            (node.health.clone(), hue(&node.health)),
            (node.lag.to_string(), Hue::Plain),
            (note, Hue::Plain),
        ]);
    }
    text.push_str(&table.text(stream));
    for found in &status.findings {
        text.push_str(&format!("\n{}: {}\n  {}\n", found.code, found.message, found.help));
    }
    text
}

fn text(status: &ClusterStatusResponse, output: &Output) -> String {
    let stream = output.stdout;
    let leader = match status.leader {
        0 => stream.paint("none", Hue::Bad),
        node if status.scheduler => format!("node {node} (term {})", status.term),
        node => {
            let dead = stream.paint("its scheduler is not alive", Hue::Bad);
            format!("node {node} (term {}), {dead}", status.term)
        }
    };
    let reachable = format!("{} of {} voters reachable", status.reachable, status.voters);
    let quorum = match status.quorum {
        true => format!("{}, {reachable}", stream.paint("yes", Hue::Good)),
        false => format!("{}, {reachable}", stream.paint("no", Hue::Bad)),
    };
    let suspended = match status.suspended {
        true => format!(
            "Suspended  {}: restored from a snapshot, no task starts before `clawhive cluster resume`\n",
            stream.paint("yes", Hue::Odd)
        ),
        false => String::new(),
    };
    format!(
        "Cluster    {}\nLeader     {leader}\nQuorum     {quorum}\nCommitted  {}\n{suspended}{}\n{}",
        status.cluster_id,
        status.committed_index,
        clocks(&status.nodes, output),
        nodes::table(&status.nodes).text(stream),
    )
}

/// Clocks that are so far from the leader's are mentioned.
const SKEW_MS: u64 = 1_000;

/// A line when clocks are apart, else nothing.
fn clocks(nodes: &[NodeView], output: &Output) -> String {
    let off = nodes.iter().filter(|node| node.skew_ms.unsigned_abs() >= SKEW_MS);
    let off: Vec<String> = off
        .map(|node| {
            let by = node.skew_ms.unsigned_abs();
            let direction = if node.skew_ms > 0 { "ahead" } else { "behind" };
            format!("node {} is {}.{} s {direction}", node.id, by / 1_000, by % 1_000 / 100)
        })
        .collect();
    if off.is_empty() {
        return String::new();
    }
    let off = format!("{} (of the leader's clock)", off.join(", "));
    format!("Clocks     {}\n", output.stdout.paint(&off, Hue::Odd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::{NodeRow, NodeView};
    use expect_test::expect;

    fn node(id: u64, state: &str, leader: bool) -> NodeView {
        let row = NodeRow {
            listen: format!("127.0.0.1:74{id}0"),
            peer_listen: format!("127.0.0.1:74{id}1"),
            version: "0.1.0".into(),
            ..Default::default()
        };
        let (role, state) = ("voter".into(), state.into());
        NodeView {
            id,
            row: Some(row),
            role,
            state,
            leader,
            applied_index: 42,
            slots: 5,
            ..Default::default()
        }
    }

    #[test]
    fn a_cluster_without_a_quorum_says_so() {
        let mut up = node(1, "active", false);
        up.labels.insert("region".into(), "eu".into());
        let status = ClusterStatusResponse {
            cluster_id: "0123456789abcdef0123456789abcdef".into(),
            term: 3,
            committed_index: 42,
            voters: 3,
            reachable: 1,
            nodes: vec![up, node(2, "down", false), node(3, "down", false)],
            node: 1,
            ..Default::default()
        };
        expect![[r"
            Cluster    0123456789abcdef0123456789abcdef
            Leader     none
            Quorum     no, 1 of 3 voters reachable
            Committed  42

            NODE  LISTEN          PEERS           ROLE   STATE   RUNNING  APPLIED  LABELS     VERSION
            1     127.0.0.1:7410  127.0.0.1:7411  voter  active  0/5      42       region=eu  0.1.0
            2     127.0.0.1:7420  127.0.0.1:7421  voter  down    0/5      -        -          0.1.0
            3     127.0.0.1:7430  127.0.0.1:7431  voter  down    0/5      -        -          0.1.0
        "]]
        .assert_eq(&text(&status, &Output::plain(Format::Table)));
    }

    #[test]
    fn health_is_a_word_a_line_per_node_and_what_to_do() {
        let finding = clawhive_proto::HealthFinding {
            code: "node-down".into(),
            message: "node 3 at 127.0.0.1:7431: not reachable".into(),
            help: "start it again".into(),
            node: 3,
        };
        let with = |node: NodeView, health: &str, note: &str| NodeView {
            health: health.into(),
            note: note.into(),
            ..node
        };
        let status = ClusterStatusResponse {
            health: "at_risk".into(),
            quorum: true,
            voters: 3,
            reachable: 2,
            nodes: vec![
                with(node(1, "active", true), "ok", ""),
                with(node(3, "down", false), "down", "not reachable"),
            ],
            findings: vec![finding],
            ..Default::default()
        };
        expect![[r"
            Health     at_risk
            Quorum     yes, 2 of 3 voters reachable, 0 more may be lost

            NODE  ROLE   HEALTH  LACKS  NOTE
            1*    voter  ok      0      -
            3     voter  down    0      not reachable

            node-down: node 3 at 127.0.0.1:7431: not reachable
              start it again
        "]]
        .assert_eq(&health_text(&status, &Output::plain(Format::Table)));
    }

    #[test]
    fn clocks_that_are_apart_are_mentioned() {
        let mut nodes = vec![node(1, "active", true), node(2, "active", false), node(3, "active", false)];
        (nodes[0].skew_ms, nodes[1].skew_ms, nodes[2].skew_ms) = (999, 60_049, -3_600_000);
        let text = clocks(&nodes, &Output::plain(Format::Table));
        assert_eq!(
            text,
            "Clocks     node 2 is 60.0 s ahead, node 3 is 3600.0 s behind (of the leader's clock)\n"
        );
    }

    #[test]
    fn the_leader_has_a_star() {
        let table = nodes::table(&[node(1, "active", true)]).text(Output::plain(Format::Table).stdout);
        assert!(table.contains("\n1* "), "{table}");
    }
}
