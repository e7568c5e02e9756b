//! A run with `max_parallel` never has more tasks than that leased, nor more in the ready index and leased together.

use std::collections::{BTreeMap, BTreeSet};

use clawhive_proto::TaskState;

use super::Law;
use crate::sim::history::Fact;

/// The admitted tasks of each run that has a limit.
#[derive(Default)]
pub(super) struct MaxParallel {
    limits: BTreeMap<u64, u32>,
    admitted: BTreeMap<u64, BTreeSet<u32>>,
    changed: BTreeSet<u64>,
}

impl Law for MaxParallel {
    fn name(&self) -> &'static str {
        "max-parallel"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::RunCreated { run, graph, .. } if graph.max_parallel > 0 => {
                self.limits.insert(*run, graph.max_parallel);
            }
            Fact::Task { place: (run, task), after, .. } => {
                let admitted = match after.state() {
                    TaskState::Dispatched | TaskState::Running => true,
                    TaskState::Ready => !after.held,
                    _ => false,
                };
                let tasks = self.admitted.entry(*run).or_default();
                if if admitted { tasks.insert(*task) } else { tasks.remove(task) } {
                    self.changed.insert(*run);
                }
            }
            Fact::Entry { index, .. } => {
                for run in std::mem::take(&mut self.changed) {
                    let Some(limit) = self.limits.get(&run) else { continue };
                    let count = self.admitted[&run].len();
                    if count > *limit as usize {
                        return Err(format!(
                            "run {run} has {count} tasks admitted at {index}, max_parallel is {limit}"
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
    use std::rc::Rc;

    use super::super::tests::*;
    use super::*;
    use crate::sim::graphs::Graph;

    #[test]
    fn one_task_too_many_breaks_it() {
        let graph = Rc::new(Graph { max_parallel: 1, ..Graph::clone(&graph(&[&[], &[]])) });
        let (ready, running, ended) =
            (task(TaskState::Ready), task(TaskState::Running), task(TaskState::Failed));
        let held = clawhive_proto::TaskRow { held: true, ..ready.clone() };
        let mut law = MaxParallel::default();
        let fine = [
            created(&graph),
            to(0, &running),
            to(1, &held),
            entry(1),
            to(0, &ended),
            to(1, &ready),
            entry(2),
        ];
        assert_eq!(verdict(&mut law, &fine), Ok(()));
        assert!(verdict(&mut law, &[to(0, &running), entry(3)]).is_err());
    }
}
