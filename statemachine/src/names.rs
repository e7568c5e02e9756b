//! The words shown to people for states, reasons and kinds of events: `upstream_failed`, `lost_claw`, `task_running`.

use alloc::string::String;
use clawhive_proto::{AttemptState, ClawState, EventKind, Reason, RunState, TaskState};

/// Of a protobuf name: its prefix off, in lower case. "unspecified" becomes the empty text.
fn word(name: &str, prefix: &str) -> String {
    match name.strip_prefix(prefix) {
        None | Some("UNSPECIFIED") => String::new(),
        Some(rest) => rest.to_ascii_lowercase(),
    }
}

/// Of a task's state.
pub fn task_state(state: TaskState) -> String {
    word(state.as_str_name(), "TASK_STATE_")
}

/// Of a run's state.
pub fn run_state(state: RunState) -> String {
    word(state.as_str_name(), "RUN_STATE_")
}

/// Of an attempt's state.
pub fn attempt_state(state: AttemptState) -> String {
    word(state.as_str_name(), "ATTEMPT_STATE_")
}

/// Of a claw's state.
pub fn claw_state(state: ClawState) -> String {
    word(state.as_str_name(), "CLAW_STATE_")
}

/// Of a reason; empty when there is none.
pub fn reason(reason: Reason) -> String {
    word(reason.as_str_name(), "REASON_")
}

/// Of a kind of event.
pub fn event_kind(kind: EventKind) -> String {
    word(kind.as_str_name(), "EVENT_KIND_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(task_state(TaskState::UpstreamFailed), "upstream_failed");
        assert_eq!(reason(Reason::Unspecified), "");
        assert_eq!(event_kind(EventKind::TaskRunning), "task_running");
    }
}
