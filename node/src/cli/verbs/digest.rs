//! `cluster digest`: are the states of all nodes the same?

use clawhive_node::identity::format_id;
use clawhive_proto::CheckDigestsResponse;
use serde_json::{Value, json};

use crate::cli::args::Global;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Hue, Output, Table};
use crate::cli::session::{Local, Session};

pub(in crate::cli) async fn run(global: &Global, output: &Output) -> Result<Exit, Failure> {
    let session = Session::open(global, Local::LOOK).await?;
    let answer = session.client.check_digests().await?;
    session.close().await;
    match output.format {
        Format::Table => output.print(&text(&answer, output))?,
        _ => output.document(&document(&answer))?,
    }
    Ok(if answer.equal { Exit::Done } else { Exit::RunFailed })
}

fn text(answer: &CheckDigestsResponse, output: &Output) -> String {
    let mut table = Table::new(&["NODE", "DIGEST"]);
    for node in &answer.nodes {
        let told = match node.unavailable.as_str() {
            "" => (format_id(&node.digest), Hue::Plain),
            why => (format!("none: {why}"), Hue::Bad),
        };
        table.row([(node.node.to_string(), Hue::Bold), told]);
    }
    let equal = match answer.equal {
        true => output.stdout.paint("equal", Hue::Good),
        false => output.stdout.paint("not equal", Hue::Bad),
    };
    format!("States after log entry {}: {equal}\n\n{}", answer.log_index, table.text(output.stdout))
}

fn document(answer: &CheckDigestsResponse) -> Value {
    json!({
        "log_index": answer.log_index.to_string(),
        "equal": answer.equal,
        "nodes": answer.nodes.iter().map(|node| json!({
            "node": node.node.to_string(),
            "digest": (!node.digest.is_empty()).then(|| format_id(&node.digest)),
            "unavailable": (!node.unavailable.is_empty()).then_some(&node.unavailable),
        })).collect::<Value>(),
    })
}
