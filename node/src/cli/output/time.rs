//! Times and durations as people and programs read them.

use clawhive_node::env;
use jiff::Timestamp;
use serde_json::{Value, json};

/// RFC 3339, UTC, with milliseconds; null for 0, which means "not yet".
pub(in crate::cli) fn rfc3339(ms: u64) -> Value {
    let time =
        i64::try_from(ms).ok().filter(|ms| *ms > 0).and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or(Value::Null, |time| json!(format!("{time:.3}")))
}

/// The wall clock of this machine, to say how long ago something was.
pub(in crate::cli) fn now_ms() -> u64 {
    let since = env::wall_clock().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// `340ms`, `1.2s`, `2m03s`, `1h02m`, `3d04h`.
pub(in crate::cli) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0 => format!("{ms}ms"),
        1..=59 => format!("{seconds}.{}s", ms % 1_000 / 100),
        60..=3_599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// From a start to an end, or to now; empty before the start.
pub(in crate::cli) fn span(start_ms: u64, end_ms: u64, now_ms: u64) -> String {
    if start_ms == 0 {
        return String::new();
    }
    let end_ms = if end_ms == 0 { now_ms } else { end_ms };
    duration(end_ms.saturating_sub(start_ms))
}

/// How long ago: `5s`, `3m`, `2h`, `4d`.
pub(in crate::cli) fn age(then_ms: u64, now_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1_000;
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m", seconds / 60),
        3_600..=86_399 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_with_milliseconds() {
        assert_eq!(rfc3339(1_772_323_200_007), json!("2026-03-01T00:00:00.007Z"));
        assert_eq!(rfc3339(1_772_323_200_000), json!("2026-03-01T00:00:00.000Z"));
        assert_eq!((rfc3339(0), rfc3339(u64::MAX)), (Value::Null, Value::Null));
    }

    #[test]
    fn durations_have_two_figures_that_matter() {
        let all = [7, 999, 1_000, 59_999, 61_000, 3_599_000, 7_260_000, 273_600_000].map(duration);
        assert_eq!(all, ["7ms", "999ms", "1.0s", "59.9s", "1m01s", "59m59s", "2h01m", "3d04h"]);
        assert_eq!(span(0, 0, 5), "");
        assert_eq!(span(1_000, 0, 3_500), "2.5s");
        assert_eq!(span(1_000, 1_200, 9_000), "200ms");
    }

    #[test]
    fn ages_are_round() {
        let all = [0, 59_999, 61_000, 7_200_000, 90_000_000].map(|ago| age(1_000, 1_000 + ago));
        assert_eq!(all, ["0s", "59s", "1m", "2h", "1d"]);
        assert_eq!(age(2_000, 1_000), "0s", "a clock that is behind is no fault of the reader's");
    }
}
