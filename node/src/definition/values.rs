//! Single values of the format: text, whole numbers, durations, choices, names. Each function reports what is wrong and
//! answers `None`; none of them knows where in the format it is used.

use std::ops::RangeInclusive;

use super::keys::{listed, nearest};
use super::report::{Path, Report};
use super::source::grouped;
use super::tree::{Node, Value, whole_number};

/// The longest duration a definition may name.
const MAX_DURATION_MS: u64 = 3650 * 24 * 60 * 60 * 1000;

/// The text of a scalar as it was written.
pub(crate) fn text<'n>(report: &mut Report<'_>, node: &'n Node<'_>, path: &Path<'_>) -> Option<&'n str> {
    match &node.value {
        Value::Bad => None,
        other => match other.written() {
            Some(text) => Some(text),
            None => {
                let message = format!("expected text, found {}", other.kind());
                let help = if matches!(other, Value::Null) { "for an empty text write \"\"" } else { "" };
                report.error("wrong-type", node.span, path, message, help);
                None
            }
        },
    }
}

/// Text for people: no line breaks where a line is expected, not longer than `max` characters.
pub(crate) fn prose(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>, max: usize) -> Option<String> {
    let text = text(report, node, path)?;
    let length = text.chars().count();
    if length > max {
        let message = format!("the text has {} characters; the limit is {max}", grouped(length));
        report.error("too-long", node.span, path, message, "");
        return None;
    }
    if let Some(bad) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        let message = format!("the control character U+{:04X} is not allowed here", bad as u32);
        report.error("control-character", node.span, path, message, "");
        return None;
    }
    Some(text.to_owned())
}

/// A whole number within a range.
pub(crate) fn whole(
    report: &mut Report<'_>,
    node: &Node<'_>,
    path: &Path<'_>,
    range: RangeInclusive<u32>,
    help: &str,
) -> Option<u32> {
    let number = match &node.value {
        Value::Bad => return None,
        Value::Number(text) => whole_number(text),
        other => {
            let message = format!("expected a whole number, found {}", other.kind());
            let unquote = matches!(other, Value::Text(text) if whole_number(text).is_some());
            report.error(
                "wrong-type",
                node.span,
                path,
                message,
                if unquote { "remove the quotes" } else { help },
            );
            return None;
        }
    };
    match number.and_then(|number| u32::try_from(number).ok()).filter(|number| range.contains(number)) {
        Some(number) => Some(number),
        None => {
            let found =
                node.value.written().map_or_else(String::new, |text| format!(", found {}", shortened(text)));
            let message = format!("expected a whole number from {} to {}{found}", range.start(), range.end());
            report.error("number", node.span, path, message, help);
            None
        }
    }
}

/// One of a few words.
pub(crate) fn choice<T: Copy>(
    report: &mut Report<'_>,
    node: &Node<'_>,
    path: &Path<'_>,
    choices: &[(&str, T)],
) -> Option<T> {
    let text = text(report, node, path)?;
    if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
        return Some(*value);
    }
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    let help = match nearest(text, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("one of {}", listed(&words)),
    };
    report.error("choice", node.span, path, format!("`{text}` is not a value that is known here"), help);
    None
}

/// Whether a limit was written as `none`.
pub(crate) fn is_none(node: &Node<'_>) -> bool {
    matches!(&node.value, Value::Text(text) if text == "none")
}

/// A duration in milliseconds.
pub(crate) fn duration(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Option<u64> {
    const HELP: &str = "durations are whole numbers with a unit: 250ms, 30s, 10m, 2h, 1d, or together: 1h30m";
    let text = match &node.value {
        Value::Bad => return None,
        Value::Text(text) => text,
        Value::Number(text) => {
            let message = format!("the duration `{text}` has no unit");
            report.error("duration", node.span, path, message, format!("for seconds write {text}s"));
            return None;
        }
        other => {
            report.error(
                "wrong-type",
                node.span,
                path,
                format!("expected a duration, found {}", other.kind()),
                HELP,
            );
            return None;
        }
    };
    match parse_duration(text) {
        Ok(ms) => Some(ms),
        Err(reason) => {
            report.error("duration", node.span, path, format!("`{text}` is not a duration: {reason}"), HELP);
            None
        }
    }
}

/// A limit in milliseconds: a duration above zero, or `none`, which is 0.
pub(crate) fn limit(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Option<u64> {
    if is_none(node) {
        return Some(0);
    }
    let ms = duration(report, node, path)?;
    if ms == 0 {
        let message = "a timeout of zero would end everything at once";
        report.error("duration", node.span, path, message, "for no timeout write `none`");
        return None;
    }
    Some(ms)
}

/// `1h30m` in milliseconds.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut last_unit = u64::MAX;
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Err(format!("expected a digit at `{}`", shortened(rest)));
        }
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60 * 1000,
            "h" => 60 * 60 * 1000,
            "d" => 24 * 60 * 60 * 1000,
            "" if tail.is_empty() => return Err(format!("`{}` has no unit", shortened(number))),
            "" => return Err(format!("expected a unit at `{}`", shortened(tail))),
            other => return Err(format!("the unit `{}` is unknown", shortened(other))),
        };
        if unit_ms >= last_unit {
            return Err("each unit is written once, the larger one first".to_owned());
        }
        last_unit = unit_ms;
        let too_long = || "the longest is 3650d".to_owned();
        let part =
            number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_ms)).ok_or_else(too_long)?;
        total = total.checked_add(part).filter(|total| *total <= MAX_DURATION_MS).ok_or_else(too_long)?;
        rest = tail;
    }
    Ok(total)
}

/// A duration as text: the largest unit that holds it exactly.
pub fn duration_text(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match UNITS.iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0s".to_owned(),
        None => format!("{ms}ms"),
    }
}

/// A name rule: what it allows, as a test and in words.
pub(crate) struct NameRule {
    pub what: &'static str,
    pub pattern: &'static str,
    pub first: fn(u8) -> bool,
    pub rest: fn(u8) -> bool,
    pub max: usize,
    /// What has such a name also has a title.
    pub titled: bool,
}

/// Workflow and namespace names.
pub(crate) const WORKFLOW_NAME: NameRule = NameRule {
    what: "name",
    pattern: "[a-z0-9][a-z0-9._-]{0,62}",
    first: |b| b.is_ascii_lowercase() || b.is_ascii_digit(),
    rest: |b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'),
    max: 63,
    titled: true,
};

/// Task names.
pub(crate) const TASK_NAME: NameRule = NameRule {
    what: "task name",
    pattern: "[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}",
    first: |b| b.is_ascii_alphanumeric() || b == b'_',
    rest: |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-'),
    max: 128,
    titled: true,
};

/// Parameter and output names: what a template can write after a point.
pub(crate) const VALUE_NAME: NameRule = NameRule {
    what: "name",
    pattern: "[A-Za-z_][A-Za-z0-9_]{0,62}",
    first: |b| b.is_ascii_alphabetic() || b == b'_',
    rest: |b| b.is_ascii_alphanumeric() || b == b'_',
    max: 63,
    titled: false,
};

/// Environment variable names.
pub(crate) const ENV_NAME: NameRule =
    NameRule { what: "variable name", max: 128, pattern: "[A-Za-z_][A-Za-z0-9_]{0,127}", ..VALUE_NAME };

/// Label names.
pub(crate) const LABEL_NAME: NameRule = NameRule {
    what: "label name",
    pattern: "[A-Za-z0-9][A-Za-z0-9._/-]{0,62}",
    first: |b| b.is_ascii_alphanumeric(),
    rest: |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'-'),
    max: 63,
    titled: false,
};

impl NameRule {
    /// Whether the rule takes the name.
    pub fn allows(&self, name: &str) -> bool {
        let bytes = name.as_bytes();
        bytes.len() <= self.max
            && bytes
                .split_first()
                .is_some_and(|(first, rest)| (self.first)(*first) && rest.iter().all(|b| (self.rest)(*b)))
    }
}

/// Whether a name follows its rule; reported when not. Names are never rewritten.
pub(crate) fn name(
    report: &mut Report<'_>,
    span: super::source::Span,
    path: &Path<'_>,
    name: &str,
    rule: &NameRule,
) -> bool {
    if rule.allows(name) {
        return true;
    }
    let message = format!("{:?} is not a {}", shortened(name), rule.what);
    let help = match rule.titled {
        true => format!("the rule is {}; free text in any script belongs in `title`", rule.pattern),
        false => format!("the rule is {}", rule.pattern),
    };
    report.error("name", span, path, message, help);
    false
}

/// At most 40 characters of a text.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}...", &text[..at]),
    }
}
