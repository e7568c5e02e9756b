//! The tree that YAML and JSON texts become: values with their places, scalars by the YAML 1.2 core schema, duplicate
//! keys refused. It knows nothing of the workflow format.
//!
//! A scalar keeps the text it was written with, so that `1.10` as an environment value stays `1.10`. `no`, `on` and `yes`
//! are text. `012` is the number twelve (YAML 1.2; never the octal ten); octal is `0o14`.

use std::borrow::Cow;
use std::collections::HashMap;

use super::report::{Path, Report};
use super::source::Span;

/// Lists and maps inside each other, at most.
pub(crate) const MAX_DEPTH: usize = 64;

/// Values in one file, at most: bounds the memory that a small file of tiny values can ask for.
pub(crate) const MAX_NODES: usize = 1_000_000;

/// A value and its place.
#[derive(Debug)]
pub(crate) struct Node<'s> {
    pub span: Span,
    pub value: Value<'s>,
}

/// What was written.
#[derive(Debug)]
pub(crate) enum Value<'s> {
    Null,
    Bool(bool, Cow<'s, str>),
    Number(Cow<'s, str>),
    Text(Cow<'s, str>),
    List(Vec<Node<'s>>),
    Map(Map<'s>),
    /// Already reported; checks pass over it in silence.
    Bad,
}

/// The entries of a map in file order, each key once.
#[derive(Debug, Default)]
pub(crate) struct Map<'s> {
    pub entries: Vec<Entry<'s>>,
    /// A key was no text; the map as a whole is then not looked into.
    pub bad: bool,
}

#[derive(Debug)]
pub(crate) struct Entry<'s> {
    pub key: Cow<'s, str>,
    pub key_span: Span,
    pub value: Node<'s>,
}

impl<'s> Map<'s> {
    pub fn get(&self, key: &str) -> Option<&Entry<'s>> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

impl<'s> Value<'s> {
    /// A plain scalar by the YAML 1.2 core schema.
    pub fn plain(text: Cow<'s, str>) -> Value<'s> {
        match &*text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true, text),
            "false" | "False" | "FALSE" => Value::Bool(false, text),
            other if is_number(other) => Value::Number(text),
            _ => Value::Text(text),
        }
    }

    /// How messages call it.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(..) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Bad => "something unreadable",
        }
    }

    /// The text of a scalar as it was written.
    pub fn written(&self) -> Option<&str> {
        match self {
            Value::Bool(_, text) | Value::Number(text) | Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let bytes = unsigned.as_bytes();
    match bytes.first() {
        Some(b'0'..=b'9' | b'.') => {}
        _ => return false,
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0'..=b'7'));
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let exponent_ok = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    digits(whole) && digits(fraction) && whole.len() + fraction.len() > 0 && exponent_ok
}

/// A whole number as it may be written: decimal (leading zeros mean nothing), `0o17`, `0x1f`.
pub(crate) fn whole_number(text: &str) -> Option<i128> {
    if let Some(digits) = text.strip_prefix("0o") {
        return i128::from_str_radix(digits, 8).ok();
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return i128::from_str_radix(digits, 16).ok();
    }
    text.parse().ok()
}

/// The JSON number of a number as written, or why there is none.
pub(crate) fn json_number(text: &str) -> Result<serde_json::Number, &'static str> {
    if let Some(whole) = whole_number(text) {
        if let Ok(number) = i64::try_from(whole) {
            return Ok(number.into());
        }
        return u64::try_from(whole).map(Into::into).map_err(|_| "the number is outside of 64 bits");
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b'+') {
        return Err("the number is outside of 64 bits");
    }
    let number: f64 = text.parse().map_err(|_| "not a finite number")?;
    serde_json::Number::from_f64(number).ok_or("not a finite number")
}

/// The JSON value of a node; the place and reason when a number has none.
pub(crate) fn to_json(node: &Node<'_>) -> Result<serde_json::Value, (Span, &'static str)> {
    use serde_json::Value as Json;
    Ok(match &node.value {
        Value::Null | Value::Bad => Json::Null,
        Value::Bool(value, _) => Json::Bool(*value),
        Value::Number(text) => Json::Number(json_number(text).map_err(|reason| (node.span, reason))?),
        Value::Text(text) => Json::String(text.to_string()),
        Value::List(items) => Json::Array(items.iter().map(to_json).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut out = serde_json::Map::new();
            for entry in &map.entries {
                out.insert(entry.key.to_string(), to_json(&entry.value)?);
            }
            Json::Object(out)
        }
    })
}

/// Reports every key that a map holds twice, with both lines, and keeps the first.
pub(crate) fn refuse_duplicates(node: &mut Node<'_>, path: &Path<'_>, report: &mut Report<'_>) {
    match &mut node.value {
        Value::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                refuse_duplicates(item, &path.index(index), report);
            }
        }
        Value::Map(map) => {
            let mut seen: HashMap<&str, Span> = HashMap::with_capacity(map.entries.len());
            let mut repeated = Vec::new();
            for (index, entry) in map.entries.iter().enumerate() {
                match seen.get(&*entry.key) {
                    None => {
                        seen.insert(&entry.key, entry.key_span);
                    }
                    Some(first) => {
                        let message = format!(
                            "the key `{}` is written twice: on line {} and on line {}",
                            entry.key,
                            report.line(*first),
                            report.line(entry.key_span)
                        );
                        let help = "remove one of them; nothing is overwritten silently";
                        report.error("duplicate-key", entry.key_span, &path.key(&entry.key), message, help);
                        repeated.push(index);
                    }
                }
            }
            for index in repeated.into_iter().rev() {
                map.entries.remove(index);
            }
            for entry in &mut map.entries {
                refuse_duplicates(&mut entry.value, &path.key(&entry.key), report);
            }
        }
        _ => {}
    }
}
