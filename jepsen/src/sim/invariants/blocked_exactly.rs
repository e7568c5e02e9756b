//! When a run ends by itself, exactly the descendants of failed tasks are `upstream_failed`, and the run failed if and
//! only if a task did. When it was stopped, it ends as the stop says. No task is left behind.

use std::collections::BTreeMap;

use clawhive_proto::{RunRow, RunState, TaskState};

use super::Law;
use crate::sim::history::{Fact, RunTasks, run_ended, task_ended};

/// The tasks of each run, and the runs that ended in the entry being looked at.
#[derive(Default)]
pub(super) struct BlockedExactly {
    runs: BTreeMap<u64, RunTasks>,
    ended: Vec<(u64, RunRow)>,
}

impl Law for BlockedExactly {
    fn name(&self) -> &'static str {
        "blocked-exactly"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::RunCreated { run, graph, .. } => {
                self.runs.entry(*run).or_default().graph = Some(graph.clone());
            }
            Fact::Task { place: (run, task), after, .. } => {
                self.runs.entry(*run).or_default().states.insert(*task, after.state());
            }
            Fact::Run { run, before, after, .. }
                if run_ended(after.state()) && !before.is_some_and(|row| run_ended(row.state())) =>
            {
                self.ended.push((*run, (*after).clone()));
            }
            Fact::Entry { .. } => {
                for (run, row) in std::mem::take(&mut self.ended) {
                    if let Some(tasks) = self.runs.remove(&run) {
                        judge(run, &row, &tasks)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn judge(run: u64, row: &RunRow, tasks: &RunTasks) -> Result<(), String> {
    let count = tasks.graph.as_ref().map_or(0, |graph| graph.needs.len()) as u32;
    let mut failed = false;
    for task in 0..count {
        let state = tasks.state(task);
        if !task_ended(state) {
            return Err(format!("run {run} ended and its task {task} is {state:?}"));
        }
        if row.stop.is_some() {
            continue;
        }
        let blocked = tasks.needs(task).iter().any(|need| tasks.state(*need) != TaskState::Succeeded);
        if blocked != (state == TaskState::UpstreamFailed) {
            return Err(format!(
                "run {run} task {task} ended as {state:?}; an upstream did not succeed: {blocked}"
            ));
        }
        if !matches!(state, TaskState::Succeeded | TaskState::Failed | TaskState::UpstreamFailed) {
            return Err(format!("run {run} was not stopped and its task {task} ended as {state:?}"));
        }
        failed |= state == TaskState::Failed;
    }
    let expected = match &row.stop {
        Some(stop) => stop.state(),
        None if failed => RunState::Failed,
        None => RunState::Succeeded,
    };
    if row.state() == expected {
        Ok(())
    } else {
        Err(format!("run {run} ended as {:?}, not {expected:?}", row.state()))
    }
}

#[cfg(test)]
mod tests {
    use clawhive_proto::TaskState::*;

    use super::super::tests::*;
    use super::*;

    fn ends(states: [TaskState; 3], row: &RunRow) -> Result<(), String> {
        let graph = graph(&[&[], &[0], &[]]);
        let rows = states.map(task);
        let mut facts = vec![created(&graph)];
        facts.extend(rows.iter().enumerate().map(|(position, row)| to(position as u32, row)));
        facts.extend([run_fact(5, None, row), entry(5)]);
        verdict(&mut BlockedExactly::default(), &facts)
    }

    #[test]
    fn the_right_end_states_pass() {
        assert_eq!(ends([Succeeded, Succeeded, Succeeded], &run(RunState::Succeeded)), Ok(()));
        assert_eq!(ends([Failed, UpstreamFailed, Succeeded], &run(RunState::Failed)), Ok(()));
        let cancelled = RunRow { state: RunState::Cancelled.into(), ..stopping(RunState::Cancelled) };
        assert_eq!(ends([Cancelled, Cancelled, Succeeded], &cancelled), Ok(()));
    }

    #[test]
    fn wrong_ones_break_it() {
        assert!(ends([Failed, UpstreamFailed, UpstreamFailed], &run(RunState::Failed)).is_err());
        assert!(ends([Failed, Succeeded, Succeeded], &run(RunState::Failed)).is_err());
        assert!(ends([Failed, UpstreamFailed, Succeeded], &run(RunState::Succeeded)).is_err());
        assert!(ends([Succeeded, Running, Succeeded], &run(RunState::Succeeded)).is_err());
        assert!(ends([Succeeded, Cancelled, Succeeded], &run(RunState::Failed)).is_err());
        let wrong = RunRow { state: RunState::Succeeded.into(), ..stopping(RunState::Cancelled) };
        assert!(ends([Cancelled, Cancelled, Succeeded], &wrong).is_err());
    }
}
