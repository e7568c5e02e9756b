//! Which claws have let their lease run out. A new leader gives every claw a whole lease from when it became leader:
//! it cannot know what was renewed with the old one. The claw of a removed node goes as soon as it holds nothing.

use alloc::vec::Vec;
use clawhive_proto::{ClawRow, ClawState, ExpireClaw};

use crate::ids::{ClawId, NodeId};
use crate::{ReadStore, read};

/// The claws to expire at `now_ms`.
pub fn plan(view: &dyn ReadStore, now_ms: u64, leader_since_ms: u64) -> Vec<ExpireClaw> {
    let expired = read::claws(view).into_iter().filter(|(claw, row)| {
        let renewed_ms = row.renewed_at_ms.max(leader_since_ms);
        let ended = row.used > 0 && renewed_ms.saturating_add(row.lease_ms) <= now_ms;
        row.state() != ClawState::Down && (ended || is_left(view, *claw, row))
    });
    expired
        .map(|(claw, row)| ExpireClaw {
            claw: claw.0,
            incarnation: row.incarnation,
            renew_seq: row.renew_seq,
        })
        .collect()
}

/// When the next lease runs out if nobody renews it; none when nothing is leased.
pub fn next_due_ms(view: &dyn ReadStore, leader_since_ms: u64) -> Option<u64> {
    let claws = read::claws(view);
    let leased = claws.iter().filter(|(_, row)| row.state() != ClawState::Down && row.used > 0);
    leased.map(|(_, row)| row.renewed_at_ms.max(leader_since_ms).saturating_add(row.lease_ms)).min()
}

/// Of a removed node, whose last attempt has ended by itself.
fn is_left(view: &dyn ReadStore, claw: ClawId, row: &ClawRow) -> bool {
    row.state() == ClawState::Draining && row.used == 0 && read::removed(view, NodeId(claw.0)).is_some()
}
