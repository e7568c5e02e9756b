//! Retries and timeouts: short and long forms, and how `defaults` and a task's own words merge.

use clawhive_proto::{Backoff, Delivery, Retries, Timeouts};

use super::keys::{self, Level};
use super::report::{Path, Report};
use super::source::Span;
use super::tree::{Node, Value};
use super::values::{choice, duration, duration_text, limit, whole};

const DEFAULT_DELAY_MS: u64 = 30_000;
const DEFAULT_MAX_DELAY_MS: u64 = 600_000;
const DEFAULT_JITTER_PERMILLE: u32 = 200;
const DEFAULT_GRACE_MS: u64 = 5_000;
const MAX_ATTEMPTS: u32 = 1000;

pub(crate) const BACKOFFS: [(&str, Backoff); 3] =
    [("exponential", Backoff::Exponential), ("fixed", Backoff::Fixed), ("linear", Backoff::Linear)];

pub(crate) const DELIVERIES: [(&str, Delivery); 3] = [
    ("at_least_once", Delivery::AtLeastOnce),
    ("at_most_once", Delivery::AtMostOnce),
    ("strict_single", Delivery::StrictSingle),
];

/// What was written about retries in one place; `None` is "not said".
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetriesPart {
    max_attempts: Option<u32>,
    delay_ms: Option<u64>,
    backoff: Option<Backoff>,
    max_delay_ms: Option<u64>,
    jitter_permille: Option<u32>,
    /// Something about it was already reported.
    bad: bool,
}

/// What was written about timeouts in one place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeoutPart {
    queue_ms: Option<u64>,
    execution_ms: Option<u64>,
    grace_ms: Option<u64>,
}

/// Reads `retries: 3` (three after the first try) or the long form.
pub(crate) fn retries(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> RetriesPart {
    let mut part = RetriesPart::default();
    if matches!(node.value, Value::Number(_)) {
        let help = "`retries: 3` is three retries after the first try, the same as `max_attempts: 4`";
        match whole(report, node, path, 0..=MAX_ATTEMPTS - 1, help) {
            Some(retries) => part.max_attempts = Some(retries + 1),
            None => part.bad = true,
        }
        return part;
    }
    if !matches!(node.value, Value::Map(_) | Value::Bad) {
        let message = format!("expected a number or a map for `retries`, found {}", node.value.kind());
        let help = "write `retries: 3` or `retries: {max_attempts: 4, delay: 30s}`";
        report.error("wrong-type", node.span, path, message, help);
        part.bad = true;
        return part;
    }
    let before = report.count();
    let map = keys::level(report, node, path, Level::Retries);
    part.bad = report.count() > before;
    let Some(map) = map else { return RetriesPart { bad: true, ..part } };
    for entry in &map.entries {
        let (here, value) = (path.key(&entry.key), &entry.value);
        let read = match &*entry.key {
            "max_attempts" => {
                part.max_attempts = whole(report, value, &here, 1..=MAX_ATTEMPTS, "it counts the first try");
                part.max_attempts.is_some()
            }
            "delay" => {
                part.delay_ms = duration(report, value, &here);
                part.delay_ms.is_some()
            }
            "max_delay" => {
                part.max_delay_ms = duration(report, value, &here);
                part.max_delay_ms.is_some()
            }
            "backoff" => {
                part.backoff = choice(report, value, &here, &BACKOFFS);
                part.backoff.is_some()
            }
            "jitter" => {
                part.jitter_permille = jitter(report, value, &here);
                part.jitter_permille.is_some()
            }
            _ => true,
        };
        part.bad |= !read;
    }
    part
}

/// The retries of a task: its own words over those of `defaults` over the built-in ones.
pub(crate) fn merge_retries(
    report: &mut Report<'_>,
    defaults: RetriesPart,
    own: Option<(RetriesPart, Span)>,
    path: &Path<'_>,
) -> Retries {
    let (part, span) = own.unwrap_or_default();
    let max_attempts = part.max_attempts.or(defaults.max_attempts);
    let retries = Retries {
        max_attempts: max_attempts.unwrap_or(1),
        delay_ms: part.delay_ms.or(defaults.delay_ms).unwrap_or(DEFAULT_DELAY_MS),
        backoff: part.backoff.or(defaults.backoff).unwrap_or(Backoff::Exponential) as i32,
        max_delay_ms: part.max_delay_ms.or(defaults.max_delay_ms).unwrap_or(DEFAULT_MAX_DELAY_MS),
        jitter_permille: part.jitter_permille.or(defaults.jitter_permille).unwrap_or(DEFAULT_JITTER_PERMILLE),
    };
    let Some((part, _)) = own else { return retries };
    if part.bad || defaults.bad {
        return retries;
    }
    if max_attempts.is_none() {
        let help = "say how often: `max_attempts` counts the first try, 4 is three retries";
        report.error("missing-key", span, path, "`retries` without `max_attempts` would retry nothing", help);
    }
    check_delays(report, retries.delay_ms, retries.max_delay_ms, span, path);
    retries
}

/// How often a task may run: its own word over that of `defaults`. A task that must not run twice has no retries.
pub(crate) fn delivery(
    report: &mut Report<'_>,
    own: Option<(Option<Delivery>, Span)>,
    defaults: Option<Delivery>,
    retries: Retries,
    place: (Span, &Path<'_>),
) -> Delivery {
    // A word that is not known was reported already.
    if matches!(own, Some((None, _))) {
        return Delivery::AtLeastOnce;
    }
    let delivery = own.and_then(|(delivery, _)| delivery).or(defaults).unwrap_or(Delivery::AtLeastOnce);
    if delivery == Delivery::AtMostOnce && retries.max_attempts > 1 {
        let span = own.map_or(place.0, |(_, span)| span);
        let message = format!(
            "`delivery: at_most_once` never runs a task again, and its `retries` ask for {} attempts",
            retries.max_attempts
        );
        let help = "write `retries: 0` for this task, or another delivery";
        report.error("delivery-retries", span, place.1, message, help);
    }
    delivery
}

/// The same check for `defaults`, once, so that not every task repeats it.
pub(crate) fn check_defaults(
    report: &mut Report<'_>,
    part: RetriesPart,
    span: Span,
    path: &Path<'_>,
) -> bool {
    let delay = part.delay_ms.unwrap_or(DEFAULT_DELAY_MS);
    let max = part.max_delay_ms.unwrap_or(DEFAULT_MAX_DELAY_MS);
    !part.bad && check_delays(report, delay, max, span, path)
}

impl RetriesPart {
    /// Silences what would only repeat a fault of `defaults`.
    pub fn reported(self) -> RetriesPart {
        RetriesPart { bad: true, ..self }
    }
}

fn check_delays(report: &mut Report<'_>, delay: u64, max: u64, span: Span, path: &Path<'_>) -> bool {
    if delay <= max {
        return true;
    }
    let message =
        format!("the first delay {} is longer than `max_delay` {}", duration_text(delay), duration_text(max));
    let help = format!("set `max_delay` to {} or more", duration_text(delay));
    report.error("range", span, path, message, help);
    false
}

/// A share from 0 to 1 in thousandths, read as decimal text: no floating point.
fn jitter(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Option<u32> {
    const HELP: &str =
        "a share of the delay from 0 to 1 with at most three decimals: 0.2 is plus or minus 20 %";
    let text = match &node.value {
        Value::Bad => return None,
        Value::Number(text) => text,
        other => {
            report.error(
                "wrong-type",
                node.span,
                path,
                format!("expected a number, found {}", other.kind()),
                HELP,
            );
            return None;
        }
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let permille = if fraction.len() <= 3 && digits(fraction) && digits(whole) && !text.is_empty() {
        let whole = if whole.is_empty() { Some(0) } else { whole.parse::<u32>().ok() };
        let thousandths = format!("{fraction:0<3}").parse::<u32>().ok();
        whole.zip(thousandths).and_then(|(whole, part)| whole.checked_mul(1000)?.checked_add(part))
    } else {
        None
    };
    let permille = permille.filter(|permille| *permille <= 1000);
    if permille.is_none() {
        report.error("number", node.span, path, format!("`{text}` is not a jitter"), HELP);
    }
    permille
}

/// Reads `timeout: 30s` (the execution of one attempt) or the long form.
pub(crate) fn timeout(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> TimeoutPart {
    let mut part = TimeoutPart::default();
    if !matches!(node.value, Value::Map(_)) {
        part.execution_ms = limit(report, node, path);
        return part;
    }
    let Some(map) = keys::level(report, node, path, Level::Timeout) else { return part };
    for entry in &map.entries {
        let (here, value) = (path.key(&entry.key), &entry.value);
        match &*entry.key {
            "execution" => part.execution_ms = limit(report, value, &here),
            "queue" => part.queue_ms = limit(report, value, &here),
            "grace" => part.grace_ms = duration(report, value, &here),
            _ => {}
        }
    }
    part
}

/// The timeouts of a task: its own words over those of `defaults` over the built-in ones.
pub(crate) fn merge_timeouts(defaults: TimeoutPart, own: TimeoutPart) -> Timeouts {
    Timeouts {
        queue_ms: own.queue_ms.or(defaults.queue_ms).unwrap_or(0),
        execution_ms: own.execution_ms.or(defaults.execution_ms).unwrap_or(0),
        grace_ms: own.grace_ms.or(defaults.grace_ms).unwrap_or(DEFAULT_GRACE_MS),
    }
}
