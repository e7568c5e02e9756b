//! Free slots of claws that can be given work, the least loaded first, the leader's own last.

use alloc::collections::{BTreeMap, BTreeSet};
use clawhive_proto::{ClawRow, ClawState};

use crate::ids::ClawId;
use crate::plan::assign::AssignInput;
use crate::{ReadStore, read};

/// Orders claws by how much they should be given the next task; the least comes first.
type Rank = (bool, u64, u64);

pub(crate) struct Slots {
    leader: u64,
    claws: BTreeMap<u64, Claw>,
    order: BTreeSet<Rank>,
}

struct Claw {
    used: u64,
    slots: u64,
}

impl Claw {
    fn rank(&self, id: u64, leader: u64) -> Rank {
        // Thousandths of its slots.
        (id == leader, self.used * 1_000 / self.slots, id)
    }
}

impl Slots {
    /// The claws that are active, live, and have slots; `freed` counts slots that are about to be given back.
    pub fn new(view: &dyn ReadStore, input: &AssignInput<'_>, freed: &BTreeMap<u64, u32>) -> Slots {
        let mut slots = Slots { leader: input.leader, claws: BTreeMap::new(), order: BTreeSet::new() };
        for (ClawId(id), row) in read::claws(view) {
            if takes_work(&row) && input.live.contains(&id) {
                let used = row.used.saturating_sub(freed.get(&id).copied().unwrap_or(0));
                let claw = Claw { used: u64::from(used), slots: u64::from(row.slots) };
                slots.insert(id, claw);
            }
        }
        slots
    }

    fn insert(&mut self, id: u64, claw: Claw) {
        if claw.used < claw.slots {
            self.order.insert(claw.rank(id, self.leader));
        }
        self.claws.insert(id, claw);
    }

    /// How many are free.
    pub fn free(&self) -> u64 {
        self.claws.values().map(|claw| claw.slots.saturating_sub(claw.used)).sum()
    }

    /// Takes a slot: of `wish` if it has one, else of the claw that should be next.
    pub fn take(&mut self, wish: Option<u64>) -> Option<u64> {
        let wished = wish.filter(|id| self.claws.get(id).is_some_and(|claw| claw.used < claw.slots));
        let id = wished.or_else(|| self.order.first().map(|(_, _, id)| *id))?;
        let mut claw = self.claws.remove(&id)?;
        self.order.remove(&claw.rank(id, self.leader));
        claw.used += 1;
        self.insert(id, claw);
        Some(id)
    }
}

fn takes_work(row: &ClawRow) -> bool {
    row.state() == ClawState::Active && row.slots > 0
}
