//! What a task wrote into the file that `CLAWHIVE_OUTPUT` names, against the outputs it declares.
//!
//! The file holds one JSON object, or lines KEY=VALUE whose values are read by the declared type.

use clawhive_proto::{Output, Task};
use serde_json::{Map, Value as Json};

use super::typed::{self, fits};
use crate::definition::{nearest, shortened, type_word};

/// The largest output file, in bytes: outputs live in the replicated state.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// Why the outputs of a task are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// More bytes than the state keeps.
    #[error("the output file has {bytes} bytes; the limit is {MAX_OUTPUT_BYTES} bytes (64 KiB)")]
    TooLarge {
        /// Its size; at least, when reading stopped there.
        bytes: usize,
    },
    /// Not text.
    #[error("the output file is not UTF-8: byte {byte:#04x} at offset {offset}")]
    NotUtf8 {
        /// The first wrong byte.
        byte: u8,
        /// Its place.
        offset: usize,
    },
    /// Neither a JSON object nor KEY=VALUE lines.
    #[error("the output file is neither a JSON object nor KEY=VALUE lines: {0}")]
    Unreadable(String),
    /// Declared and not written.
    #[error("declared outputs were not written: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// Written and not declared.
    #[error("the output `{name}` is not declared{}", .suggestion.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Undeclared {
        /// As written.
        name: String,
        /// A declared name that is near.
        suggestion: Option<String>,
    },
    /// Not of the declared type.
    #[error("the output `{name}` is declared as {declared}, but is {found}")]
    WrongType {
        /// The output.
        name: String,
        /// The word for its type.
        declared: &'static str,
        /// What was written, shortened.
        found: String,
    },
}

/// The declared outputs as JSON object text in the order of the declaration; empty when none is declared and none written.
pub fn check_outputs(task: &Task, file: &[u8]) -> Result<String, OutputError> {
    if file.len() > MAX_OUTPUT_BYTES {
        return Err(OutputError::TooLarge { bytes: file.len() });
    }
    let text = std::str::from_utf8(file).map_err(|error| {
        let offset = error.valid_up_to();
        OutputError::NotUtf8 { byte: file.get(offset).copied().unwrap_or(0), offset }
    })?;
    let mut written = if text.trim_start().starts_with('{') { object(text)? } else { lines(text, task)? };
    let mut checked = Map::new();
    let mut missing = Vec::new();
    for output in &task.outputs {
        match written.remove(&output.name) {
            None => missing.push(output.name.clone()),
            Some(value) if fits(output.r#type(), &value) => {
                checked.insert(output.name.clone(), value);
            }
            Some(value) => return Err(wrong_type(output, &value.to_string())),
        }
    }
    if let Some(name) = written.keys().next() {
        let suggestion = nearest(name, missing.iter().map(String::as_str)).map(str::to_owned);
        return Err(OutputError::Undeclared { name: shortened(name), suggestion });
    }
    if !missing.is_empty() {
        return Err(OutputError::Missing(missing));
    }
    if checked.is_empty() { Ok(String::new()) } else { Ok(Json::Object(checked).to_string()) }
}

fn object(text: &str) -> Result<Map<String, Json>, OutputError> {
    match typed::parse_json(text).map_err(OutputError::Unreadable)? {
        Json::Object(object) => Ok(object),
        _ => Err(OutputError::Unreadable("the JSON is not an object".to_owned())),
    }
}

fn lines(text: &str, task: &Task) -> Result<Map<String, Json>, OutputError> {
    let mut written = Map::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            let message = format!("line {} has no `=`: {:?}", index + 1, shortened(line));
            return Err(OutputError::Unreadable(message));
        };
        let name = name.trim();
        let value = match task.outputs.iter().find(|output| output.name == name) {
            None => Json::Null,
            Some(output) => typed::read(output.r#type(), value).map_err(|_| wrong_type(output, value))?,
        };
        if written.insert(name.to_owned(), value).is_some() {
            let message = format!("line {} writes `{}` a second time", index + 1, shortened(name));
            return Err(OutputError::Unreadable(message));
        }
    }
    Ok(written)
}

fn wrong_type(output: &Output, found: &str) -> OutputError {
    OutputError::WrongType {
        name: output.name.clone(),
        declared: type_word(output.r#type()),
        found: shortened(found),
    }
}
