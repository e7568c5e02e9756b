//! Values by type: what a declared type accepts, and how plain text is read as one.

use clawhive_proto::ValueType;
use minijinja::value::Value;
use serde_json::Value as Json;

use crate::definition::{json_value, whole_number};

/// Whether a JSON value is of a type.
pub(crate) fn fits(value_type: ValueType, value: &Json) -> bool {
    match value_type {
        ValueType::Any => !value.is_null(),
        ValueType::String => value.is_string(),
        ValueType::Integer => value.is_i64() || value.is_u64(),
        ValueType::Number => value.is_number(),
        ValueType::Boolean => value.is_boolean(),
        ValueType::List => value.is_array(),
        ValueType::Object => value.is_object(),
    }
}

/// Reads text, as given on a command line or in a KEY=VALUE line, as a value of a type; else says what was expected.
pub(crate) fn read(value_type: ValueType, text: &str) -> Result<Json, &'static str> {
    let trimmed = text.trim();
    match value_type {
        ValueType::String => Ok(Json::String(text.to_owned())),
        ValueType::Integer => {
            let number = whole_number(trimmed).ok_or("a whole number")?;
            let signed = i64::try_from(number).map(Json::from);
            signed.or_else(|_| u64::try_from(number).map(Json::from)).map_err(|_| "a whole number of 64 bits")
        }
        ValueType::Number => {
            let digits = trimmed.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
            let number = if digits { crate::definition::json_number(trimmed).ok() } else { None };
            number.map(Json::Number).ok_or("a number")
        }
        ValueType::Boolean => match trimmed {
            "true" => Ok(Json::Bool(true)),
            "false" => Ok(Json::Bool(false)),
            _ => Err("`true` or `false`"),
        },
        ValueType::List => {
            parse_json(trimmed).ok().filter(Json::is_array).ok_or("a JSON list such as [1, 2]")
        }
        ValueType::Object => {
            parse_json(trimmed).ok().filter(Json::is_object).ok_or("a JSON object such as {\"a\": 1}")
        }
        ValueType::Any => {
            Ok(parse_json(trimmed).ok().filter(|value| !value.is_null()).unwrap_or_else(|| text.into()))
        }
    }
}

/// JSON text as a value: numbers exact, duplicate keys and excessive depth refused.
pub(crate) fn parse_json(text: &str) -> Result<Json, String> {
    json_value(text.as_bytes(), crate::definition::MAX_FILE_BYTES)
}

/// A JSON value as templates see it; whole numbers stay whole.
pub(crate) fn template_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(signed), _) => Value::from(signed),
            (None, Some(unsigned)) => Value::from(unsigned),
            (None, None) => number.as_f64().map_or_else(|| Value::from(()), Value::from),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(template_value).collect(),
        Json::Object(entries) => {
            Value::from_pairs(entries.iter().map(|(key, value)| (key.as_str(), template_value(value))))
        }
    }
}
