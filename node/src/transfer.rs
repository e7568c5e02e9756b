//! Handing the leadership over: to a voter of somebody's choice, or to the one that is furthest along.

use std::time::Duration;

use clawhive_proto::{
    HandOver, HandedOver, NodeState, NotLeader, PeerError, PeerStatus, Rejection, RejectionCode, handed_over,
};
use clawhive_raft::Status;
use clawhive_statemachine::ids::NodeId;
use clawhive_statemachine::read;
use futures::future::join_all;
use tokio::time::timeout;

use crate::context::Context;

/// How long a handover may take.
const HANDOVER: Duration = Duration::from_secs(2);

/// A voter that does not answer within this time cannot take over.
const PING: Duration = Duration::from_millis(500);

/// Why nobody else leads.
#[derive(Debug)]
pub(crate) enum NotHandedOver {
    /// This node does not lead.
    NotLeader(Option<u64>),
    /// It cannot be; nothing was tried.
    Refused(RejectionCode, String),
    /// It was tried.
    Failed(String),
}

impl From<NotHandedOver> for handed_over::Result {
    fn from(error: NotHandedOver) -> handed_over::Result {
        match error {
            NotHandedOver::NotLeader(leader) => {
                handed_over::Result::NotLeader(NotLeader { leader: leader.unwrap_or(0) })
            }
            NotHandedOver::Refused(code, message) => {
                handed_over::Result::Refused(Rejection { code: code.into(), message })
            }
            NotHandedOver::Failed(message) => handed_over::Result::Error(PeerError {
                message,
                may_have_been_applied: true,
                ..PeerError::default()
            }),
        }
    }
}

/// Answers a peer that asks this node, as the leader, to hand over.
pub(crate) async fn answer(ctx: &Context, request: HandOver) -> HandedOver {
    let result = match to(ctx, request.to).await {
        Ok(leader) => handed_over::Result::Leader(leader),
        Err(error) => error.into(),
    };
    HandedOver { result: Some(result) }
}

/// Lets another node lead; 0 is whoever is furthest along. Returns who leads when somebody else than this node does.
pub(crate) async fn to(ctx: &Context, wanted: u64) -> Result<u64, NotHandedOver> {
    let status = ctx.status();
    if !status.is_leader {
        return Err(NotHandedOver::NotLeader(status.leader));
    }
    if wanted == ctx.me.node {
        return Ok(wanted);
    }
    let to = if wanted == 0 { furthest(ctx, &status).await } else { check(ctx, &status, wanted).await };
    let to = to.map_err(|(code, text)| NotHandedOver::Refused(code, text))?;
    if let Err(error) = ctx.replica.transfer_leader(to).await {
        return Err(NotHandedOver::Failed(error.to_string()));
    }
    let mut watch = ctx.replica.status();
    let other = |status: &Status| status.leader.filter(|leader| *leader != ctx.me.node);
    match timeout(HANDOVER, watch.wait_for(|status| other(status).is_some())).await {
        Ok(Ok(status)) => Ok(other(&status).unwrap_or(to)),
        Ok(Err(_)) => Err(NotHandedOver::Failed("this node stops".to_owned())),
        Err(_) => {
            Err(NotHandedOver::Failed(format!("node {to} did not take over within {} s", HANDOVER.as_secs())))
        }
    }
}

async fn check(ctx: &Context, status: &Status, wanted: u64) -> Result<u64, (RejectionCode, String)> {
    let Some(peer) = status.members.iter().find(|peer| peer.id == wanted) else {
        return Err((RejectionCode::NotFound, format!("there is no node {wanted}")));
    };
    if !status.voters.contains(&wanted) {
        return Err((RejectionCode::Conflict, format!("node {wanted} has no vote, so it cannot lead")));
    }
    if rests(ctx, wanted) {
        let text = format!(
            "node {wanted} is draining, so it does not lead: `clawhive node activate {wanted}` first"
        );
        return Err((RejectionCode::Conflict, text));
    }
    match ctx.links.status(peer, PING).await {
        Ok(_) => Ok(wanted),
        Err(error) => {
            Err((RejectionCode::Conflict, format!("node {wanted} at {} does not answer: {error}", peer.addr)))
        }
    }
}

/// It is to get nothing new, the lead neither.
fn rests(ctx: &Context, node: u64) -> bool {
    read::node(&ctx.replica.view(), NodeId(node)).is_some_and(|row| row.state() == NodeState::Draining)
}

/// The voter that answers and has the most of the log; one that is being drained only when there is no other.
async fn furthest(ctx: &Context, status: &Status) -> Result<u64, (RejectionCode, String)> {
    let others =
        status.members.iter().filter(|peer| peer.id != ctx.me.node && status.voters.contains(&peer.id));
    let asked = others.map(|peer| async move { ctx.links.status(peer, PING).await.ok() });
    let answers = join_all(asked).await;
    let rank = |answer: &PeerStatus| (!rests(ctx, answer.node), answer.applied_index);
    let best = answers.into_iter().flatten().max_by_key(rank);
    match best {
        Some(answer) => Ok(answer.node),
        None => Err((RejectionCode::Conflict, "no other voter answers".to_owned())),
    }
}
