//! `schedule` and `overlap`: when runs are made without anybody asking.

use std::collections::HashMap;

use clawhive_proto::schedule::When;
use clawhive_proto::{MissedPolicy, Overlap, Param, Schedule};
use serde_json::{Map as JsonMap, Value as Json, json};

use super::keys::{self, Level};
use super::report::{Path, Report};
use super::tree::{Entry, Map, Node, Value};
use super::values::{WORKFLOW_NAME, choice, duration, duration_text, name, text};
use crate::calendar::Calendar;

const MAX_SCHEDULES: usize = 100;

/// Shorter intervals would only fill the log.
const SHORTEST_MS: u64 = 1_000;

const DEFAULT_ZONE: &str = "UTC";

const OVERLAPS: [(&str, Overlap); 2] = [("allow", Overlap::Allow), ("skip", Overlap::Skip)];

const MISSED: [(&str, MissedPolicy); 2] = [("none", MissedPolicy::None), ("latest", MissedPolicy::Latest)];

/// Values of the format that this version does not do: told apart from a wrong word.
fn later(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>, words: &[&str]) -> bool {
    let Value::Text(written) = &node.value else { return false };
    let known = words.contains(&&**written);
    if known {
        let help = "it is part of the workflow format but not of this version; nothing is ignored silently";
        report.error("not-supported", node.span, path, format!("`{written}` is not supported yet"), help);
    }
    known
}

/// Reads `overlap`.
pub(crate) fn overlap(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Overlap {
    if later(report, node, path, &["queue", "replace"]) {
        return Overlap::Allow;
    }
    choice(report, node, path, &OVERLAPS).unwrap_or_default()
}

/// Reads `schedule`: one, or a list of named ones.
pub(crate) fn schedules(report: &mut Report<'_>, entry: &Entry<'_>, path: &Path<'_>) -> Vec<Schedule> {
    let Value::List(items) = &entry.value.value else {
        return one(report, &entry.value, path).into_iter().collect();
    };
    if items.is_empty() || items.len() > MAX_SCHEDULES {
        let message = format!("a workflow has 1 to {MAX_SCHEDULES} schedules, this list has {}", items.len());
        report.error("number", entry.key_span, path, message, "without a schedule leave `schedule` out");
        return Vec::new();
    }
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut found = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let here = path.index(index);
        let Some(schedule) = one(report, item, &here) else { continue };
        let bad_name = matches!(&item.value, Value::Map(map) if map.get("name").is_some());
        if schedule.name.is_empty() && !bad_name {
            let help =
                "one of several schedules is told from the others by its name: `{name: nightly, cron: ..}`";
            report.error("missing-key", item.span, &here, "this schedule has no `name`", help);
        } else if let Some(first) = seen.get(&schedule.name).filter(|_| !schedule.name.is_empty()) {
            let message = format!("another schedule is named `{}`, in line {first}", schedule.name);
            report.error("duplicate-name", item.span, &here, message, "");
        }
        seen.insert(schedule.name.clone(), report.line(item.span));
        found.push(schedule);
    }
    found
}

fn one(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Option<Schedule> {
    let map = keys::level(report, node, path, Level::Schedule)?;
    let mut schedule = Schedule::default();
    if let Some(entry) = map.get("name") {
        let here = path.key("name");
        if let Some(written) = text(report, &entry.value, &here)
            && name(report, entry.value.span, &here, written, &WORKFLOW_NAME)
        {
            schedule.name = written.to_owned();
        }
    }
    match (map.get("cron"), map.get("every")) {
        (Some(cron), None) => read_cron(report, map, cron, path, &mut schedule),
        (None, Some(every)) => read_every(report, map, every, path, &mut schedule),
        (None, None) => {
            let help = "write `cron: \"0 2 * * *\"` or `every: 6h`";
            report.error("missing-key", node.span, path, "the schedule does not say when", help);
        }
        (Some(_), Some(every)) => {
            let message = "a schedule has either `cron` or `every`";
            report.error("conflict", every.key_span, &path.key("every"), message, "use two named schedules");
        }
    }
    if let Some(entry) = map.get("missed") {
        read_missed(report, &entry.value, &path.key("missed"), &mut schedule);
    }
    Some(schedule)
}

fn read_cron(
    report: &mut Report<'_>,
    map: &Map<'_>,
    entry: &Entry<'_>,
    path: &Path<'_>,
    schedule: &mut Schedule,
) {
    schedule.timezone = DEFAULT_ZONE.to_owned();
    let mut zone = (DEFAULT_ZONE, None);
    if let Some(entry) = map.get("timezone") {
        let Some(written) = text(report, &entry.value, &path.key("timezone")) else { return };
        zone = (written, Some(entry.value.span));
        schedule.timezone = written.to_owned();
    }
    let here = path.key("cron");
    if matches!(entry.value.value, Value::List(_)) {
        let help = "write a list of schedules, each with a name";
        report.error(
            "not-supported",
            entry.value.span,
            &here,
            "a list of expressions is not supported yet",
            help,
        );
        return;
    }
    let Some(expression) = text(report, &entry.value, &here) else { return };
    // Each of the two is told at its own place.
    if let (Err(message), Some(span)) = (Calendar::cron("* * * * *", zone.0), zone.1) {
        report.error("timezone", span, &path.key("timezone"), message, "");
    }
    if let Err(message) = Calendar::cron(expression, DEFAULT_ZONE) {
        let help = "the fields are minute, hour, day of month, month, day of week; six begin with the second";
        report.error("cron", entry.value.span, &here, message, help);
    }
    schedule.when = Some(When::Cron(expression.split_ascii_whitespace().collect::<Vec<_>>().join(" ")));
}

fn read_every(
    report: &mut Report<'_>,
    map: &Map<'_>,
    entry: &Entry<'_>,
    path: &Path<'_>,
    schedule: &mut Schedule,
) {
    if let Some(zone) = map.get("timezone") {
        let message = "an interval knows no time zone";
        report.error(
            "conflict",
            zone.key_span,
            &path.key("timezone"),
            message,
            "`timezone` belongs to `cron`",
        );
    }
    let here = path.key("every");
    let Some(ms) = duration(report, &entry.value, &here) else { return };
    if ms < SHORTEST_MS {
        let message = format!("`{}` is too often", duration_text(ms));
        report.error("duration", entry.value.span, &here, message, "the shortest interval is 1s");
    }
    schedule.when = Some(When::EveryMs(ms));
}

fn read_missed(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>, schedule: &mut Schedule) {
    let Value::Map(_) = &node.value else {
        schedule.set_missed(policy(report, node, path));
        return;
    };
    let Some(map) = keys::level(report, node, path, Level::Missed) else { return };
    match map.get("policy") {
        Some(entry) => schedule.set_missed(policy(report, &entry.value, &path.key("policy"))),
        None => {
            let help = "write `missed: none` or `missed: {policy: latest, window: 6h}`";
            report.error("missing-key", node.span, path, "`missed` has no `policy`", help);
        }
    }
    if let Some(entry) = map.get("window") {
        let here = path.key("window");
        if let Some(ms) = duration(report, &entry.value, &here) {
            if ms == 0 || schedule.missed() == MissedPolicy::None {
                let message = "nothing is made up for within this window";
                let help = "a window belongs to `latest` and is longer than zero";
                report.error("conflict", entry.key_span, &here, message, help);
            }
            schedule.missed_window_ms = ms;
        }
    }
}

fn policy(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> MissedPolicy {
    if later(report, node, path, &["all"]) {
        return MissedPolicy::Latest;
    }
    choice(report, node, path, &MISSED).unwrap_or_default()
}

/// A scheduled run has nobody who could give a parameter its value.
pub(crate) fn check_params(report: &mut Report<'_>, map: &Map<'_>, params: &[Param], path: &Path<'_>) {
    let (Some(entry), Some(declared)) = (map.get("schedule"), map.get("params")) else { return };
    let places = match &declared.value.value {
        Value::Map(places) => places,
        _ => return,
    };
    for param in params.iter().filter(|param| param.default_json.is_none()) {
        let span = places.get(&param.name).map_or(entry.key_span, |place| place.key_span);
        let message =
            format!("the parameter `{}` has no default, and the workflow has a schedule", param.name);
        let help = "a scheduled run has nobody who could give it a value; write a default";
        report.error("missing-default", span, &path.key(&param.name), message, help);
    }
}

/// In the shape of the file format: one map, or a list when there are names.
pub(crate) fn canonical(schedules: &[Schedule]) -> Json {
    match schedules {
        [one] if one.name.is_empty() => canonical_one(one),
        many => many.iter().map(canonical_one).collect(),
    }
}

fn canonical_one(schedule: &Schedule) -> Json {
    let mut out = JsonMap::new();
    let mut put = |key: &str, value: Json| out.insert(key.to_owned(), value);
    if !schedule.name.is_empty() {
        put("name", json!(schedule.name));
    }
    match &schedule.when {
        Some(When::Cron(expression)) => {
            put("cron", json!(expression));
            put("timezone", json!(schedule.timezone));
        }
        Some(When::EveryMs(ms)) => {
            put("every", json!(duration_text(*ms)));
        }
        None => {}
    }
    let word = MISSED.iter().find(|(_, known)| *known == schedule.missed()).map_or("none", |(word, _)| word);
    match schedule.missed_window_ms {
        0 => put("missed", json!(word)),
        window => put("missed", json!({"policy": word, "window": duration_text(window)})),
    };
    Json::Object(out)
}

/// The word for an overlap policy.
pub(crate) fn overlap_word(overlap: Overlap) -> &'static str {
    OVERLAPS.iter().find(|(_, known)| *known == overlap).map_or("allow", |(word, _)| word)
}
