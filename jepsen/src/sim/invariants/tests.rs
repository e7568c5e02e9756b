//! Short makers of facts for the unit tests of the laws.

use std::rc::Rc;

use clawhive_proto::{AttemptRow, AttemptState, Reason, RunRow, RunState, Stop, TaskRow, TaskState};

use super::Law;
use crate::sim::graphs::Graph;
use crate::sim::history::{Fact, Place};

/// The verdict of a law over a history: the first complaint.
pub fn verdict(law: &mut dyn Law, facts: &[Fact<'_>]) -> Result<(), String> {
    facts.iter().try_for_each(|fact| law.see(fact))
}

/// A graph of tasks that need what is listed, each tried at most twice.
pub fn graph(needs: &[&[u32]]) -> Rc<Graph> {
    Rc::new(Graph {
        needs: needs.iter().map(|needs| needs.to_vec()).collect(),
        max_attempts: vec![2; needs.len()],
        ..Graph::default()
    })
}

/// Run 1 of a graph.
pub fn created(graph: &Rc<Graph>) -> Fact<'static> {
    Fact::RunCreated { run: 1, graph: graph.clone(), key: None, time_ms: 0 }
}

/// A task row in a state.
pub fn task(state: TaskState) -> TaskRow {
    TaskRow { state: state.into(), ..TaskRow::default() }
}

/// A task of run 1 goes to a state.
pub fn to(task: u32, after: &TaskRow) -> Fact<'_> {
    Fact::Task { place: (1, task), before: None, after }
}

/// An attempt row of a claw under a token.
pub fn attempt(state: AttemptState, claw: u64, fence: u64) -> AttemptRow {
    AttemptRow { state: state.into(), claw, fence, ..AttemptRow::default() }
}

/// An attempt row that ended as failed.
pub fn failed(reason: Reason) -> AttemptRow {
    AttemptRow { state: AttemptState::Failed.into(), reason: reason.into(), ..AttemptRow::default() }
}

/// A new attempt of a task of run 1.
pub fn dispatched(task: u32, number: u32, after: &AttemptRow) -> Fact<'_> {
    Fact::Attempt { place: (1, task), attempt: number, index: after.fence, before: None, after }
}

/// An attempt of a task of run 1 changes.
pub fn changed<'a>(task: u32, number: u32, before: &'a AttemptRow, after: &'a AttemptRow) -> Fact<'a> {
    Fact::Attempt { place: (1, task), attempt: number, index: 99, before: Some(before), after }
}

/// A run row in a state.
pub fn run(state: RunState) -> RunRow {
    RunRow { state: state.into(), ..RunRow::default() }
}

/// A run row that is being stopped.
pub fn stopping(state: RunState) -> RunRow {
    RunRow { stop: Some(Stop { state: state.into(), ..Stop::default() }), ..run(RunState::Running) }
}

/// Run 1 changes at an index.
pub fn run_fact<'a>(index: u64, before: Option<&'a RunRow>, after: &'a RunRow) -> Fact<'a> {
    Fact::Run { run: 1, index, before, after }
}

/// The end of an entry.
pub fn entry(index: u64) -> Fact<'static> {
    Fact::Entry { index, time_ms: index, request: &[], outcomes: 0, changed: 1, at_ms: index }
}

/// A report that was accepted.
pub fn accepted(place: Place, attempt: u32, fence: u64, success: bool) -> Fact<'static> {
    Fact::Accepted { place, attempt, fence, success }
}
