//! The words shown to people for states, reasons and kinds of events: `upstream_failed`, `lost_claw`, `task_running`.

use alloc::format;
use alloc::string::String;
use clawhive_proto::{
    AttemptState, ClawState, EventKind, Reason, RunState, ScheduleState, SkipReason, TaskState,
};

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

/// Of a schedule's state.
pub fn schedule_state(state: ScheduleState) -> String {
    word(state.as_str_name(), "SCHEDULE_STATE_")
}

/// Of why an occurrence has no run; empty when it has one.
pub fn skip_reason(reason: SkipReason) -> String {
    word(reason.as_str_name(), "SKIP_REASON_")
}

/// How people name a schedule: `namespace/workflow`, and `:name` when it has one.
pub fn schedule(namespace: &str, workflow: &str, schedule: &str) -> String {
    match schedule {
        "" => format!("{namespace}/{workflow}"),
        name => format!("{namespace}/{workflow}:{name}"),
    }
}

/// A time as RFC 3339, UTC, with milliseconds: for texts that are replicated and read by people.
pub fn time(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    // Days since 1 March of the year 0, in cycles of 400 years (146,097 days).
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(951_782_399_999), "2000-02-28T23:59:59.999Z");
        assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(time(1_772_323_200_007), "2026-03-01T00:00:00.007Z");
        assert_eq!(time(4_102_444_799_000), "2099-12-31T23:59:59.000Z");
    }

    #[test]
    fn words() {
        assert_eq!(task_state(TaskState::UpstreamFailed), "upstream_failed");
        assert_eq!(reason(Reason::Unspecified), "");
        assert_eq!(event_kind(EventKind::TaskRunning), "task_running");
    }
}
