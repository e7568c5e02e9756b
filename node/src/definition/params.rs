//! `params`, `outputs`, `labels` and `env`: maps whose keys are the file's own names.

use std::collections::BTreeMap;

use clawhive_proto::{EnvVar, Output, Param, ValueType};
use serde_json::Value as Json;

use super::keys::{self, Level};
use super::report::{Path, Report};
use super::tree::{Entry, Map, Node, Value, to_json};
use super::values::{ENV_NAME, LABEL_NAME, VALUE_NAME, choice, name, prose, text};
use crate::template;

pub(crate) const TYPES: [(&str, ValueType); 7] = [
    ("string", ValueType::String),
    ("integer", ValueType::Integer),
    ("number", ValueType::Number),
    ("boolean", ValueType::Boolean),
    ("list", ValueType::List),
    ("object", ValueType::Object),
    ("any", ValueType::Any),
];

/// The word for a type.
pub(crate) fn type_word(value_type: ValueType) -> &'static str {
    TYPES.iter().find(|(_, known)| *known == value_type).map_or("any", |(word, _)| word)
}

/// The map under a key whose own keys are names of the file.
fn named<'n, 's>(
    report: &mut Report<'_>,
    node: &'n Node<'s>,
    path: &Path<'_>,
    help: &str,
) -> Option<&'n Map<'s>> {
    match &node.value {
        Value::Map(map) => Some(map),
        Value::Bad => None,
        other => {
            report.error(
                "wrong-type",
                node.span,
                path,
                format!("expected a map, found {}", other.kind()),
                help,
            );
            None
        }
    }
}

/// Reads `params`.
pub(crate) fn params(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Vec<Param> {
    let help = "write `params: {limit: {type: integer, default: 100}}` or `params: {limit: 100}`";
    let Some(map) = named(report, node, path, help) else { return Vec::new() };
    let mut params = Vec::with_capacity(map.entries.len());
    for entry in &map.entries {
        let here = path.key(&entry.key);
        // The name is kept even when it breaks the rule, so that templates that use it are not reported as well.
        name(report, entry.key_span, &here, &entry.key, &VALUE_NAME);
        let (value_type, default, description) = match &entry.value.value {
            Value::Map(_) => long_form(report, entry, &here),
            Value::Null => {
                let help = "a parameter without a default is written `name: {type: string}`";
                report.error("wrong-type", entry.key_span, &here, "this parameter says nothing", help);
                (ValueType::Any, None, String::new())
            }
            _ => (inferred(&entry.value), Some(&entry.value), String::new()),
        };
        let default_json = default.and_then(|node| default_text(report, node, &here, value_type));
        params.push(Param {
            name: entry.key.to_string(),
            r#type: value_type.into(),
            default_json,
            description,
        });
    }
    params
}

fn long_form<'n, 's>(
    report: &mut Report<'_>,
    entry: &'n Entry<'s>,
    path: &Path<'_>,
) -> (ValueType, Option<&'n Node<'s>>, String) {
    let Some(map) = keys::level(report, &entry.value, path, Level::Param) else {
        return (ValueType::Any, None, String::new());
    };
    let default = map.get("default").map(|entry| &entry.value);
    let value_type = match map.get("type") {
        // A type that cannot be read is reported once; the default is then not measured against a guess.
        Some(entry) => choice(report, &entry.value, &path.key("type"), &TYPES).unwrap_or(ValueType::Any),
        None => default.map_or(ValueType::String, inferred),
    };
    let description = map
        .get("description")
        .and_then(|entry| prose(report, &entry.value, &path.key("description"), 4096))
        .unwrap_or_default();
    (value_type, default, description)
}

/// The type that a default has when none is written.
fn inferred(node: &Node<'_>) -> ValueType {
    match &node.value {
        Value::Bool(..) => ValueType::Boolean,
        Value::Number(text) if super::tree::whole_number(text).is_some() => ValueType::Integer,
        Value::Number(_) => ValueType::Number,
        Value::Text(_) => ValueType::String,
        Value::List(_) => ValueType::List,
        Value::Map(_) => ValueType::Object,
        Value::Null | Value::Bad => ValueType::Any,
    }
}

fn default_text(
    report: &mut Report<'_>,
    node: &Node<'_>,
    path: &Path<'_>,
    value_type: ValueType,
) -> Option<String> {
    let value = match to_json(node) {
        Ok(value) => value,
        Err((span, reason)) => {
            report.error("number", span, path, reason, "");
            return None;
        }
    };
    if let Json::String(text) = &value
        && template::is_template(text)
    {
        return Some(value.to_string());
    }
    if !template::fits(value_type, &value) {
        let word = type_word(value_type);
        let message = format!("the default of a parameter of type `{word}` is {}", node.value.kind());
        let help = match (value_type, &node.value) {
            (ValueType::String, Value::Number(_) | Value::Bool(..)) => "put it in quotes".to_owned(),
            (ValueType::Integer, Value::Number(_)) => {
                "use `type: number` for numbers with a fraction".to_owned()
            }
            (_, Value::Text(text))
                if *Value::plain(text.as_ref().into()).kind() == *kind_word(value_type) =>
            {
                "remove the quotes".to_owned()
            }
            _ => format!("give a default of type `{word}`, or another type"),
        };
        report.error("wrong-type", node.span, path, message, help);
        return None;
    }
    Some(value.to_string())
}

fn kind_word(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Integer | ValueType::Number => "a number",
        ValueType::Boolean => "a boolean",
        _ => "",
    }
}

/// Reads `outputs`: name to type.
pub(crate) fn outputs(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Vec<Output> {
    let help = "write the name and type of each output: `outputs: {path: string, count: integer}`";
    let Some(map) = named(report, node, path, help) else { return Vec::new() };
    let mut outputs = Vec::with_capacity(map.entries.len());
    for entry in &map.entries {
        let here = path.key(&entry.key);
        name(report, entry.key_span, &here, &entry.key, &VALUE_NAME);
        let value_type = choice(report, &entry.value, &here, &TYPES).unwrap_or(ValueType::Any);
        outputs.push(Output { name: entry.key.to_string(), r#type: value_type.into() });
    }
    outputs
}

/// Reads `labels`.
pub(crate) fn labels(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> BTreeMap<String, String> {
    let Some(map) = named(report, node, path, "write `labels: {team: data}`") else { return BTreeMap::new() };
    let mut labels = BTreeMap::new();
    for entry in &map.entries {
        let here = path.key(&entry.key);
        name(report, entry.key_span, &here, &entry.key, &LABEL_NAME);
        if let Some(value) = prose(report, &entry.value, &here, 256) {
            labels.insert(entry.key.to_string(), value);
        }
    }
    labels
}

/// Reads `env`. Numbers and booleans become the text they were written as.
pub(crate) fn env(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>) -> Vec<EnvVar> {
    let Some(map) = named(report, node, path, "write `env: {DATE: \"2025-01-31\"}`") else {
        return Vec::new();
    };
    let mut env = Vec::with_capacity(map.entries.len());
    for entry in &map.entries {
        let here = path.key(&entry.key);
        name(report, entry.key_span, &here, &entry.key, &ENV_NAME);
        if entry.key.starts_with("CLAWHIVE_") {
            let message = format!("`{}` is set by clawhive itself", entry.key);
            report.error(
                "env-name",
                entry.key_span,
                &here,
                message,
                "names that start with CLAWHIVE_ are reserved",
            );
        }
        if let Some(value) = text(report, &entry.value, &here) {
            no_nul(report, &entry.value, &here, value);
            env.push(EnvVar { name: entry.key.to_string(), value: value.to_owned() });
        }
    }
    env
}

/// A program cannot be given a NUL character: refused here rather than when it starts.
pub(crate) fn no_nul(report: &mut Report<'_>, node: &Node<'_>, path: &Path<'_>, text: &str) {
    if text.contains('\0') {
        let message = "a program cannot be given the NUL character";
        report.error("control-character", node.span, path, message, "pass such data through a file");
    }
}
