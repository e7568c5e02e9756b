//! Every acknowledged submit is there, on every replica that applied its entry, and at the end it has ended.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::{Fact, run_ended};

/// Runs by the index of their answer.
#[derive(Default)]
pub(super) struct AcknowledgedPresent {
    acknowledged: BTreeMap<u64, u64>,
}

impl Law for AcknowledgedPresent {
    fn name(&self) -> &'static str {
        "acknowledged-present"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Acknowledged { run, index, .. } => {
                self.acknowledged.entry(*run).or_insert(*index);
            }
            Fact::Runs { replica, applied, runs } => {
                for (run, index) in &self.acknowledged {
                    if index <= applied && !runs.contains_key(run) {
                        return Err(format!(
                            "run {run}, acknowledged at {index}, is missing on replica {replica} at {applied}"
                        ));
                    }
                }
            }
            Fact::Rest { runs } => {
                for run in self.acknowledged.keys() {
                    match runs.get(run) {
                        Some(state) if run_ended(*state) => {}
                        Some(state) => {
                            return Err(format!("run {run} was acknowledged and rests as {state:?}"));
                        }
                        None => return Err(format!("run {run} was acknowledged and is gone")),
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
    use clawhive_proto::RunState;

    use super::super::tests::verdict;
    use super::*;

    fn acknowledged() -> Fact<'static> {
        Fact::Acknowledged { run: 7, index: 3, key: None, body: Vec::new() }
    }

    #[test]
    fn a_lost_run_breaks_it_once_its_entry_is_applied() {
        let (none, mut law) = (BTreeMap::new(), AcknowledgedPresent::default());
        let runs = |applied| Fact::Runs { replica: 1, applied, runs: &none };
        assert_eq!(verdict(&mut law, &[acknowledged(), runs(2)]), Ok(()));
        assert!(verdict(&mut law, &[runs(3)]).is_err());
    }

    #[test]
    fn a_run_that_never_ends_breaks_it() {
        for (state, holds) in [(RunState::Failed, true), (RunState::Running, false)] {
            let runs = BTreeMap::from([(7, state)]);
            let facts = [acknowledged(), Fact::Rest { runs: &runs }];
            assert_eq!(verdict(&mut AcknowledgedPresent::default(), &facts).is_ok(), holds);
        }
    }
}
