//! A JSON value as YAML 1.2. Strings that YAML could read as anything else are quoted as in JSON, which YAML includes.

use std::fmt::Write;

use serde_json::Value;

/// The document, with a line feed at its end.
pub(super) fn text(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0, false);
    out
}

/// Writes the value as a block; `inline` when the cursor stands behind a dash, where a first key may follow at once.
fn block(out: &mut String, value: &Value, depth: usize, inline: bool) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (place, (name, field)) in fields.iter().enumerate() {
                if place > 0 || !inline {
                    indent(out, depth);
                }
                out.push_str(&scalar(name));
                out.push(':');
                nested(out, field, depth);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(out, depth);
                out.push('-');
                if matches!(item, Value::Object(fields) if !fields.is_empty()) {
                    out.push(' ');
                    block(out, item, depth + 1, true);
                } else {
                    nested(out, item, depth);
                }
            }
        }
        other => {
            out.push_str(&plain(other));
            out.push('\n');
        }
    }
}

/// What follows a key or a dash: on the same line when it fits there.
fn nested(out: &mut String, value: &Value, depth: usize) {
    let is_block = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if is_block {
        out.push('\n');
        block(out, value, depth + 1, false);
    } else {
        out.push(' ');
        out.push_str(&plain(value));
        out.push('\n');
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        other => other.to_string(),
    }
}

fn scalar(text: &str) -> String {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '/';
    let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ');
    let word = text.starts_with(first) && text.chars().all(rest) && !text.ends_with(' ');
    // What YAML 1.1 reads as something else is quoted too: such files meet such readers.
    let special = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if word && !special.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    let mut quoted = String::new();
    // Writing into a string does not fail.
    let _ = write!(quoted, "{}", Value::String(text.to_owned()));
    quoted
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    #[test]
    fn documents_read_well_and_keep_their_types() {
        let value = json!({
            "id": "7",
            "state": "succeeded",
            "reason": null,
            "note": "no",
            "text": "two\nlines: \"x\"",
            "params": {},
            "tasks": [{"name": "a", "needs": [], "outputs": {"n": 1}}, {"name": "b", "needs": ["a", "1"]}],
            "odd": [[1, 2], {}],
        });
        expect![[r#"
            id: "7"
            state: succeeded
            reason: null
            note: "no"
            text: "two\nlines: \"x\""
            params: {}
            tasks:
              - name: a
                needs: []
                outputs:
                  "n": 1
              - name: b
                needs:
                  - a
                  - "1"
            odd:
              -
                - 1
                - 2
              - {}
        "#]]
        .assert_eq(&text(&value));
    }
}
