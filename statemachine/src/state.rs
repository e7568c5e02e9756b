//! The tables of legal transitions. Whatever is not in them is a rejection with code WRONG_STATE.

use alloc::format;
use clawhive_proto::{AttemptState, RejectionCode, RunState, TaskState};

use crate::halt::{Step, rejected};
use crate::names;

use TaskState::{
    Cancelled, Dispatched, Failed, Pending, Ready, Retrying, Running, Succeeded, UpstreamFailed,
};

/// Every legal transition of a task.
pub const TASK_TRANSITIONS: &[(TaskState, TaskState)] = &[
    // All upstreams succeeded.
    (Pending, Ready),
    // All upstreams ended, not all of them well.
    (Pending, UpstreamFailed),
    // The run is being stopped.
    (Pending, Cancelled),
    (Ready, Cancelled),
    (Retrying, Cancelled),
    // The attempt ended because the run is being stopped.
    (Dispatched, Cancelled),
    (Running, Cancelled),
    // A claw took it.
    (Ready, Dispatched),
    // Too long in the ready index, or a template that does not resolve.
    (Ready, Failed),
    (Dispatched, Running),
    // A report that overtakes the one of the start.
    (Dispatched, Succeeded),
    (Running, Succeeded),
    (Dispatched, Failed),
    (Running, Failed),
    (Dispatched, Retrying),
    (Running, Retrying),
    // Lost with its claw: runs again at once.
    (Dispatched, Ready),
    (Running, Ready),
    // The retry time has come.
    (Retrying, Ready),
];

/// Every legal transition of a run.
pub const RUN_TRANSITIONS: &[(RunState, RunState)] = &[
    // The first task was dispatched.
    (RunState::Pending, RunState::Running),
    // Ended before anything was dispatched.
    (RunState::Pending, RunState::Failed),
    (RunState::Pending, RunState::Cancelled),
    (RunState::Running, RunState::Succeeded),
    (RunState::Running, RunState::Failed),
    (RunState::Running, RunState::Cancelled),
];

/// True for the states a task never leaves.
pub const fn task_ended(state: TaskState) -> bool {
    matches!(
        state,
        Succeeded | Failed | Cancelled | TaskState::Skipped | UpstreamFailed | TaskState::Quarantined
    )
}

/// True while a claw holds the task.
pub const fn task_live(state: TaskState) -> bool {
    matches!(state, Dispatched | Running)
}

/// True for the states a run never leaves.
pub const fn run_ended(state: RunState) -> bool {
    matches!(state, RunState::Succeeded | RunState::Failed | RunState::Cancelled)
}

/// True for the states an attempt never leaves.
pub const fn attempt_ended(state: AttemptState) -> bool {
    matches!(state, AttemptState::Succeeded | AttemptState::Failed | AttemptState::Cancelled)
}

/// The new state, when the transition is legal.
pub(crate) fn task_step(from: TaskState, to: TaskState) -> Step<TaskState> {
    match TASK_TRANSITIONS.contains(&(from, to)) {
        true => Ok(to),
        false => rejected(
            RejectionCode::WrongState,
            format!("a task that is {} cannot become {}", names::task_state(from), names::task_state(to)),
        ),
    }
}

/// The new state, when the transition is legal.
pub(crate) fn run_step(from: RunState, to: RunState) -> Step<RunState> {
    match RUN_TRANSITIONS.contains(&(from, to)) {
        true => Ok(to),
        false => rejected(
            RejectionCode::WrongState,
            format!("a run that is {} cannot become {}", names::run_state(from), names::run_state(to)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_an_end_state() {
        assert!(TASK_TRANSITIONS.iter().all(|(from, _)| !task_ended(*from)));
        assert!(RUN_TRANSITIONS.iter().all(|(from, _)| !run_ended(*from)));
        assert!(task_step(Succeeded, Running).is_err());
        assert!(run_step(RunState::Cancelled, RunState::Running).is_err());
    }

    #[test]
    fn each_transition_is_listed_once() {
        for (index, transition) in TASK_TRANSITIONS.iter().enumerate() {
            assert!(!TASK_TRANSITIONS[index + 1..].contains(transition), "{transition:?}");
        }
    }
}
