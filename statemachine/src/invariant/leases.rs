//! At most one claw holds an attempt, and slots are exactly the attempts that are held.

use alloc::collections::BTreeMap;
use alloc::format;
use clawhive_proto::{AttemptState, ClawState, TaskState};

use crate::ids::{AttemptNumber, RunId, TaskIndex};
use crate::invariant::Findings;
use crate::invariant::snapshot::Snapshot;
use crate::state;

pub(super) fn check(snapshot: &Snapshot, findings: &mut Findings) {
    slots(snapshot, findings);
    assignments(snapshot, findings);
    attempts(snapshot, findings);
}

fn slots(snapshot: &Snapshot, findings: &mut Findings) {
    let mut held = BTreeMap::new();
    for (claw, ..) in snapshot.assignments.keys() {
        *held.entry(*claw).or_insert(0u32) += 1;
        findings
            .expect(snapshot.claws.contains_key(claw), "an assignment has a claw", || format!("claw {claw}"));
    }
    for (claw, row) in &snapshot.claws {
        let held = held.get(claw).copied().unwrap_or(0);
        findings.expect(row.used == held, "slots used are the live assignments", || {
            format!("claw {claw} uses {} and holds {held}", row.used)
        });
        findings.expect(row.used <= row.slots, "no claw uses more slots than it has", || {
            format!("claw {claw} uses {} of {}", row.used, row.slots)
        });
        findings.expect(
            row.state() != ClawState::Down || held == 0,
            "a claw that is down holds nothing",
            || format!("claw {claw} holds {held}"),
        );
    }
}

fn assignments(snapshot: &Snapshot, findings: &mut Findings) {
    let mut by_task: BTreeMap<(RunId, TaskIndex), u32> = BTreeMap::new();
    for ((claw, fence, run, task), assignment) in &snapshot.assignments {
        *by_task.entry((*run, *task)).or_insert(0) += 1;
        let row = snapshot.tasks.get(&(*run, *task));
        let same = row.is_some_and(|row| {
            state::task_live(row.state())
                && row.fence == fence.0
                && row.claw == claw.0
                && row.attempt == assignment.attempt
        });
        findings.expect(same, "an assignment is of a task that is held under its token", || {
            format!("run {run} task {task} token {fence} claw {claw}: {row:?}")
        });
        let stopping = snapshot.runs.get(run).is_some_and(|run| run.stop.is_some());
        findings.expect(!assignment.stop || stopping, "only a run being stopped stops its attempts", || {
            format!("run {run} task {task}")
        });
    }
    for ((run, task), row) in &snapshot.tasks {
        let held = by_task.get(&(*run, *task)).copied().unwrap_or(0);
        let wanted = u32::from(state::task_live(row.state()));
        findings.expect(held == wanted, "a task has one assignment while dispatched or running", || {
            format!("run {run} task {task} is {:?} with {held}", row.state())
        });
        findings.expect(
            state::task_live(row.state()) == (row.fence > 0),
            "only a held task has a token",
            || format!("run {run} task {task}: {row:?}"),
        );
    }
}

fn attempts(snapshot: &Snapshot, findings: &mut Findings) {
    let mut last_fence: BTreeMap<(RunId, TaskIndex), u64> = BTreeMap::new();
    for ((run, task, number), attempt) in &snapshot.attempts {
        let Some(row) = snapshot.tasks.get(&(*run, *task)) else {
            let dropped = !snapshot.runs.contains_key(run);
            findings.expect(dropped, "an attempt has a task", || format!("run {run} task {task}"));
            continue;
        };
        let place = || format!("run {run} task {task} attempt {number}");
        findings.expect((1..=row.attempt).contains(&number.0), "attempts are contiguous", place);
        let live = !state::attempt_ended(attempt.state());
        let current = number.0 == row.attempt && state::task_live(row.state());
        findings.expect(live == current, "exactly the current attempt of a held task is live", place);
        findings.expect(
            !live || (attempt.fence, attempt.claw) == (row.fence, row.claw),
            "one lease per attempt",
            place,
        );
        let expected = match row.state() {
            TaskState::Dispatched => AttemptState::Dispatched,
            _ => AttemptState::Running,
        };
        findings.expect(
            !live || attempt.state() == expected,
            "an attempt is in the state of its task",
            place,
        );
        let last = last_fence.insert((*run, *task), attempt.fence);
        findings.expect(
            last.is_none_or(|last| last < attempt.fence),
            "tokens of a task grow strictly",
            place,
        );
    }
    for ((run, task), row) in &snapshot.tasks {
        if !snapshot.runs.contains_key(run) {
            continue;
        }
        for number in 1..=row.attempt {
            let exists = snapshot.attempts.contains_key(&(*run, *task, AttemptNumber(number)));
            findings.expect(exists, "attempts are contiguous", || {
                format!("run {run} task {task} lacks {number}")
            });
        }
    }
}
