//! At most one accepted report per attempt, under the attempt's own token, and at most one accepted success per task.

use std::collections::{BTreeMap, BTreeSet};

use super::Law;
use crate::sim::history::{Fact, Place};

/// The token of each attempt and the reports that were accepted.
#[derive(Default)]
pub(super) struct OneCompletion {
    fences: BTreeMap<(Place, u32), u64>,
    reported: BTreeSet<(Place, u32)>,
    succeeded: BTreeMap<Place, u32>,
}

impl Law for OneCompletion {
    fn name(&self) -> &'static str {
        "one-completion"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Attempt { place, attempt, before: None, after, .. } => {
                self.fences.insert((*place, *attempt), after.fence);
            }
            Fact::Accepted { place, attempt, fence, success } => {
                let of = format!("run {} task {} attempt {attempt}", place.0, place.1);
                match self.fences.get(&(*place, *attempt)) {
                    Some(granted) if granted == fence => {}
                    granted => {
                        return Err(format!("{of}: accepted under token {fence}, granted was {granted:?}"));
                    }
                }
                if !self.reported.insert((*place, *attempt)) {
                    return Err(format!("{of}: a second report was accepted"));
                }
                if *success && let Some(first) = self.succeeded.insert(*place, *attempt) {
                    return Err(format!("{of}: succeeded, and so had attempt {first}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawhive_proto::AttemptState::Dispatched;

    use super::super::tests::*;
    use super::*;

    #[test]
    fn a_second_report_a_second_success_and_a_stale_token_break_it() {
        let (first, second) = (attempt(Dispatched, 1, 10), attempt(Dispatched, 2, 20));
        let start = || [dispatched(0, 1, &first), dispatched(0, 2, &second)];
        let judge = |reports: [Fact<'static>; 2]| {
            let mut law = OneCompletion::default();
            verdict(&mut law, &start()).unwrap();
            verdict(&mut law, &reports)
        };
        let place = (1, 0);
        assert_eq!(judge([accepted(place, 1, 10, false), accepted(place, 2, 20, true)]), Ok(()));
        assert!(judge([accepted(place, 1, 10, false), accepted(place, 1, 10, false)]).is_err());
        assert!(judge([accepted(place, 1, 10, true), accepted(place, 2, 20, true)]).is_err());
        assert!(judge([accepted(place, 2, 20, true), accepted(place, 1, 20, false)]).is_err());
    }
}
