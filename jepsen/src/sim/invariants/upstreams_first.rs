//! No task becomes ready, starts or ends as tried before every upstream of it has succeeded.

use std::collections::BTreeMap;

use clawhive_proto::TaskState;

use super::Law;
use crate::sim::history::{Fact, RunTasks};

/// The tasks of each run.
#[derive(Default)]
pub(super) struct UpstreamsFirst {
    runs: BTreeMap<u64, RunTasks>,
    changed: Vec<u64>,
}

impl Law for UpstreamsFirst {
    fn name(&self) -> &'static str {
        "upstreams-first"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::RunCreated { run, graph, .. } => {
                self.runs.entry(*run).or_default().graph = Some(graph.clone());
            }
            Fact::RunGone { run } => {
                self.runs.remove(run);
            }
            Fact::Task { place: (run, task), after, .. } => {
                let tasks = self.runs.entry(*run).or_default();
                tasks.states.insert(*task, after.state());
                tasks.changed.insert(*task);
                self.changed.push(*run);
            }
            Fact::Entry { index, .. } => {
                for run in std::mem::take(&mut self.changed) {
                    let Some(tasks) = self.runs.get_mut(&run) else { continue };
                    for task in std::mem::take(&mut tasks.changed) {
                        judge(run, task, tasks).map_err(|what| format!("{what} at {index}"))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn judge(run: u64, task: u32, tasks: &RunTasks) -> Result<(), String> {
    use TaskState::*;
    let state = tasks.state(task);
    if !matches!(state, Ready | Dispatched | Running | Retrying | Succeeded | Failed) {
        return Ok(());
    }
    match tasks.needs(task).iter().find(|need| tasks.state(**need) != Succeeded) {
        None => Ok(()),
        Some(need) => Err(format!(
            "run {run} task {task} is {state:?} and its upstream {need} is {:?}",
            tasks.state(*need)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;

    #[test]
    fn a_task_before_its_upstream_breaks_it() {
        let graph = graph(&[&[], &[0]]);
        let judge = |upstream, state| {
            let (upstream, row) = (task(upstream), task(state));
            let facts = [created(&graph), to(1, &row), to(0, &upstream), entry(1)];
            verdict(&mut UpstreamsFirst::default(), &facts).is_ok()
        };
        assert!(judge(TaskState::Running, TaskState::Pending));
        assert!(judge(TaskState::Succeeded, TaskState::Ready));
        assert!(judge(TaskState::Failed, TaskState::UpstreamFailed));
        assert!(!judge(TaskState::Running, TaskState::Ready));
        assert!(!judge(TaskState::Failed, TaskState::Running));
    }
}
