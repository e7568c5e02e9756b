//! Once a run is being stopped or has ended, nothing of it starts any more.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::{Fact, run_ended};

/// The index at which each run was told to stop, or ended.
#[derive(Default)]
pub(super) struct Stopping {
    stopped: BTreeMap<u64, u64>,
}

impl Law for Stopping {
    fn name(&self) -> &'static str {
        "stopping"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::Run { run, index, after, .. } if after.stop.is_some() || run_ended(after.state()) => {
                self.stopped.entry(*run).or_insert(*index);
            }
            Fact::Run { run, after, .. } if self.stopped.contains_key(run) => {
                return Err(format!("run {run} was stopped and is {:?} without a stop", after.state()));
            }
            Fact::Attempt { place, attempt, index, before: None, .. } => {
                if let Some(stopped) = self.stopped.get(&place.0)
                    && stopped < index
                {
                    return Err(format!(
                        "run {} was stopped at {stopped}, and its task {} starts attempt {attempt} at {index}",
                        place.0, place.1
                    ));
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
    use clawhive_proto::RunState;

    use super::super::tests::*;
    use super::*;

    #[test]
    fn a_start_after_the_stop_and_a_forgotten_stop_break_it() {
        let (stop, plain, ended) =
            (stopping(RunState::Cancelled), run(RunState::Running), run(RunState::Failed));
        let judge = |facts: &[Fact<'_>]| verdict(&mut Stopping::default(), facts).is_ok();
        let (early, late) = (attempt(Dispatched, 1, 4), attempt(Dispatched, 1, 6));
        assert!(judge(&[dispatched(0, 1, &early), run_fact(5, Some(&plain), &stop)]));
        assert!(!judge(&[run_fact(5, Some(&plain), &stop), dispatched(0, 1, &late)]));
        assert!(!judge(&[run_fact(5, Some(&plain), &ended), dispatched(0, 1, &late)]));
        assert!(!judge(&[run_fact(5, Some(&plain), &stop), run_fact(6, Some(&stop), &plain)]));
    }
}
