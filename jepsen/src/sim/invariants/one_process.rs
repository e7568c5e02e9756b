//! No two processes of one task run at once: a claw that lost its lease stops before anyone else may start. Judged
//! only where claws are not paused; elsewhere the token protects, not time.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::{Fact, Place};

/// The token under which each task runs now.
#[derive(Default)]
pub(super) struct OneProcess {
    running: BTreeMap<Place, u64>,
}

impl Law for OneProcess {
    fn name(&self) -> &'static str {
        "one-process"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Began { place, fence, at_ms } => {
                if let Some(other) = self.running.insert(*place, *fence) {
                    return Err(format!(
                        "run {} task {}: started under token {fence} at {at_ms} ms while token {other} still runs",
                        place.0, place.1
                    ));
                }
            }
            Fact::Gone { place, fence } if self.running.get(place) == Some(fence) => {
                self.running.remove(place);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::verdict;
    use super::*;

    #[test]
    fn two_processes_of_one_task_at_once_break_it() {
        let began = |fence| Fact::Began { place: (1, 2), fence, at_ms: 0 };
        let gone = |fence| Fact::Gone { place: (1, 2), fence };
        assert_eq!(verdict(&mut OneProcess::default(), &[began(1), gone(1), began(2), gone(2)]), Ok(()));
        assert!(verdict(&mut OneProcess::default(), &[began(1), began(2)]).is_err());
    }
}
