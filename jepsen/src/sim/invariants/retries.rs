//! Tries are counted right: a lost attempt is no try, three in a row are forgiven for each try, nothing is tried more
//! often than allowed, and nothing is given up while a try is left. A task that must not run twice has one try and no loss.

use std::collections::BTreeMap;
use std::rc::Rc;

use clawhive_proto::{AttemptState, Reason, TaskState};

use super::Law;
use crate::sim::graphs::Graph;
use crate::sim::history::{Fact, Place, attempt_live};

/// Losses in a row that are forgiven.
const FORGIVEN: u32 = 3;

/// What an oracle counted for a task.
#[derive(Clone, Copy, Default)]
struct Count {
    attempts: u32,
    tries: u32,
    losses: u32,
}

/// The counts of each task, and what changed in the entry being looked at.
#[derive(Default)]
pub(super) struct Retries {
    graphs: BTreeMap<u64, Rc<Graph>>,
    counts: BTreeMap<Place, Count>,
    changed: BTreeMap<Place, (TaskState, Reason, u32, u32)>,
}

impl Law for Retries {
    fn name(&self) -> &'static str {
        "retries"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::RunCreated { run, graph, .. } => {
                self.graphs.insert(*run, graph.clone());
            }
            Fact::Attempt { place, before, after, .. } => {
                let count = self.counts.entry(*place).or_default();
                count.attempts += u32::from(before.is_none());
                let was_live = before.is_none_or(|row| attempt_live(row.state()));
                // A claw that gives an attempt up is as if the claw were lost.
                match after.state() {
                    AttemptState::Cancelled if was_live => count.losses += 1,
                    AttemptState::Failed if was_live && after.reason() == Reason::LostClaw => {
                        count.losses += 1
                    }
                    AttemptState::Failed if was_live => {
                        count.tries += 1;
                        count.losses = 0;
                    }
                    _ => {}
                }
            }
            Fact::Task { place, before, after } if before.is_none_or(|row| row.state != after.state) => {
                self.changed.insert(*place, (after.state(), after.reason(), after.tries, after.losses));
            }
            Fact::Entry { index, .. } => {
                for (place, row) in std::mem::take(&mut self.changed) {
                    let Some(graph) = self.graphs.get(&place.0) else { continue };
                    let once = graph.is_at_most_once(place.1);
                    let most = if once { 1 } else { graph.max_attempts[place.1 as usize] };
                    let forgiven = if once { 0 } else { FORGIVEN };
                    let count = self.counts.get(&place).copied().unwrap_or_default();
                    judge(count, most, forgiven, row)
                        .map_err(|what| format!("run {} task {} at {index}: {what}", place.0, place.1))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn judge(count: Count, most: u32, forgiven: u32, row: (TaskState, Reason, u32, u32)) -> Result<(), String> {
    let (state, reason, tries, losses) = row;
    if count.tries > most {
        return Err(format!("{} tries, allowed are {most}", count.tries));
    }
    if count.attempts > most * (forgiven + 1) {
        return Err(format!(
            "{} attempts, allowed are {most} tries and {forgiven} losses for each",
            count.attempts
        ));
    }
    match state {
        TaskState::Retrying if count.tries >= most => {
            Err(format!("waits for try {} of {most}", count.tries + 1))
        }
        TaskState::Retrying | TaskState::Ready | TaskState::Dispatched
            if (tries, losses) != (count.tries, count.losses) =>
        {
            Err(format!(
                "the row says {tries} tries and {losses} losses, counted were {} and {}",
                count.tries, count.losses
            ))
        }
        TaskState::Ready if count.losses > forgiven => Err(format!("{} losses were forgiven", count.losses)),
        TaskState::Failed
            if count.tries < most
                && count.losses <= forgiven
                && !matches!(reason, Reason::TemplateError | Reason::QueueTimeout) =>
        {
            Err(format!("given up for {reason:?} after {} of {most} tries", count.tries))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clawhive_proto::{AttemptRow, TaskRow};

    use super::super::tests::*;
    use super::*;

    fn ends(reasons: &[Reason], state: TaskState, tries: u32, losses: u32) -> Result<(), String> {
        let graph = graph(&[&[]]);
        let live = attempt(AttemptState::Running, 1, 1);
        let rows: Vec<AttemptRow> = reasons.iter().map(|reason| failed(*reason)).collect();
        let row = TaskRow { tries, losses, ..task(state) };
        let mut facts = vec![created(&graph)];
        for (position, row) in rows.iter().enumerate() {
            facts.push(dispatched(0, position as u32 + 1, &live));
            facts.push(changed(0, position as u32 + 1, &live, row));
        }
        facts.extend([to(0, &row), entry(9)]);
        verdict(&mut Retries::default(), &facts)
    }

    #[test]
    fn right_counts_pass() {
        use Reason::{Exit, LostClaw};
        assert_eq!(ends(&[Exit], TaskState::Retrying, 1, 0), Ok(()));
        assert_eq!(ends(&[Exit, Exit], TaskState::Failed, 2, 0), Ok(()));
        assert_eq!(ends(&[LostClaw, LostClaw, LostClaw], TaskState::Ready, 0, 3), Ok(()));
        assert_eq!(ends(&[LostClaw; 4], TaskState::Failed, 0, 4), Ok(()));
        assert_eq!(ends(&[LostClaw, LostClaw, Exit, LostClaw], TaskState::Ready, 1, 1), Ok(()));
    }

    #[test]
    fn wrong_counts_break_it() {
        use Reason::{Exit, LostClaw};
        assert!(ends(&[Exit, Exit], TaskState::Retrying, 2, 0).is_err(), "a try too many");
        assert!(ends(&[Exit], TaskState::Failed, 1, 0).is_err(), "given up early");
        assert!(ends(&[LostClaw], TaskState::Ready, 1, 0).is_err(), "a loss counted as a try");
        assert!(ends(&[Exit], TaskState::Retrying, 2, 0).is_err(), "a try counted twice");
        assert!(ends(&[LostClaw; 4], TaskState::Ready, 0, 4).is_err(), "a loss too many forgiven");
        assert!(ends(&[Exit, Exit, Exit], TaskState::Failed, 3, 0).is_err(), "more tries than allowed");
    }
}
