//! The keys of the format by level: which exist, which are a later issue, which belong elsewhere, and what a wrong one was
//! probably meant to be.

use super::report::{Path, Report};
use super::source::Span;
use super::tree::{Map, Node, Value};

/// A place in the format that has keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Workflow,
    Defaults,
    Task,
    Process,
    Retries,
    Timeout,
    Param,
    Schedule,
    Missed,
}

const LEVELS: [Level; 9] = [
    Level::Workflow,
    Level::Task,
    Level::Defaults,
    Level::Retries,
    Level::Timeout,
    Level::Process,
    Level::Param,
    Level::Schedule,
    Level::Missed,
];

impl Level {
    /// The keys that mean something today.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Level::Workflow => &[
                "name",
                "title",
                "namespace",
                "labels",
                "params",
                "priority",
                "max_parallel",
                "timeout",
                "on_failure",
                "schedule",
                "overlap",
                "defaults",
                "tasks",
            ],
            Level::Defaults => &["retries", "timeout", "delivery"],
            Level::Task => {
                &["title", "needs", "run", "process", "env", "outputs", "retries", "timeout", "delivery"]
            }
            Level::Process => &["command", "working_dir"],
            Level::Retries => &["max_attempts", "delay", "backoff", "max_delay", "jitter"],
            Level::Timeout => &["execution", "queue", "grace"],
            Level::Param => &["type", "default", "description"],
            Level::Schedule => &["name", "cron", "every", "timezone", "missed"],
            Level::Missed => &["policy", "window"],
        }
    }

    /// The keys of the format that this version does not understand yet.
    pub fn later(self) -> &'static [&'static str] {
        match self {
            Level::Workflow => &["hooks", "pools", "targets", "missed"],
            Level::Defaults => &["resources", "pools", "on", "env"],
            Level::Task => &[
                "docker",
                "http",
                "call",
                "wait",
                "handler",
                "when",
                "if",
                "for_each",
                "resources",
                "pools",
                "on",
                "target",
                "idempotency_key",
                "hooks",
            ],
            Level::Process => &["user"],
            Level::Schedule => &["dst", "at"],
            Level::Missed => &["max"],
            Level::Retries | Level::Timeout | Level::Param => &[],
        }
    }

    /// How messages call it.
    fn title(self) -> &'static str {
        match self {
            Level::Workflow => "a workflow",
            Level::Defaults => "`defaults`",
            Level::Task => "a task",
            Level::Process => "`process`",
            Level::Retries => "`retries`",
            Level::Timeout => "`timeout`",
            Level::Param => "a parameter",
            Level::Schedule => "a schedule",
            Level::Missed => "`missed`",
        }
    }
}

/// The executors of later issues: a task with one of them is not also told that it has no executor.
pub(crate) const LATER_EXECUTORS: [&str; 5] = ["docker", "http", "call", "wait", "handler"];

/// Words of other tools, and what they are here.
const KNOWN_ELSEWHERE: &[(&str, &str)] = &[
    ("after", "needs"),
    ("args", "process"),
    ("cmd", "run"),
    ("cmd", "command"),
    ("command", "run"),
    ("concurrency", "max_parallel"),
    ("depend", "needs"),
    ("depend_on", "needs"),
    ("dependencies", "needs"),
    ("depends", "needs"),
    ("depends_on", "needs"),
    ("dependsOn", "needs"),
    ("environment", "env"),
    ("exec", "process"),
    ("id", "name"),
    ("inputs", "params"),
    ("jobs", "tasks"),
    ("max_retries", "retries"),
    ("parameters", "params"),
    ("retry", "retries"),
    ("script", "run"),
    ("shell", "run"),
    ("steps", "tasks"),
    ("timeout_s", "timeout"),
    ("timeout_sec", "timeout"),
    ("timeout_seconds", "timeout"),
    ("upstream", "needs"),
    ("variables", "env"),
    ("cwd", "working_dir"),
    ("attempts", "max_attempts"),
];

/// The map of a level with its keys checked, or a report that it is none.
pub(crate) fn level<'n, 's>(
    report: &mut Report<'_>,
    node: &'n Node<'s>,
    path: &Path<'_>,
    level: Level,
) -> Option<&'n Map<'s>> {
    let map = match &node.value {
        Value::Map(map) => map,
        Value::Bad => return None,
        other => {
            let message = format!("expected a map for {}, found {}", level.title(), other.kind());
            report.error(
                "wrong-type",
                node.span,
                path,
                message,
                format!("its keys are {}", listed(level.keys())),
            );
            return None;
        }
    };
    for entry in &map.entries {
        if !level.keys().contains(&&*entry.key) {
            refuse(report, &entry.key, entry.key_span, path, level);
        }
    }
    Some(map)
}

fn refuse(report: &mut Report<'_>, key: &str, span: Span, path: &Path<'_>, level: Level) {
    let here = path.key(key);
    if level.later().contains(&key) {
        let message = format!("`{key}` is not supported yet");
        let help = "it is part of the workflow format but not of this version; remove it, nothing is ignored silently";
        return report.error("not-supported", span, &here, message, help);
    }
    // `default` at the top is `defaults` with a letter missing, and not the default of a parameter.
    if level.keys().iter().any(|near| strsim::damerau_levenshtein(near, key) == 1) {
        return unknown(report, key, span, &here, level);
    }
    if let Some(owner) = LEVELS.into_iter().find(|other| other.keys().contains(&key)) {
        let message = format!("`{key}` does not belong to {}", level.title());
        let help = if key == "name" && level == Level::Task {
            "the name of a task is its key under `tasks`".to_owned()
        } else {
            format!("`{key}` belongs to {}", owner.title())
        };
        return report.error("misplaced-key", span, &here, message, help);
    }
    if let Some(owner) = LEVELS.into_iter().find(|other| other.later().contains(&key)) {
        let message = format!("`{key}` is not supported yet");
        let help = format!("it will belong to {}, and not to {}", owner.title(), level.title());
        return report.error("not-supported", span, &here, message, help);
    }
    unknown(report, key, span, &here, level);
}

fn unknown(report: &mut Report<'_>, key: &str, span: Span, path: &Path<'_>, level: Level) {
    let message = format!("{} has no key `{key}`", level.title());
    let elsewhere =
        || LEVELS.into_iter().find_map(|other| Some((nearest(key, other.keys().iter().copied())?, other)));
    let help = match suggest_key(key, level) {
        Some(near) => format!("did you mean `{near}`?"),
        None => match elsewhere() {
            Some((near, owner)) => format!("did you mean `{near}`? It belongs to {}", owner.title()),
            None => format!("its keys are {}", listed(level.keys())),
        },
    };
    report.error("unknown-key", span, path, message, help);
}

fn suggest_key(key: &str, level: Level) -> Option<&'static str> {
    let foreign = KNOWN_ELSEWHERE.iter().filter(|(word, _)| *word == key).map(|(_, ours)| *ours);
    let mut foreign = foreign;
    foreign
        .find(|ours| level.keys().contains(ours))
        .or_else(|| nearest(key, level.keys().iter().copied()))
        .or_else(|| nearest(key, level.later().iter().copied()))
}

/// The candidate that a mistyped name was probably meant to be.
pub(crate) fn nearest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    if name.len() > 200 {
        return None;
    }
    let lower = name.to_lowercase();
    let limit = (name.chars().count() / 3).clamp(1, 4);
    candidates
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= limit + 1)
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Names in back-ticks with commas between.
pub(crate) fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
