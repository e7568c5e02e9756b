//! Raises the level of the cluster once every member can do the next one. Until then the members are asked again and
//! again: a node that is away may come back as an older version.

use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{Command, RaiseLevel};
use clawhive_statemachine::level;
use futures::future::join_all;

use super::{Leadership, Over, over};

/// Between two rounds of asking.
const ROUND: Duration = Duration::from_secs(1);

/// A member that does not answer within this time is asked again in the next round.
const PING: Duration = Duration::from_millis(500);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut told = None;
    loop {
        let now = level::current(&ctx.replica.view());
        if now >= ctx.level {
            return Over::never().await;
        }
        match common(&leadership).await {
            Ok(common) if common > now => {
                let raise = Command { kind: Some(Kind::RaiseLevel(RaiseLevel { level: common })) };
                match ctx.propose_leading(vec![raise]).await.map_err(over) {
                    Ok(_) => {
                        tracing::info!(level = common, "the cluster was raised to another level");
                        continue;
                    }
                    Err(Err(over)) => return over,
                    Err(Ok(error)) => tracing::warn!(%error, "the level is not raised yet"),
                }
            }
            Ok(_) => {}
            Err(why) if told.as_ref() == Some(&why) => {}
            Err(why) => {
                tracing::info!(level = now, why, "the cluster stays at its level");
                told = Some(why);
            }
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// The highest level that every member can do, or who holds it back.
async fn common(leadership: &Leadership) -> Result<u32, String> {
    let ctx = &leadership.ctx;
    let members = ctx.status().members;
    let others = members.iter().filter(|peer| peer.id != ctx.me.node);
    let answers =
        join_all(others.map(|peer| async move { (peer.id, ctx.links.status(peer, PING).await) })).await;
    let mut common = ctx.level;
    for (node, answer) in answers {
        match answer {
            // A version that does not say what it can do is of level 1.
            Ok(status) if status.level.max(1) < ctx.level => {
                let (theirs, version) = (status.level.max(1), status.version);
                if theirs < common {
                    common = theirs;
                }
                if theirs <= level::current(&ctx.replica.view()) {
                    return Err(format!("node {node} has version {version}, of level {theirs}"));
                }
            }
            Ok(_) => {}
            Err(_) => return Err(format!("node {node} does not answer")),
        }
    }
    Ok(common)
}
