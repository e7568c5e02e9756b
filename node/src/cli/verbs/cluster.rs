//! `cluster status`: what the node asked knows; works without a quorum.

use clawhive_proto::{ClusterStatusResponse, NodeView};

use super::nodes;
use crate::cli::args::Global;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, cluster_json};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let status = session.client.cluster_status().await?;
    if output.format == Format::Table {
        output.print(&text(&status, output))?;
    } else {
        output.document(&cluster_json(&status))?;
    }
    session.close().await;
    Ok(Exit::Done)
}

/// `cluster resume`: a restored cluster may start tasks.
pub(in crate::cli) async fn resume(global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let resumed = session.client.resume_cluster().await?;
    session.close().await;
    match output.format {
        Format::Table => output.print(match resumed {
            true => "resumed: tasks start and timers fire again\n",
            false => "nothing to resume: this cluster is not suspended\n",
        })?,
        _ => output.document(&serde_json::json!({ "resumed": resumed }))?,
    }
    Ok(Exit::Done)
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
