//! Which ready task goes to which claw: tasks in the order of the ready index, each to the least loaded claw, the
//! leader's own claw only when no other has a slot.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use clawhive_proto::Grant;
use core::ops::ControlFlow;

use crate::ids::{RunId, TaskIndex};
use crate::plan::slots::Slots;
use crate::read::{self, sound_key};
use crate::{ReadStore, Table, key};

/// What the leader knows that the state does not.
#[derive(Clone, Copy, Debug)]
pub struct AssignInput<'a> {
    /// Claws with a fresh heartbeat.
    pub live: &'a BTreeSet<u64>,
    /// The leader's own node: its claw comes last.
    pub leader: u64,
    /// At most so many grants.
    pub limit: usize,
}

/// Plans grants; none are resolved. The caller resolves templates (`Task.templated`) before it proposes.
pub fn plan(view: &dyn ReadStore, input: &AssignInput<'_>) -> Vec<Grant> {
    if read::cluster(view).suspended {
        return Vec::new();
    }
    let mut slots = Slots::new(view, input, &BTreeMap::new());
    let limit = input.limit.min(usize::try_from(slots.free()).unwrap_or(usize::MAX));
    let mut grants = Vec::new();
    if limit == 0 {
        return grants;
    }
    view.scan(Table::Ready, &[], None, &mut |ready_key, value| {
        let (run, task) = sound_key(Table::Ready, ready_key, key::parse_task(value));
        match grant(view, &mut slots, run, task, None) {
            Some(grant) => grants.push(grant),
            None => return ControlFlow::Break(()),
        }
        if grants.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    grants
}

/// Grants the next attempt of a task to a claw with a slot; none when no claw has one.
pub(crate) fn grant(
    view: &dyn ReadStore,
    slots: &mut Slots,
    run: RunId,
    task: TaskIndex,
    wish: Option<u64>,
) -> Option<Grant> {
    let attempt = read::task(view, run, task)?.attempt.checked_add(1)?;
    let claw = slots.take(wish)?;
    Some(Grant { run: run.0, task: task.0, attempt, claw, resolved: None })
}
