//! The effective settings, each with where it came from. Must not: know defaults; what is shown is what a node would use.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Begin, LogFormat, Partial, Role, Settings};

/// One setting as a node would use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name in a file.
    pub name: &'static str,
    /// Its value as a file would have it; empty when it has none.
    pub value: String,
    /// Which source said so: one of those given, or "default".
    pub origin: String,
}

type Look = (&'static str, fn(&Partial) -> bool, fn(&Settings) -> String);

/// Every setting: whether a source names it, and its value in the end.
const LOOKS: &[Look] = &[
    ("data", |p| p.data.is_some(), |s| quoted(s.data.display())),
    ("listen", |p| p.listen.is_some(), |s| quoted(s.listen)),
    ("peer_listen", |p| p.peer_listen.is_some(), |s| quoted(s.peer_listen)),
    ("advertise", |p| p.advertise.is_some(), |s| s.advertise.as_ref().map_or(String::new(), quoted)),
    (
        "peer_advertise",
        |p| p.peer_advertise.is_some(),
        |s| s.peer_advertise.as_ref().map_or(String::new(), quoted),
    ),
    (
        "bootstrap",
        |p| p.bootstrap.is_some(),
        |s| matches!(s.begin, Begin::Bootstrap | Begin::BootstrapIfEmpty).to_string(),
    ),
    (
        "join",
        |p| p.join.is_some(),
        |s| match &s.begin {
            Begin::Join(peers) => format!("[{}]", peers.iter().map(quoted).collect::<Vec<_>>().join(", ")),
            _ => String::new(),
        },
    ),
    (
        "role",
        |p| p.role.is_some(),
        |s| {
            quoted(match s.role {
                Role::Voter => "voter",
                Role::Claw => "claw",
            })
        },
    ),
    ("labels", |p| p.labels.is_some(), |s| table(&s.labels)),
    ("slots", |p| p.slots.is_some(), |s| s.slots.to_string()),
    ("task_nice", |p| p.task_nice.is_some(), |s| s.task_nice.to_string()),
    ("lease", |p| p.lease.is_some(), |s| duration(s.lease)),
    ("heartbeat", |p| p.heartbeat.is_some(), |s| duration(s.heartbeat)),
    ("election_min", |p| p.election_min.is_some(), |s| duration(s.election_min)),
    ("election_max", |p| p.election_max.is_some(), |s| duration(s.election_max)),
    ("cache", |p| p.cache.is_some(), |s| bytes(s.cache)),
    ("min_free", |p| p.min_free.is_some(), |s| s.min_free.map_or(String::new(), bytes)),
    (
        "log_format",
        |p| p.log_format.is_some(),
        |s| {
            quoted(match s.log_format {
                LogFormat::Text => "text",
                LogFormat::Json => "json",
            })
        },
    ),
    ("log_level", |p| p.log_level.is_some(), |s| quoted(&s.log_level)),
    ("shutdown_grace", |p| p.shutdown_grace.is_some(), |s| duration(s.shutdown_grace)),
    ("snapshot_entries", |p| p.snapshot_entries.is_some(), |s| s.snapshot_entries.to_string()),
    ("snapshot_keep", |p| p.snapshot_keep.is_some(), |s| s.snapshot_keep.to_string()),
    ("digest_entries", |p| p.digest_entries.is_some(), |s| s.digest_entries.to_string()),
    ("digest_interval", |p| p.digest_interval.is_some(), |s| duration(s.digest_interval)),
    ("level", |p| p.level.is_some(), |s| s.level.to_string()),
];

/// The settings, with their sources from the strongest to the weakest.
pub fn shown(settings: &Settings, sources: &[(String, &Partial)]) -> Vec<Shown> {
    let show = |(name, given, value): &Look| {
        let origin =
            sources.iter().find(|(_, partial)| given(partial)).map_or("default", |(origin, _)| origin);
        Shown { name, value: value(settings), origin: origin.to_owned() }
    };
    LOOKS.iter().map(show).collect()
}

fn quoted(text: impl ToString) -> String {
    format!("{:?}", text.to_string())
}

fn table(map: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(", ")) }
}

fn duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let (number, unit) = match ms {
        0 => (0, "ms"),
        _ if ms.is_multiple_of(86_400_000) => (ms / 86_400_000, "d"),
        _ if ms.is_multiple_of(3_600_000) => (ms / 3_600_000, "h"),
        _ if ms.is_multiple_of(60_000) => (ms / 60_000, "m"),
        _ if ms.is_multiple_of(1_000) => (ms / 1_000, "s"),
        _ => (ms, "ms"),
    };
    quoted(format!("{number}{unit}"))
}

fn bytes(bytes: u64) -> String {
    // There is no unit for single bytes; settings are made of these.
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1_000, "kB")];
    let unit = units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    let (unit, name) = unit.copied().unwrap_or((1 << 10, "KiB"));
    quoted(format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_setting_of_a_file_is_shown_and_can_be_read_back() {
        let text = "data = \"/d\"\nlisten = \"127.0.0.1:1\"\nlease = \"1500ms\"\nslots = 3\nmin_free = \"10MiB\"\n[labels]\nzone = \"a\"\n";
        let file = Partial::from_toml(Path::new("c.toml"), text).unwrap();
        let env = Partial { slots: Some(4), ..Partial::default() };
        let settings = Settings::complete(env.clone().over(file.clone())).unwrap();
        let shown = shown(&settings, &[("environment".to_owned(), &env), ("c.toml".to_owned(), &file)]);
        let of = |name: &str| shown.iter().find(|one| one.name == name).unwrap();
        assert_eq!((of("slots").value.as_str(), of("slots").origin.as_str()), ("4", "environment"));
        assert_eq!((of("lease").value.as_str(), of("lease").origin.as_str()), ("\"1500ms\"", "c.toml"));
        assert_eq!((of("cache").value.as_str(), of("cache").origin.as_str()), ("\"64MiB\"", "default"));
        let lines: Vec<String> = shown
            .iter()
            .filter(|one| !one.value.is_empty())
            .map(|one| format!("{} = {}", one.name, one.value))
            .collect();
        let again = Partial::from_toml(Path::new("shown"), &lines.join("\n")).unwrap();
        assert_eq!(Settings::complete(again).unwrap(), settings);
    }

    #[test]
    fn the_list_is_the_list_of_settings() {
        let names: Vec<&str> = LOOKS.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names, super::super::parse::names());
    }
}
