//! The leader's queue of proposals: what queues together travels together.
//!
//! Owns: the one stamp of time in the system, and one call into openraft for everything that waits. Must not: wait for
//! one batch before it hands over the next.

use std::sync::Arc;

use bytes::Bytes;
use clawhive_proto::prost::Message;
use clawhive_proto::{Entry, Proposal};
use futures::StreamExt;
use openraft::errors::ClientWriteError;
use tokio::sync::{mpsc, oneshot};

use crate::seams::Clock;
use crate::status_task::Raft;
use crate::types::EntryBytes;

/// Entry format.
const ENTRY_VERSION: u32 = 1;
/// Proposals that wait, at most; more make proposers wait.
pub(crate) const QUEUE: usize = 16_384;
/// Proposals of one batch, at most.
const BATCH: usize = 1_024;

/// A proposal was not applied here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// This node does not lead; certainly nothing was proposed.
    NotLeader,
    /// Leadership ended while it was on its way; it may still take effect.
    Unknown,
    /// Raft has stopped; it may still take effect.
    Stopped,
}

/// Where an entry ended up, with its encoded outcomes.
#[derive(Clone, Debug)]
pub(crate) struct Landed {
    pub(crate) log_index: u64,
    pub(crate) outcomes: Bytes,
}

/// A proposal and who waits for it.
pub(crate) struct Pending {
    pub(crate) proposal: Proposal,
    pub(crate) answer: oneshot::Sender<Result<Landed, Refusal>>,
}

/// Runs until nobody can propose any more.
pub(crate) async fn run(raft: Raft, clock: Arc<dyn Clock>, mut queue: mpsc::Receiver<Pending>) {
    let mut waiting = Vec::with_capacity(BATCH);
    let mut last_ms = 0;
    while queue.recv_many(&mut waiting, BATCH).await > 0 {
        // Who gave up meanwhile was told that it is unknown; it is better not done.
        waiting.retain(|pending: &Pending| !pending.answer.is_closed());
        if !raft.is_leader() {
            for pending in waiting.drain(..) {
                let _gone = pending.answer.send(Err(Refusal::NotLeader));
            }
            continue;
        }
        last_ms = clock.now_ms().max(last_ms);
        let mut entries = Vec::with_capacity(waiting.len());
        let mut answers = Vec::with_capacity(waiting.len());
        for Pending { proposal, answer } in waiting.drain(..) {
            entries.push(EntryBytes(stamp(proposal, last_ms)));
            answers.push(answer);
        }
        let outcomes = raft.client_write_many(entries).await;
        // Results are awaited on the side: the next batch goes out at once.
        tokio::spawn(async move {
            let mut outcomes = match outcomes {
                Ok(outcomes) => outcomes,
                Err(_) => Box::pin(futures::stream::empty()),
            };
            for answer in answers {
                let result = match outcomes.next().await {
                    Some(Ok(Ok(written))) => {
                        Ok(Landed { log_index: written.log_id.index, outcomes: written.response.0 })
                    }
                    // openraft says it refused before appending. Not relied on: a forward is not a failure.
                    Some(Ok(Err(
                        ClientWriteError::ForwardToLeader(_)
                        | ClientWriteError::LogEntryDiscarded(_)
                        | ClientWriteError::ChangeMembershipError(_)
                        | ClientWriteError::PreconditionFailed(_),
                    ))) => Err(Refusal::Unknown),
                    Some(Err(_)) | None => Err(Refusal::Stopped),
                };
                let _gone = answer.send(result);
            }
        });
    }
}

/// Makes the entry.
fn stamp(proposal: Proposal, time_ms: u64) -> Bytes {
    let Proposal { request_id, actor, commands } = proposal;
    Entry { version: ENTRY_VERSION, time_ms, request_id, actor, commands }.encode_to_vec().into()
}
