//! When the leases of claws end, counted by one leader on its own monotonic clock from when it first saw each in the
//! state. No wall clock has a say, neither the leader's nor a claw's, and no time that an earlier leader stamped.
//!
//! Why no lease ends early: a claw counts from when it *sent* the beat, the renewal is in the state only later, and is
//! seen only after that. What a leader writes down as left ([`Leases::checkpoint`]) is measured before it is proposed, and
//! the next leader counts it from when it sees it. Why none is prolonged for ever: each leader that lives for a quarter
//! of a lease writes that quarter off.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use clawhive_proto::{CheckpointLeases, ClawRow, ClawState, ExpireClaw, LeaseLeft};

use crate::ids::ClawId;
use crate::{ReadStore, read};

/// The leases that are held, as one leader counts them. A new leader starts with none and looks at the state.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    counted: BTreeMap<ClawId, Counted>,
}

/// One lease: of this incarnation, since this renewal.
#[derive(Clone, Debug)]
struct Counted {
    incarnation: Vec<u8>,
    renew_seq: u64,
    lease_ms: u64,
    /// What the state says is left.
    written_ms: u64,
    ends_ms: u64,
}

impl Counted {
    fn is_of(&self, row: &ClawRow) -> bool {
        self.incarnation == row.incarnation && self.renew_seq == row.renew_seq
    }

    /// When so much has gone by since the state was told that it is to be told again.
    fn checkpoint_ms(&self) -> u64 {
        let step = (self.lease_ms / 4).max(1);
        self.ends_ms.saturating_sub(self.written_ms.saturating_sub(step))
    }
}

fn is_leased(row: &ClawRow) -> bool {
    row.state() != ClawState::Down && row.used > 0
}

impl Leases {
    /// Takes in what the state shows now. `now_ms` is monotonic and rounded up: no lease is counted from too early.
    pub fn look(&mut self, view: &dyn ReadStore, now_ms: u64) {
        let mut counted = BTreeMap::new();
        for (claw, row) in read::claws(view).into_iter().filter(|(_, row)| is_leased(row)) {
            let written_ms = row.remaining_ms.unwrap_or(row.lease_ms);
            let ends_ms = now_ms.saturating_add(written_ms);
            let lease = match self.counted.remove(&claw).filter(|known| known.is_of(&row)) {
                // Written down since, by this leader or the one before: the earlier end is true as well.
                Some(known) => Counted { written_ms, ends_ms: known.ends_ms.min(ends_ms), ..known },
                None => Counted {
                    incarnation: row.incarnation,
                    renew_seq: row.renew_seq,
                    lease_ms: row.lease_ms,
                    written_ms,
                    ends_ms,
                },
            };
            counted.insert(claw, lease);
        }
        self.counted = counted;
    }

    /// The claws whose lease has ended at `now_ms`, rounded down.
    pub fn expired(&self, now_ms: u64) -> Vec<ExpireClaw> {
        let over = self.counted.iter().filter(|(_, lease)| lease.ends_ms <= now_ms);
        over.map(|(claw, lease)| ExpireClaw {
            claw: claw.0,
            incarnation: lease.incarnation.clone(),
            renew_seq: lease.renew_seq,
        })
        .collect()
    }

    /// What is to be written down at `now_ms` (rounded down) of leases that nobody renews: a quarter of a lease has gone
    /// by since the state was told. None while every claw renews in time.
    pub fn checkpoint(&self, now_ms: u64) -> Option<CheckpointLeases> {
        let quiet = self.counted.iter().filter(|(_, lease)| {
            let left = lease.ends_ms.saturating_sub(now_ms);
            left > 0 && left < lease.written_ms && lease.checkpoint_ms() <= now_ms
        });
        let leases: Vec<LeaseLeft> = quiet
            .map(|(claw, lease)| LeaseLeft {
                claw: claw.0,
                incarnation: lease.incarnation.clone(),
                renew_seq: lease.renew_seq,
                remaining_ms: lease.ends_ms.saturating_sub(now_ms),
            })
            .collect();
        if leases.is_empty() { None } else { Some(CheckpointLeases { leases }) }
    }

    /// When the next lease ends.
    pub fn next_end_ms(&self) -> Option<u64> {
        self.counted.values().map(|lease| lease.ends_ms).min()
    }

    /// When to look again if nothing changes: the next end, or the next time to write one down.
    pub fn next_due_ms(&self) -> Option<u64> {
        self.counted.values().map(|lease| lease.ends_ms.min(lease.checkpoint_ms())).min()
    }
}
