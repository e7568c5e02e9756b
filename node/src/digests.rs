//! Digests of all replicas after one entry: asking for them, and what they say together.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::prost::Message;
use clawhive_proto::{DigestQuery, DigestReply, FrameKind};
use clawhive_raft::{Peer, Transport};
use futures::future::join_all;

use crate::context::Context;

/// A replica that is behind, or flushes, gets this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a node answers with: its digest, or why there is none.
pub(crate) type Answer = Result<[u8; 16], String>;

/// Asks every member for its digest right after `index`, this one included.
pub(crate) async fn gather(ctx: &Context, index: u64) -> BTreeMap<u64, Answer> {
    let status = ctx.status();
    let asked = status.members.iter().map(|peer| async move {
        let answer = match peer.id == ctx.me.node {
            true => own(ctx, index).await,
            false => ask(ctx, peer, index).await,
        };
        (peer.id, answer)
    });
    join_all(asked).await.into_iter().collect()
}

async fn own(ctx: &Context, index: u64) -> Answer {
    ctx.replica.digest_at(index, PATIENCE).await.ok_or_else(unknown)
}

async fn ask(ctx: &Context, peer: &Peer, index: u64) -> Answer {
    let query = DigestQuery { index }.encode_to_vec().into();
    let patience = PATIENCE + Duration::from_secs(1);
    let reply = ctx.links.call(peer, FrameKind::Digest, query, patience).await;
    let reply = reply.map_err(|error| error.to_string())?;
    let reply = DigestReply::decode(reply).map_err(|error| error.to_string())?;
    reply.digest.try_into().map_err(|_| unknown())
}

fn unknown() -> String {
    "it has not come that far yet, or has not added up its rows yet".to_owned()
}

/// A peer asks for ours.
pub(crate) async fn answer(ctx: &Context, query: DigestQuery) -> DigestReply {
    let digest = own(ctx, query.index).await;
    DigestReply { digest: digest.map_or_else(|_| Vec::new(), |digest| digest.to_vec()) }
}

/// What the state must be: what most voters have; between equal numbers, what `leader` has. None when `leader` itself
/// does not know its own: it could not be told from the others.
pub(crate) fn verdict(known: &BTreeMap<u64, [u8; 16]>, voters: &[u64], leader: u64) -> Option<[u8; 16]> {
    let own = *known.get(&leader)?;
    let mut votes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for (_, digest) in known.iter().filter(|(node, _)| voters.contains(node)) {
        *votes.entry(*digest).or_insert(0) += 1;
    }
    let most = votes.values().copied().max().unwrap_or(0);
    if votes.get(&own).copied().unwrap_or(0) == most {
        return Some(own);
    }
    votes.into_iter().find(|(_, count)| *count == most).map(|(digest, _)| digest)
}

/// For people.
pub(crate) fn hex(digest: &[u8]) -> String {
    crate::identity::format_id(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_voters_decide_and_the_leader_between_equals() {
        let of = |digests: &[(u64, u8)]| {
            let known = digests.iter().map(|(node, digest)| (*node, [*digest; 16])).collect();
            verdict(&known, &[1, 2, 3], 1).map(|digest| digest[0])
        };
        assert_eq!(of(&[(1, 7), (2, 7), (3, 7)]), Some(7));
        assert_eq!(of(&[(1, 7), (2, 7), (3, 8)]), Some(7));
        assert_eq!(of(&[(1, 8), (2, 7), (3, 7)]), Some(7), "the leader itself may be wrong");
        assert_eq!(of(&[(1, 8), (2, 7)]), Some(8));
        assert_eq!(of(&[(1, 8), (2, 7), (3, 6)]), Some(8));
        assert_eq!(of(&[(1, 8), (4, 7), (5, 7)]), Some(8), "learners have no vote here either");
        assert_eq!(of(&[(2, 7), (3, 7)]), None);
    }
}
