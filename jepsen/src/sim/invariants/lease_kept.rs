//! A lease never ends before the time that its claw was told: an expiry by an old view, or by a leader that slept, is
//! ignored, and no clock that jumps has a say.

use std::collections::BTreeMap;

use clawhive_proto::{ClawState, Reason};

use super::Law;
use crate::sim::history::{Fact, attempt_live};

/// What each claw was told.
#[derive(Default)]
struct Lease {
    incarnation: Vec<u8>,
    until_ms: u64,
}

/// The leases by claw, and whose attempts were lost in the entry being looked at.
#[derive(Default)]
pub(super) struct LeaseKept {
    leases: BTreeMap<u64, Lease>,
    lost: Vec<u64>,
}

impl Law for LeaseKept {
    fn name(&self) -> &'static str {
        "lease-kept"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::LeaseTold { claw, incarnation, until_ms } => {
                let lease = self.leases.entry(*claw).or_default();
                *lease = Lease { incarnation: incarnation.to_vec(), until_ms: *until_ms };
            }
            // Another process of the node: what the old one was told no longer counts.
            Fact::Claw { claw, after }
                if after.state() == ClawState::Active
                    && self.leases.get(claw).is_some_and(|lease| lease.incarnation != after.incarnation) =>
            {
                self.leases.remove(claw);
            }
            Fact::Attempt { before: Some(before), after, .. }
                if attempt_live(before.state()) && after.reason() == Reason::LostClaw =>
            {
                self.lost.push(after.claw);
            }
            Fact::Entry { index, at_ms, .. } => {
                for claw in std::mem::take(&mut self.lost) {
                    let until_ms = self.leases.get(&claw).map_or(0, |lease| lease.until_ms);
                    if until_ms > *at_ms {
                        return Err(format!(
                            "claw {claw} lost an attempt at {index}, {at_ms} ms; it was told its lease lasts until \
                             {until_ms} ms"
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
    use clawhive_proto::AttemptState::{Failed, Running};
    use clawhive_proto::{AttemptRow, ClawRow};

    use super::super::tests::*;
    use super::*;

    #[test]
    fn an_attempt_lost_within_the_lease_breaks_it() {
        let live = attempt(Running, 3, 10);
        let lost = AttemptRow { reason: Reason::LostClaw.into(), ..attempt(Failed, 3, 10) };
        let told = |until_ms| Fact::LeaseTold { claw: 3, incarnation: b"a", until_ms };
        let judge = |facts: &[Fact<'_>]| verdict(&mut LeaseKept::default(), facts).is_ok();
        assert!(judge(&[told(50), changed(0, 1, &live, &lost), entry(50)]));
        assert!(!judge(&[told(51), changed(0, 1, &live, &lost), entry(50)]));
        let again = ClawRow { incarnation: b"b".to_vec(), ..ClawRow::default() };
        let registered = Fact::Claw { claw: 3, after: &again };
        assert!(judge(&[told(51), changed(0, 1, &live, &lost), registered, entry(50)]));
    }
}
