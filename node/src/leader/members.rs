//! Makes the Raft membership follow the table of nodes. What is next is the plan's to say; every step is looked up anew,
//! so a leader change in the middle of one only means that the next leader goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_raft::MemberError;
use clawhive_statemachine::Touched;
use clawhive_statemachine::plan::members::{self, Members, Step};

use super::{Leadership, Over, over};
use crate::context::Context;
use crate::transfer::{self, NotHandedOver};

/// How long one step may take before it is looked up anew.
const STEP: Duration = Duration::from_secs(5);

/// A learner keeps up when it has what the leader had so long ago.
const KEEPS_UP: Duration = Duration::from_secs(1);

/// After a step that failed, and while something is waited for that the feed does not tell.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    let mut status = ctx.replica.status();
    let mut told = BTreeMap::new();
    let mut mark: Option<(Duration, u64)> = None;
    loop {
        feed.look();
        let plan = {
            let status = status.borrow_and_update();
            let now = ctx.clock.monotonic();
            let fresh = mark.filter(|(since, _)| now.saturating_sub(*since) <= KEEPS_UP);
            let (since, index) = fresh.unwrap_or((now, status.last_log_index));
            mark = Some((since, index));
            let slack = status.last_log_index.saturating_sub(index);
            members::plan(&ctx.replica.view(), &Members { slack, ..status.group() })
        };
        tell(&mut told, &plan.waits);
        if let Some(step) = plan.step {
            tracing::info!(?step, "membership");
            match make(ctx, &step).await {
                Ok(()) => settle(ctx, &step).await,
                Err(MemberError::NotLeader { .. } | MemberError::Shutdown) => {
                    return Over("not the leader".to_owned());
                }
                Err(error) => {
                    tracing::warn!(?step, %error, "a change of the membership failed, to be tried again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
            continue;
        }
        let (gone, left) = members::removed_claws(&ctx.replica.view());
        if !gone.is_empty() {
            let commands =
                gone.into_iter().map(|claw| Command { kind: Some(Kind::ExpireClaw(claw)) }).collect();
            match ctx.propose_leading(commands).await.map_err(over) {
                Ok(_) => {}
                Err(Err(over)) => return over,
                Err(Ok(error)) => tracing::warn!(%error, "the claw of a removed node is still there"),
            }
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        // Who is reached and how far it is, the feed does not tell.
        let waits = left || !plan.waits.is_empty();
        tokio::select! {
            tick = feed.touched(Touched::NODES) => if let Err(closed) = tick { return closed.into() },
            () = tokio::time::sleep(PAUSE), if waits => {}
        }
    }
}

async fn make(ctx: &Context, step: &Step) -> Result<(), MemberError> {
    let replica = &ctx.replica;
    match step {
        Step::Finish => replica.finish_change(STEP).await,
        Step::Add { node, addr } => replica.add_learner(*node, addr, STEP).await,
        Step::Promote(nodes) => replica.promote(nodes.iter().copied(), STEP).await,
        Step::Demote(node) => replica.demote(*node, STEP).await,
        Step::Remove(node) => replica.remove(*node, STEP).await,
        Step::HandOver { to } => match transfer::to(ctx, *to).await {
            Ok(_) => Ok(()),
            Err(NotHandedOver::NotLeader(leader)) => Err(MemberError::NotLeader { leader }),
            Err(NotHandedOver::Refused(_, reason) | NotHandedOver::Failed(reason)) => {
                Err(MemberError::Invalid(reason))
            }
        },
    }
}

/// The status shows a step a moment after it was made; until then it would be planned again.
async fn settle(ctx: &Context, step: &Step) {
    let mut status = ctx.replica.status();
    let shown = status.wait_for(|status| {
        let member = |id: &u64| status.members.iter().find(|peer| peer.id == *id);
        match step {
            Step::Finish => !status.joint,
            Step::Add { node, addr } => member(node).is_some_and(|peer| peer.addr == *addr),
            Step::Promote(nodes) => nodes.iter().all(|node| status.voters.contains(node)),
            Step::Demote(node) => !status.voters.contains(node),
            Step::Remove(node) => member(node).is_none(),
            Step::HandOver { .. } => !status.is_leader,
        }
    });
    // If it never shows it, looking again is all there is to do.
    let _ = tokio::time::timeout(PAUSE, shown).await;
}

/// Says once why a node waits, and again when the kind of reason changes: the numbers in it change all the time.
fn tell(told: &mut BTreeMap<u64, String>, waits: &[(u64, String)]) {
    told.retain(|node, _| waits.iter().any(|(waiting, _)| waiting == node));
    for (node, why) in waits {
        let kind: String = why.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if told.insert(*node, kind.clone()) != Some(kind) {
            tracing::info!(node, why, "a change of the membership waits");
        }
    }
}
