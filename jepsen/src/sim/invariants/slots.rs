//! A claw never holds more live leases than it has slots, and its `used` is the number of its live leases.

use std::collections::{BTreeMap, BTreeSet};

use clawhive_proto::ClawRow;

use super::Law;
use crate::sim::history::{Fact, Place, attempt_live};

/// Live leases and the newest row of each claw.
#[derive(Default)]
pub(super) struct Slots {
    claws: BTreeMap<u64, ClawRow>,
    live: BTreeMap<u64, BTreeSet<(Place, u32)>>,
    changed: BTreeSet<u64>,
}

impl Law for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Claw { claw, after } => {
                self.claws.insert(*claw, (*after).clone());
                self.changed.insert(*claw);
            }
            Fact::Attempt { place, attempt, after, .. } => {
                let live = self.live.entry(after.claw).or_default();
                if attempt_live(after.state()) {
                    live.insert((*place, *attempt));
                } else {
                    live.remove(&(*place, *attempt));
                }
                self.changed.insert(after.claw);
            }
            Fact::Entry { index, .. } => {
                for claw in std::mem::take(&mut self.changed) {
                    let live = self.live.get(&claw).map_or(0, BTreeSet::len) as u32;
                    let Some(row) = self.claws.get(&claw) else {
                        return Err(format!(
                            "claw {claw} holds {live} leases at {index} and was never registered"
                        ));
                    };
                    if live > row.slots || live != row.used {
                        return Err(format!(
                            "claw {claw} holds {live} leases at {index}: slots {}, used {}",
                            row.slots, row.used
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawhive_proto::AttemptState::{Dispatched, Succeeded};

    use super::super::tests::*;
    use super::*;

    fn claw(used: u32) -> ClawRow {
        ClawRow { slots: 1, used, ..ClawRow::default() }
    }

    #[test]
    fn too_many_leases_a_wrong_count_and_an_unknown_claw_break_it() {
        let (one, two, done) =
            (attempt(Dispatched, 3, 10), attempt(Dispatched, 3, 20), attempt(Succeeded, 3, 10));
        let (none, full, over) = (claw(0), claw(1), claw(2));
        let row = |after| Fact::Claw { claw: 3, after };
        let judge = |facts: &[Fact<'_>]| verdict(&mut Slots::default(), facts).is_ok();
        let first = || dispatched(0, 1, &one);
        assert!(judge(&[row(&full), first(), entry(1), row(&none), changed(0, 1, &one, &done), entry(2)]));
        assert!(!judge(&[row(&over), first(), dispatched(1, 1, &two), entry(1)]));
        assert!(!judge(&[row(&none), first(), entry(1)]));
        assert!(!judge(&[row(&full), first(), changed(0, 1, &one, &done), entry(2)]));
        assert!(!judge(&[first(), entry(1)]));
    }
}
