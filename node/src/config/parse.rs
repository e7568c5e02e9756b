//! From text to [`Partial`]: names, types and places. Must not know defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::{ConfigError, ENV_PREFIX, Fault, LogFormat, OTHER_VARIABLES, Partial, Role};

/// A value before its type is known to be right.
enum Raw {
    Text(String),
    Integer(i64),
    Flag(bool),
    List(Vec<String>),
    Map(BTreeMap<String, String>),
    /// Of an environment variable: the setting's type decides how it is read.
    Variable(String),
    /// Of a type that no setting has.
    Other(&'static str),
}

type Setter = fn(&mut Partial, Raw) -> Result<(), String>;

/// Every setting by name.
const SETTINGS: [(&str, Setter); 24] = [
    ("data", |to, raw| set(&mut to.data, text(raw).map(Into::into))),
    ("listen", |to, raw| set(&mut to.listen, address(raw))),
    ("peer_listen", |to, raw| set(&mut to.peer_listen, address(raw))),
    ("advertise", |to, raw| set(&mut to.advertise, text(raw))),
    ("peer_advertise", |to, raw| set(&mut to.peer_advertise, text(raw))),
    ("bootstrap", |to, raw| set(&mut to.bootstrap, flag(raw))),
    ("join", |to, raw| set(&mut to.join, list(raw))),
    ("role", |to, raw| set(&mut to.role, text(raw).and_then(|text| Role::parse(&text)))),
    ("labels", |to, raw| set(&mut to.labels, map(raw))),
    ("slots", |to, raw| set(&mut to.slots, number(raw))),
    ("task_nice", |to, raw| set(&mut to.task_nice, number(raw))),
    ("lease", |to, raw| set(&mut to.lease, duration(raw))),
    ("heartbeat", |to, raw| set(&mut to.heartbeat, duration(raw))),
    ("election_min", |to, raw| set(&mut to.election_min, duration(raw))),
    ("election_max", |to, raw| set(&mut to.election_max, duration(raw))),
    ("cache", |to, raw| set(&mut to.cache, size(raw))),
    ("log_format", |to, raw| set(&mut to.log_format, text(raw).and_then(|text| LogFormat::parse(&text)))),
    ("log_level", |to, raw| set(&mut to.log_level, text(raw))),
    ("shutdown_grace", |to, raw| set(&mut to.shutdown_grace, duration(raw))),
    ("snapshot_entries", |to, raw| set(&mut to.snapshot_entries, number(raw).map(u64::from))),
    ("snapshot_keep", |to, raw| set(&mut to.snapshot_keep, number(raw).map(u64::from))),
    ("digest_entries", |to, raw| set(&mut to.digest_entries, number(raw).map(u64::from))),
    ("digest_interval", |to, raw| set(&mut to.digest_interval, duration(raw))),
    ("level", |to, raw| set(&mut to.level, number(raw))),
];

pub(super) fn file(path: &Path, text: &str) -> Result<Partial, ConfigError> {
    let origin = path.display().to_string();
    let table = DeTable::parse(text).map_err(|error| {
        let (line, column) = place(text, error.span().map_or(0, |span| span.start));
        let message = error.message().to_owned();
        let fault = Fault { key: String::new(), message, help: String::new(), line, column };
        ConfigError { origin: origin.clone(), faults: vec![fault] }
    })?;
    let mut partial = Partial::default();
    let mut faults = Vec::new();
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        let mut fault = |at: usize, message: String, help: String| {
            let (line, column) = place(text, at);
            faults.push(Fault { key: name.to_owned(), message, help, line, column });
        };
        match SETTINGS.iter().find(|(known, _)| *known == name) {
            None => {
                let what = if matches!(value.get_ref(), DeValue::Table(_)) { "section" } else { "setting" };
                fault(key.span().start, format!("unknown {what} `{name}`"), nearest(name));
            }
            Some((_, setter)) => {
                if let Err(message) = setter(&mut partial, raw(value.get_ref())) {
                    fault(value.span().start, format!("`{name}` {message}"), String::new());
                }
            }
        }
    }
    if faults.is_empty() {
        return Ok(partial);
    }
    faults.sort_by_key(|fault| (fault.line, fault.column));
    Err(ConfigError { origin, faults })
}

pub(super) fn environment(
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Partial, ConfigError> {
    let mut partial = Partial::default();
    let mut faults = Vec::new();
    for (variable, value) in variables {
        let Some(name) = variable.strip_prefix(ENV_PREFIX) else { continue };
        if OTHER_VARIABLES.contains(&variable.as_str()) {
            continue;
        }
        let mut fault = |message: String, help: String| {
            faults.push(Fault { key: variable.clone(), message, help, line: 0, column: 0 });
        };
        let lower = name.to_ascii_lowercase();
        let known = SETTINGS.iter().find(|(known, _)| *known == lower && name == name.to_ascii_uppercase());
        match known {
            None => {
                let help = nearest(&lower).to_ascii_uppercase();
                let help = help.replace("DID YOU MEAN `", "did you mean `CLAWHIVE_");
                fault(format!("unknown variable {variable}"), help);
            }
            Some((_, setter)) => {
                if let Err(message) = setter(&mut partial, Raw::Variable(value)) {
                    fault(format!("{variable} {message}"), String::new());
                }
            }
        }
    }
    if faults.is_empty() {
        return Ok(partial);
    }
    faults.sort_by(|a, b| a.key.cmp(&b.key));
    Err(ConfigError { origin: "environment".to_owned(), faults })
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_or(Raw::Other("a number too large"), Raw::Integer),
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Array(items) => {
            let text = |item: &toml::Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                _ => None,
            };
            items
                .iter()
                .map(text)
                .collect::<Option<_>>()
                .map_or(Raw::Other("a list of other things"), Raw::List)
        }
        DeValue::Table(table) => {
            let pair = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| match value.get_ref()
            {
                DeValue::String(text) => Some((ToString::to_string(key.get_ref()), text.to_string())),
                _ => None,
            };
            table
                .iter()
                .map(pair)
                .collect::<Option<_>>()
                .map_or(Raw::Other("a table of other things"), Raw::Map)
        }
        DeValue::Float(_) => Raw::Other("a number with a fraction"),
        DeValue::Datetime(_) => Raw::Other("a date"),
    }
}

impl Raw {
    fn kind(&self) -> &'static str {
        match self {
            Raw::Text(_) | Raw::Variable(_) => "a text",
            Raw::Integer(_) => "a whole number",
            Raw::Flag(_) => "true or false",
            Raw::List(_) => "a list of texts",
            Raw::Map(_) => "a table of texts",
            Raw::Other(kind) => kind,
        }
    }

    fn is_not(&self, wanted: &str) -> String {
        format!("must be {wanted}, not {}", self.kind())
    }
}

fn set<T>(slot: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    *slot = Some(value?);
    Ok(())
}

fn text(raw: Raw) -> Result<String, String> {
    match raw {
        Raw::Text(text) | Raw::Variable(text) if text.is_empty() => Err("must not be empty".to_owned()),
        Raw::Text(text) | Raw::Variable(text) => Ok(text),
        other => Err(other.is_not("a text")),
    }
}

fn address(raw: Raw) -> Result<SocketAddr, String> {
    let text = text(raw)?;
    text.parse().map_err(|_| format!("must be an address such as 127.0.0.1:7400, not `{text}`"))
}

fn flag(raw: Raw) -> Result<bool, String> {
    match raw {
        Raw::Flag(flag) => Ok(flag),
        Raw::Variable(text) if text == "true" => Ok(true),
        Raw::Variable(text) if text == "false" => Ok(false),
        other => Err(other.is_not("true or false")),
    }
}

fn number(raw: Raw) -> Result<u32, String> {
    let out_of_range =
        |number: String| format!("must be a whole number from 0 to {}, not {number}", u32::MAX);
    match raw {
        Raw::Integer(number) => u32::try_from(number).map_err(|_| out_of_range(number.to_string())),
        Raw::Variable(text) => text.parse().map_err(|_| out_of_range(format!("`{text}`"))),
        other => Err(other.is_not("a whole number")),
    }
}

fn list(raw: Raw) -> Result<Vec<String>, String> {
    match raw {
        Raw::List(items) => Ok(items),
        Raw::Variable(text) => {
            Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Into::into).collect())
        }
        other => Err(other.is_not("a list of texts")),
    }
}

fn map(raw: Raw) -> Result<BTreeMap<String, String>, String> {
    match raw {
        Raw::Map(map) => Ok(map),
        Raw::Variable(text) => text
            .split(',')
            .filter(|pair| !pair.trim().is_empty())
            .map(|pair| {
                let (key, value) =
                    pair.split_once('=').ok_or(format!("must be k=v,k=v; `{pair}` has no `=`"))?;
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            })
            .collect(),
        other => Err(other.is_not("a table of texts")),
    }
}

fn duration(raw: Raw) -> Result<Duration, String> {
    let wanted = "a duration such as \"250ms\", \"30s\", \"10m\" or \"2h\"";
    let (Raw::Text(text) | Raw::Variable(text)) = raw else { return Err(raw.is_not(wanted)) };
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    scaled(&text, &units).map(Duration::from_millis).ok_or(format!("must be {wanted}, not `{text}`"))
}

fn size(raw: Raw) -> Result<u64, String> {
    let wanted = "a size such as \"64MiB\"";
    let (Raw::Text(text) | Raw::Variable(text)) = raw else { return Err(raw.is_not(wanted)) };
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
    ];
    scaled(&text, &units).ok_or(format!("must be {wanted}, not `{text}`"))
}

/// A whole number and a unit: digits, then the unit's name, nothing else.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn nearest(name: &str) -> String {
    let score = |(known, _): &(&'static str, Setter)| (strsim::damerau_levenshtein(name, known), *known);
    match SETTINGS.iter().map(score).min() {
        Some((distance, known)) if distance <= (name.len() / 3).max(1) => format!("did you mean `{known}`?"),
        _ => String::new(),
    }
}

/// Line and column of a byte, counted from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}
