//! What has ended stays as it ended: runs, tasks and attempts.

use super::Law;
use crate::sim::history::{Fact, attempt_live, run_ended, task_ended};

/// Needs no memory: each fact holds the row before and after.
pub(super) struct TerminalStays;

impl Law for TerminalStays {
    fn name(&self) -> &'static str {
        "terminal-stays"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let (what, from, to) = match fact {
            Fact::Run { run, before: Some(before), after, .. }
                if run_ended(before.state())
                    && (before.state, before.reason, before.ended_at_ms)
                        != (after.state, after.reason, after.ended_at_ms) =>
            {
                (format!("run {run}"), format!("{:?}", before.state()), format!("{:?}", after.state()))
            }
            Fact::Task { place, before: Some(before), after }
                if task_ended(before.state())
                    && (before.state, before.reason, before.attempt, before.ended_at_ms)
                        != (after.state, after.reason, after.attempt, after.ended_at_ms) =>
            {
                (format!("task {place:?}"), format!("{:?}", before.state()), format!("{:?}", after.state()))
            }
            Fact::Attempt { place, attempt, before: Some(before), after, .. }
                if !attempt_live(before.state()) && before != after =>
            {
                let what = format!("attempt {attempt} of task {place:?}");
                (what, format!("{:?}", before.state()), format!("{:?}", after.state()))
            }
            _ => return Ok(()),
        };
        Err(format!("{what} had ended as {from} and changed to {to}"))
    }
}

#[cfg(test)]
mod tests {
    use clawhive_proto::{AttemptState, RunState, TaskState};

    use super::super::tests::*;
    use super::*;

    #[test]
    fn leaving_an_end_state_breaks_it() {
        let see = |fact| TerminalStays.see(&fact).is_ok();
        let (running, ended) = (run(RunState::Running), run(RunState::Succeeded));
        assert!(see(run_fact(1, Some(&running), &ended)) && see(run_fact(1, Some(&ended), &ended)));
        assert!(!see(run_fact(1, Some(&ended), &running)));
        let (active, done) = (task(TaskState::Running), task(TaskState::Succeeded));
        let change = |before, after| Fact::Task { place: (1, 0), before: Some(before), after };
        assert!(see(change(&active, &done)));
        assert!(!see(change(&done, &active)));
        let (live, dead) = (attempt(AttemptState::Running, 1, 5), attempt(AttemptState::Succeeded, 1, 5));
        assert!(see(changed(0, 1, &live, &dead)));
        assert!(!see(changed(0, 1, &dead, &live)));
    }
}
