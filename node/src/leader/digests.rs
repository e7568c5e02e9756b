//! Compares the states of all replicas: asks for the digest after one and the same entry, hears what each one has, and
//! proposes what it must be. A replica that has another one takes itself out, also when it is this one.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{Command, StateDigest, TakeDigest};
use tokio::time::{Instant, sleep};

use super::{Leadership, Over, over};
use crate::context::Context;
use crate::digests;

/// How often digests are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// When the log grew by so many entries.
    pub(crate) entries: u64,
    /// When this time has passed and anything has changed.
    pub(crate) interval: Duration,
}

/// Never more often than this, however fast the log grows.
const LEAST: Duration = Duration::from_secs(10);

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut status = ctx.replica.status();
    // What a new term begins with is no change of the state.
    let mut last = status.borrow().applied;
    let mut at = Instant::now();
    loop {
        if status.wait_for(|status| status.applied > last).await.is_err() {
            return Over("the replica has stopped".to_owned());
        }
        let due = |applied: u64, waited: Duration| {
            waited >= ctx.digests.interval || waited >= LEAST && applied - last >= ctx.digests.entries
        };
        while !due(status.borrow().applied, at.elapsed()) {
            let left = ctx.digests.interval.saturating_sub(at.elapsed());
            sleep(left.clamp(Duration::from_millis(1), LEAST)).await;
        }
        at = Instant::now();
        match round(ctx).await {
            Ok(end) => last = end.unwrap_or(ctx.replica.view().applied_index()),
            Err(over) => return over,
        }
    }
}

/// One comparison; answers with the entry that ended it.
async fn round(ctx: &Context) -> Result<Option<u64>, Over> {
    let taken = match propose(ctx, Kind::TakeDigest(TakeDigest {})).await? {
        Some(taken) => taken,
        None => return Ok(None),
    };
    let answers = digests::gather(ctx, taken).await;
    let known: BTreeMap<u64, [u8; 16]> =
        answers.iter().filter_map(|(node, answer)| Some((*node, *answer.as_ref().ok()?))).collect();
    let voters = ctx.status().voters;
    let Some(digest) = digests::verdict(&known, &voters, ctx.me.node) else { return Ok(Some(taken)) };
    for (node, other) in known.iter().filter(|(_, other)| **other != digest) {
        tracing::error!(
            node,
            log_index = taken,
            theirs = digests::hex(other),
            expected = digests::hex(&digest),
            "the state of a node differs from that of the cluster; it takes itself out"
        );
    }
    tracing::debug!(
        log_index = taken,
        digest = digests::hex(&digest),
        nodes = known.len(),
        "states compared"
    );
    let state_digest = StateDigest { at_index: taken, digest: digest.to_vec() };
    propose(ctx, Kind::StateDigest(state_digest)).await
}

async fn propose(ctx: &Context, kind: Kind) -> Result<Option<u64>, Over> {
    match ctx.propose_leading(vec![Command { kind: Some(kind) }]).await {
        Ok(committed) => {
            let refused = committed.outcomes.iter().any(|it| crate::context::rejection(it).is_some());
            Ok((!refused).then_some(committed.log_index))
        }
        Err(error) => {
            let error = over(error)?;
            tracing::debug!(%error, "a digest is not answered");
            Ok(None)
        }
    }
}
