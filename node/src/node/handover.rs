//! Handing the leadership over to the voter that is best off.

use std::time::Duration;

use clawhive_proto::PeerStatus;
use futures::future::join_all;
use tokio::time::timeout;

use crate::context::Context;

/// How long a handover of the leadership may take.
const WITHIN: Duration = Duration::from_secs(2);

/// How long a peer may take to say how it does.
const ANSWER: Duration = Duration::from_millis(500);

/// How a handover went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// This node does not lead.
    NotLeading,
    /// No voter that answers could lead.
    Nobody,
    /// Another node leads.
    To(u64),
    /// It was asked, and does not lead yet.
    Asked(u64),
}

/// Asks the voter that is furthest along, and whose disk is well, to lead; waits until it does. With `any` one whose disk
/// is not well will do when there is no other.
pub(super) async fn to_best(ctx: &Context, any: bool) -> Handed {
    let status = ctx.status();
    if !status.is_leader {
        return Handed::NotLeading;
    }
    let others =
        status.members.iter().filter(|peer| peer.id != ctx.me.node && status.voters.contains(&peer.id));
    let asked = others.map(|peer| async move { ctx.links.status(peer, ANSWER).await.ok() });
    let answers = join_all(asked).await;
    let usable = |answer: &PeerStatus| any || answer.disk_trouble.is_empty();
    let rank = |answer: &PeerStatus| (answer.disk_trouble.is_empty(), answer.applied_index);
    let Some(best) = answers.into_iter().flatten().filter(usable).max_by_key(rank) else {
        return Handed::Nobody;
    };
    if let Err(error) = ctx.replica.transfer_leader(best.node).await {
        tracing::warn!(to = best.node, %error, "the leadership is not handed over");
        return Handed::Asked(best.node);
    }
    let mut watch = ctx.replica.status();
    let gone = watch.wait_for(|status| status.leader.is_some_and(|leader| leader != ctx.me.node));
    match timeout(WITHIN, gone).await {
        Ok(_) => {
            tracing::info!(to = best.node, "the leadership is handed over");
            Handed::To(best.node)
        }
        Err(_) => {
            tracing::warn!(to = best.node, "the leadership was not taken over in time");
            Handed::Asked(best.node)
        }
    }
}
