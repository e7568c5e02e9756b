//! The reference replica, and the facts that the oracles get from it: what changed in the rows, entry by entry. Owns
//! the translation of rows to facts; must not judge.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clawhive_proto::command::Kind;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    AttemptRow, ClawRow, Entry, Outcome, Reason, RejectionCode, RunRow, RunState, TaskRow, TaskState,
};
use clawhive_statemachine::{Halt, ReadStore, Table, Value};

use super::graphs::Graph;
use super::history::{Fact, run_ended, task_ended};
use super::invariants::Judge;
use super::profile::{Effect, Effects};
use super::replica::{Changes, Replica};

/// The replica that applies each entry at once, and what is known from it.
#[derive(Default)]
pub struct Audit {
    /// The reference.
    pub reference: Replica,
    /// Every run by its id.
    pub runs: BTreeMap<u64, RunState>,
    /// The graph of every run.
    pub graphs: BTreeMap<u64, Rc<Graph>>,
    /// Runs that have not ended.
    pub active: BTreeSet<u64>,
    /// Every graph that clients know, by content hash.
    pub known: BTreeMap<Vec<u8>, Rc<Graph>>,
    /// The graph of each stored version, by workflow name and version.
    pub versions: BTreeMap<(String, u64), Rc<Graph>>,
    /// Tasks that succeeded.
    pub tasks_succeeded: u64,
    /// Virtual time, kept by the world.
    pub at_ms: u64,
    last_ms: u64,
    requests: BTreeSet<Vec<u8>>,
}

fn number(key: &[u8], at: usize) -> u64 {
    key.get(at..at + 8).map_or(0, |bytes| bytes.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
}

fn short(key: &[u8], at: usize) -> u32 {
    key.get(at..at + 4).map_or(0, |bytes| bytes.iter().fold(0, |sum, byte| (sum << 8) | u32::from(*byte)))
}

fn decode<R: Message + Default>(judge: &mut Judge, value: Option<&Value>) -> Option<R> {
    let decoded = R::decode(value?.clone());
    if let Err(error) = &decoded {
        judge.fail("rows-decode", error.to_string());
    }
    decoded.ok()
}

impl Audit {
    /// Applies an entry to the reference and shows the judge what it did.
    pub fn apply(
        &mut self,
        entry: &Entry,
        judge: &mut Judge,
        effects: &mut Effects,
        steps: u32,
    ) -> Result<(Vec<Outcome>, u64), Halt> {
        let mut changes = Changes::new();
        let done = self.reference.apply(entry, steps, Some(&mut changes))?;
        effects.count(Effect::TimeWentBack, u64::from(entry.time_ms < self.last_ms));
        self.last_ms = self.last_ms.max(entry.time_ms);
        let index = self.reference.applied;
        let time_ms = self.last_ms;

        let rows = changes
            .iter()
            .filter(|((table, key), old)| {
                *table != Table::Meta && self.reference.store.get(*table, key) != **old
            })
            .count();
        let repeated =
            !entry.request_id.is_empty() && !self.requests.insert(entry.request_id.clone()) && rows == 0;
        effects.count(Effect::RequestRepeated, u64::from(repeated));
        if !repeated {
            for (command, outcome) in entry.commands.iter().zip(&done.outcomes) {
                if let (Some(kind), Some(answer)) = (&command.kind, &outcome.kind) {
                    self.command_done(kind, answer, judge, effects);
                }
            }
        }
        self.runs_changed(&changes, judge, effects, time_ms);
        for ((table, key), old) in &changes {
            let new = self.reference.store.get(*table, key);
            if new.as_ref() == old.as_ref() {
                continue;
            }
            row_changed(*table, key, (old.as_ref(), new.as_ref()), index, judge, effects);
        }
        judge.see(&Fact::Entry {
            index,
            time_ms,
            request: &entry.request_id,
            outcomes: done.outcomes_hash,
            changed: rows,
            at_ms: self.at_ms,
        });
        Ok((done.outcomes, done.outcomes_hash))
    }

    /// Runs come first: the laws need the graph before the tasks.
    fn runs_changed(&mut self, changes: &Changes, judge: &mut Judge, effects: &mut Effects, time_ms: u64) {
        let index = self.reference.applied;
        for ((_, key), old) in changes.range((Table::Runs, Vec::new())..(Table::Tasks, Vec::new())) {
            let run = number(key, 0);
            let new = self.reference.store.get(Table::Runs, key);
            let before: Option<RunRow> = decode(judge, old.as_ref());
            let Some(after) = decode::<RunRow>(judge, new.as_ref()) else {
                self.runs.remove(&run);
                self.active.remove(&run);
                judge.see(&Fact::RunGone { run });
                continue;
            };
            if before.is_none() {
                let Some(graph) = self.versions.get(&(after.workflow.clone(), after.version)) else {
                    judge.fail("known-versions", format!("run {run} is of a version that nobody put"));
                    continue;
                };
                self.graphs.insert(run, graph.clone());
                self.active.insert(run);
                let key = (!after.idempotency_key.is_empty())
                    .then(|| (after.namespace.clone(), after.idempotency_key.clone()));
                judge.see(&Fact::RunCreated { run, graph: graph.clone(), key, time_ms });
            }
            self.runs.insert(run, after.state());
            if run_ended(after.state()) && self.active.remove(&run) {
                effects.count(Effect::RunCancelled, u64::from(after.state() == RunState::Cancelled));
            }
            judge.see(&Fact::Run { run, index, before: before.as_ref(), after: &after });
        }
    }

    fn command_done(&mut self, kind: &Kind, answer: &Answer, judge: &mut Judge, effects: &mut Effects) {
        let rejected = match answer {
            Answer::Rejected(rejection) => Some(rejection.code()),
            _ => None,
        };
        let done = matches!(answer, Answer::Done(_));
        match (kind, answer) {
            (Kind::PutWorkflow(put), Answer::WorkflowPut(it)) => {
                if let (Some(workflow), Some(graph)) = (&put.workflow, self.known.get(&put.hash)) {
                    self.versions.entry((workflow.name.clone(), it.version)).or_insert_with(|| graph.clone());
                }
            }
            (Kind::AssignTasks(_), Answer::Granted(it)) => {
                effects.count(Effect::StaleGrant, u64::from(it.stale))
            }
            (Kind::Advance(_), Answer::Progress(it)) => {
                effects.count(Effect::Advanced, u64::from(it.done > 0))
            }
            (Kind::SubmitRun(_), Answer::RunSubmitted(it)) => {
                effects.count(Effect::KeyReplayed, u64::from(it.replayed));
            }
            (Kind::ExpireClaw(_), _) => {
                effects.count(Effect::StaleExpiry, u64::from(rejected == Some(RejectionCode::Renewed)));
            }
            (Kind::CompleteTask(it), _) if done => {
                self.tasks_succeeded += 1;
                let place = (it.run, it.task);
                judge.see(&Fact::Accepted { place, attempt: it.attempt, fence: it.fence, success: true });
            }
            (Kind::FailTask(it), _) if done && it.attempt > 0 => {
                let place = (it.run, it.task);
                judge.see(&Fact::Accepted { place, attempt: it.attempt, fence: it.fence, success: false });
            }
            (Kind::CompleteTask(_) | Kind::FailTask(_) | Kind::StartTask(_), _) => {
                let stale = matches!(rejected, Some(RejectionCode::StaleFence | RejectionCode::WrongState));
                effects.count(Effect::StaleReport, u64::from(stale));
            }
            _ => {}
        }
    }

    /// How many runs succeeded.
    pub fn succeeded(&self) -> usize {
        self.runs.values().filter(|state| **state == RunState::Succeeded).count()
    }
}

fn row_changed(
    table: Table,
    key: &[u8],
    (old, new): (Option<&Value>, Option<&Value>),
    index: u64,
    judge: &mut Judge,
    effects: &mut Effects,
) {
    let place = (number(key, 0), short(key, 8));
    match table {
        Table::Tasks => {
            let before: Option<TaskRow> = decode(judge, old);
            let Some(after) = decode::<TaskRow>(judge, new) else { return };
            let from = before.as_ref().map_or(TaskState::Unspecified, |row| row.state());
            let entered = |state| from != state && after.state() == state;
            effects.count(Effect::Retried, u64::from(entered(TaskState::Retrying)));
            effects.count(Effect::TaskFailed, u64::from(entered(TaskState::Failed) && !task_ended(from)));
            judge.see(&Fact::Task { place, before: before.as_ref(), after: &after });
        }
        Table::Attempts => {
            let before: Option<AttemptRow> = decode(judge, old);
            let Some(after) = decode::<AttemptRow>(judge, new) else { return };
            let lost = after.reason() == Reason::LostClaw && before.as_ref().is_some_and(|row| row != &after);
            effects.count(Effect::AttemptLost, u64::from(lost));
            let attempt = short(key, 12);
            judge.see(&Fact::Attempt { place, attempt, index, before: before.as_ref(), after: &after });
        }
        Table::Claws => {
            if let Some(after) = decode::<ClawRow>(judge, new) {
                judge.see(&Fact::Claw { claw: number(key, 0), after: &after });
            }
        }
        _ => {}
    }
}
