//! Changes of who belongs to the cluster, and who leads it. The log decides; the leader makes Raft's membership follow,
//! and most of the time has done so when the answer goes out.

use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    Command, FrameKind, HandOver, HandedOver, NodeChanged, NodeRole, NodeState, Proposal, RemoveNode,
    RemoveNodeRequest, SetNodeRole, SetNodeRoleRequest, SetNodeState, SetNodeStateRequest,
    TransferLeaderRequest, TransferLeaderResponse, handed_over,
};
use clawhive_raft::{Status, Transport};
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::read;
use tokio::time::{Instant, timeout_at};

use super::error::ApiError;
use super::{check, cluster};
use crate::context::{Context, rejection};
use crate::transfer;

/// How long an answer waits for Raft's membership, at most.
const SETTLE: Duration = Duration::from_secs(2);

/// Between two tries to find the leader.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn remove(
    ctx: &Context,
    request: RemoveNodeRequest,
    timeout: Duration,
) -> Result<NodeChanged, ApiError> {
    let node = request.node;
    let kind = Kind::RemoveNode(RemoveNode { node });
    let gone = move |status: &Status| status.members.iter().all(|peer| peer.id != node);
    change(ctx, request.request_id, node, kind, timeout, gone).await
}

pub(super) async fn set_role(
    ctx: &Context,
    request: SetNodeRoleRequest,
    timeout: Duration,
) -> Result<NodeChanged, ApiError> {
    let (node, votes) = (request.node, request.role() == NodeRole::Voter);
    let kind = Kind::SetNodeRole(SetNodeRole { node, role: request.role });
    let followed = move |status: &Status| status.voters.contains(&node) == votes && !status.joint;
    change(ctx, request.request_id, node, kind, timeout, followed).await
}

pub(super) async fn set_state(
    ctx: &Context,
    request: SetNodeStateRequest,
    timeout: Duration,
) -> Result<NodeChanged, ApiError> {
    let (node, drains) = (request.node, request.state() == NodeState::Draining);
    let kind = Kind::SetNodeState(SetNodeState { node, state: request.state });
    let mut changed = change(ctx, request.request_id, node, kind, timeout, |_| true).await?;
    if drains && changed.running > 0 {
        changed.settled = false;
        changed.waits_for = format!("{} attempts still run on it", changed.running);
    }
    Ok(changed)
}

async fn change(
    ctx: &Context,
    request_id: Vec<u8>,
    node: u64,
    kind: Kind,
    timeout: Duration,
    followed: impl Fn(&Status) -> bool,
) -> Result<NodeChanged, ApiError> {
    if node == 0 {
        return Err(ApiError::invalid("node must be the id of a node; ids count from 1"));
    }
    let deadline = Instant::now() + timeout;
    let request_id = check::request_id(request_id)?;
    let commands = vec![Command { kind: Some(kind) }];
    let proposal = Proposal { request_id, actor: super::submit::ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    if let Some(rejection) = committed.outcomes.iter().find_map(rejection) {
        return Err(rejection.clone().into());
    }
    let until = deadline.min(Instant::now() + SETTLE);
    let mut status = ctx.replica.status();
    let settled =
        timeout_at(until, status.wait_for(|status| followed(status))).await.is_ok_and(|seen| seen.is_ok());
    let waits_for = match settled {
        true => String::new(),
        false => why(ctx, node).await,
    };
    // This node may not have applied it yet; what runs there is not changed by it.
    let running = read::claw(&ctx.replica.view(), ClawId(node)).map_or(0, |claw| claw.used);
    Ok(NodeChanged { log_index: committed.log_index, settled, waits_for, running })
}

/// What a change waits for.
async fn why(ctx: &Context, node: u64) -> String {
    let shown = cluster::status(ctx).await.nodes.into_iter().find(|shown| shown.id == node);
    match shown.map(|shown| shown.note).filter(|note| !note.is_empty()) {
        Some(note) => note,
        None => "the leader makes Raft's membership follow".to_owned(),
    }
}

pub(super) async fn transfer(
    ctx: &Context,
    request: TransferLeaderRequest,
    timeout: Duration,
) -> Result<TransferLeaderResponse, ApiError> {
    check::request_id(request.request_id)?;
    let deadline = Instant::now() + timeout;
    // Without a quorum nobody can take over; this says who is there and who is not.
    ctx.replica.linearizable_view(timeout).await?;
    loop {
        let status = ctx.status();
        let from = status.leader.unwrap_or(0);
        let answer = match status.leader {
            None => handed_over::Result::NotLeader(clawhive_proto::NotLeader { leader: 0 }),
            Some(leader) if leader == ctx.me.node => transfer::to(ctx, request.to)
                .await
                .map_or_else(handed_over::Result::from, handed_over::Result::Leader),
            Some(leader) => ask(ctx, leader, request.to, deadline).await?,
        };
        match answer {
            handed_over::Result::Leader(to) => return Ok(TransferLeaderResponse { from, to }),
            handed_over::Result::Refused(rejection) => return Err(rejection.into()),
            handed_over::Result::Error(error) => return Err(ApiError::unavailable(error.message)),
            handed_over::Result::NotLeader(_) => {}
        }
        if Instant::now() + PAUSE >= deadline {
            return Err(ApiError::unavailable("no leader could be asked"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask(
    ctx: &Context,
    leader: u64,
    to: u64,
    deadline: Instant,
) -> Result<handed_over::Result, ApiError> {
    let unsure = || handed_over::Result::NotLeader(clawhive_proto::NotLeader { leader: 0 });
    let Some(peer) = ctx.peer(leader) else { return Ok(unsure()) };
    let left = deadline.saturating_duration_since(Instant::now());
    let payload = HandOver { to }.encode_to_vec().into();
    match ctx.links.call(&peer, FrameKind::HandOver, payload, left).await {
        // Another leader is looked for.
        Err(_) => Ok(unsure()),
        Ok(answer) => HandedOver::decode(answer)
            .ok()
            .and_then(|reply| reply.result)
            .ok_or_else(|| ApiError::internal("the leader's answer makes no sense")),
    }
}
