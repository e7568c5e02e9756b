//! At most one live lease per task; attempts are numbered 1, 2, 3 without a hole; tokens grow and are log indexes.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::{Fact, Place, attempt_live};

/// The newest attempt of a task.
#[derive(Default)]
struct Newest {
    number: u32,
    fence: u64,
    live: bool,
}

/// The newest attempt of each task.
#[derive(Default)]
pub(super) struct OneLease {
    tasks: BTreeMap<Place, Newest>,
}

impl Law for OneLease {
    fn name(&self) -> &'static str {
        "one-lease"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Attempt { place, attempt, index, before, after } = fact else { return Ok(()) };
        let newest = self.tasks.entry(*place).or_default();
        let of = format!("run {} task {} attempt {attempt}", place.0, place.1);
        if before.is_none() {
            if *attempt != newest.number + 1 {
                return Err(format!("{of}: the one before is {}", newest.number));
            }
            if newest.live {
                return Err(format!("{of}: granted while attempt {} holds a lease", newest.number));
            }
            if after.fence <= newest.fence || after.fence != *index {
                return Err(format!(
                    "{of}: token {} at index {index}, the last was {}",
                    after.fence, newest.fence
                ));
            }
            *newest = Newest { number: *attempt, fence: after.fence, live: attempt_live(after.state()) };
        } else if *attempt == newest.number {
            if after.fence != newest.fence {
                return Err(format!("{of}: its token changed from {} to {}", newest.fence, after.fence));
            }
            newest.live = attempt_live(after.state());
        } else if attempt_live(after.state()) {
            return Err(format!("{of}: an old attempt lives again"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawhive_proto::AttemptRow;
    use clawhive_proto::AttemptState::{Dispatched, Failed};

    use super::super::tests::*;
    use super::*;

    fn then(second: &AttemptRow, number: u32, first_ends: bool) -> Result<(), String> {
        let (first, ended) = (attempt(Dispatched, 1, 10), attempt(Failed, 1, 10));
        let mut facts = vec![dispatched(0, 1, &first)];
        if first_ends {
            facts.push(changed(0, 1, &first, &ended));
        }
        facts.push(dispatched(0, number, second));
        verdict(&mut OneLease::default(), &facts)
    }

    #[test]
    fn a_second_lease_a_hole_and_an_old_token_break_it() {
        assert_eq!(then(&attempt(Dispatched, 2, 20), 2, true), Ok(()));
        assert!(then(&attempt(Dispatched, 2, 20), 2, false).is_err());
        assert!(then(&attempt(Dispatched, 2, 20), 3, true).is_err());
        assert!(then(&attempt(Dispatched, 2, 10), 2, true).is_err());
        assert!(then(&attempt(Dispatched, 2, 9), 2, true).is_err());
    }
}
