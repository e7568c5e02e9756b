//! The level of a cluster: what its state may hold. It is part of the state and only grows, once every member can do the
//! next one, so that during an upgrade no node meets a command that it does not know.
//!
//! Level 1 is release 0.1. A new command, or a new field of an old one, belongs to a later level; what a command of an
//! older level stores stays the same byte for byte until the level is raised.

use clawhive_proto::command::Kind;
use clawhive_proto::{Command, Delivery, PutWorkflow, RejectionCode, Workflow};

use crate::halt::{Step, rejected};
use crate::{ReadStore, read};

/// The highest level that this version can do.
pub const LEVEL: u32 = 2;

/// The level of a state; 1 when it was never raised.
pub fn current(view: &dyn ReadStore) -> u32 {
    read::meta(view).level.max(1)
}

/// The level that a command needs.
pub fn needed(command: &Command) -> u32 {
    match &command.kind {
        Some(Kind::PutWorkflow(put)) if put.workflow.as_ref().is_some_and(has_schedules) => 2,
        // Of a later version: this one cannot even carry it.
        None => LEVEL + 1,
        Some(Kind::CheckpointLeases(_)) => 2,
        Some(Kind::FailTask(fail)) if fail.never_started => 2,
        Some(Kind::PutWorkflow(put)) if says_delivery(put) => 2,
        // Raising the level is the one thing that comes before the level is there.
        Some(
            Kind::RaiseLevel(_)
            | Kind::RegisterClaw(_)
            | Kind::ExpireClaw(_)
            | Kind::RenewLeases(_)
            | Kind::PutWorkflow(_)
            | Kind::SubmitRun(_)
            | Kind::AssignTasks(_)
            | Kind::StartTask(_)
            | Kind::CompleteTask(_)
            | Kind::FailTask(_)
            | Kind::FireTimers(_)
            | Kind::CancelRun(_)
            | Kind::Collect(_)
            | Kind::Advance(_)
            | Kind::AddNode(_)
            | Kind::PutKey(_)
            | Kind::DeleteKey(_),
        ) => 1,
        // Whatever came later.
        Some(_) => 2,
    }
}

/// Fields of a workflow that level 1 does not keep.
fn has_schedules(workflow: &Workflow) -> bool {
    !workflow.schedules.is_empty() || workflow.overlap != 0
}

/// Whether a task says how often it may run.
fn says_delivery(put: &PutWorkflow) -> bool {
    let mut tasks = put.workflow.iter().flat_map(|workflow| &workflow.tasks);
    tasks.any(|task| task.delivery != Delivery::AtLeastOnce as i32)
}

/// Refuses a command that the level does not allow. The leader asks before it appends; `apply` asks again.
pub(crate) fn check(command: &Command, level: u32) -> Step<()> {
    let needed = needed(command);
    if needed > level {
        return rejected(RejectionCode::NotYet, alloc::format!("{}", NotYet { needed, level }));
    }
    Ok(())
}

/// A command needs more than the level of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet {
    /// What the command needs.
    pub needed: u32,
    /// What the cluster has.
    pub level: u32,
}

impl core::fmt::Display for NotYet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let NotYet { needed, level } = self;
        write!(
            f,
            "this needs level {needed}, the cluster is at level {level}: some node still runs an older version (`clawhive \
             cluster status` shows which)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemStore, apply};
    use clawhive_proto::{Entry, Outcome, PutKey, RaiseLevel, outcome};

    fn raise(store: &mut MemStore, index: u64, level: u32) -> Result<Outcome, crate::Halt> {
        let command = Command { kind: Some(Kind::RaiseLevel(RaiseLevel { level })) };
        let entry = Entry { version: 1, time_ms: 1, commands: vec![command], ..Entry::default() };
        apply(store, index, &entry).map(|applied| applied.outcomes[0].clone())
    }

    #[test]
    fn a_level_only_grows() {
        let mut store = MemStore::default();
        assert_eq!(current(&store), 1);
        assert!(matches!(raise(&mut store, 1, 2).unwrap().kind, Some(outcome::Kind::Done(_))));
        assert_eq!(current(&store), 2);
        for lower in [0, 1] {
            let outcome = raise(&mut store, 2, lower).unwrap();
            assert!(matches!(outcome.kind, Some(outcome::Kind::Rejected(_))), "{outcome:?}");
        }
        assert!(matches!(raise(&mut store, 3, 2).unwrap().kind, Some(outcome::Kind::Done(_))));
        assert_eq!(current(&store), 2);
    }

    #[test]
    fn a_level_that_this_version_cannot_do_halts() {
        let mut store = MemStore::default();
        let halt = raise(&mut store, 7, LEVEL + 1).unwrap_err().to_string();
        assert!(halt.contains("log entry 7 raises the cluster to level 3; this version"), "{halt}");
        assert_eq!(current(&store), 1);
    }

    #[test]
    fn old_commands_with_new_fields_need_the_new_level() {
        let mut task = clawhive_proto::Task::default();
        task.set_delivery(Delivery::StrictSingle);
        let workflow = clawhive_proto::Workflow { tasks: alloc::vec![task], ..Default::default() };
        let put = PutWorkflow { workflow: Some(workflow), hash: alloc::vec![1], ..PutWorkflow::default() };
        let back = clawhive_proto::FailTask { never_started: true, ..Default::default() };
        for kind in [Kind::PutWorkflow(put), Kind::FailTask(back), Kind::CheckpointLeases(Default::default())]
        {
            assert!(check(&Command { kind: Some(kind) }, 1).is_err());
        }
        let plain = Kind::FailTask(clawhive_proto::FailTask::default());
        assert!(check(&Command { kind: Some(plain) }, 1).is_ok());
    }

    #[test]
    fn old_commands_need_nothing() {
        let command = Command { kind: Some(Kind::PutKey(PutKey::default())) };
        assert!(check(&command, 1).is_ok());
        assert_eq!(needed(&Command { kind: None }), LEVEL + 1);
    }
}
