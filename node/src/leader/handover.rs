//! A hop of a chain in one commit: reports of completions that reach the leader get the grants that they make possible,
//! in the same entry.

use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{AssignTasks, Command, Proposal};
use clawhive_statemachine::plan::assign::AssignInput;
use clawhive_statemachine::plan::handover;

use super::resolve::{self, Resolved};
use crate::context::Context;

/// Grants added to one entry, and bytes of resolved tasks; what is left over is the scheduler's.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 * 1024;

/// The proposal, with a last `AssignTasks` when this node leads and completions in it make one possible. The answer then
/// has one outcome more than was asked for.
pub(crate) fn enrich(ctx: &Context, mut proposal: Proposal) -> Proposal {
    let completes = |command: &Command| matches!(command.kind, Some(Kind::CompleteTask(_)));
    if !proposal.commands.iter().any(completes) || !ctx.scheduler() {
        return proposal;
    }
    let view = ctx.replica.view();
    let live = ctx.beats.live(&view, ctx.clock.monotonic());
    let input = AssignInput { live: &live, leader: ctx.me.node, limit: BATCH };
    let planned = handover::plan(&view, &proposal.commands, &input);
    let mut bytes = 0;
    let grants: Vec<_> = planned
        .into_iter()
        .filter_map(|grant| match resolve::grant(&view, grant, &proposal.commands) {
            Resolved::Grant(grant) => Some(grant),
            // It becomes ready with this entry, and fails with the scheduler's next one.
            Resolved::Fail(_) => None,
        })
        .take_while(|grant| {
            bytes += grant.resolved.as_ref().map_or(0, Message::encoded_len);
            bytes <= BATCH_BYTES
        })
        .collect();
    if !grants.is_empty() {
        proposal.commands.push(Command { kind: Some(Kind::AssignTasks(AssignTasks { grants })) });
    }
    proposal
}
