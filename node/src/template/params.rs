//! The parameters of a run: what the caller gave, read by type, completed with defaults.

use std::collections::BTreeMap;

use clawhive_proto::{Param, ValueType, Workflow};
use serde_json::Value as Json;

use super::{is_template, render, run_names, typed};
use crate::definition::{nearest, type_word};

/// When a run is made, and for which instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since the Unix epoch.
    pub created_at_ms: u64,
    /// The occurrence of the schedule that made the run; `None` for a run made by hand, whose nominal time is when it was
    /// created.
    pub nominal_time_ms: Option<u64>,
}

/// Why a parameter is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The workflow declares no such parameter.
    #[error("there is no parameter `{name}`{}", .suggestion.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// As given.
        name: String,
        /// A declared name that is near.
        suggestion: Option<String>,
    },
    /// No value was given and there is no default.
    #[error("the parameter `{name}` ({value_type}) has no default; give it a value")]
    Missing {
        /// The parameter.
        name: String,
        /// The word for its type.
        value_type: &'static str,
    },
    /// The value is not of the declared type.
    #[error("the parameter `{name}` is {expected}, not {given:?}")]
    WrongType {
        /// The parameter.
        name: String,
        /// What is read.
        expected: &'static str,
        /// What was given, shortened.
        given: String,
    },
    /// The template of its default has no value.
    #[error("the default of the parameter `{name}`: {message}")]
    Default {
        /// The parameter.
        name: String,
        /// What is wrong.
        message: String,
    },
}

/// The complete parameters of a run, name to JSON text: given text is read by the declared type, defaults fill the rest,
/// and templates in defaults are resolved. Given values are never templates. Only `workflow.params` and its names are read,
/// so a header without tasks is enough.
pub fn resolve_params(
    workflow: &Workflow,
    given: &BTreeMap<String, String>,
    moment: Moment,
) -> Result<BTreeMap<String, String>, Vec<ParamError>> {
    let mut errors = Vec::new();
    let mut resolved = BTreeMap::new();
    for name in given.keys() {
        if !workflow.params.iter().any(|param| param.name == *name) {
            let declared = workflow.params.iter().map(|param| param.name.as_str());
            let suggestion = nearest(name, declared).map(str::to_owned);
            errors.push(ParamError::Unknown { name: name.clone(), suggestion });
        }
    }
    for param in &workflow.params {
        let value = match given.get(&param.name) {
            Some(text) => read(param, text),
            None => default(workflow, param, moment),
        };
        match value {
            Ok(json) => {
                resolved.insert(param.name.clone(), json);
            }
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(resolved) } else { Err(errors) }
}

fn read(param: &Param, text: &str) -> Result<String, ParamError> {
    typed::read(param.r#type(), text).map(|value| value.to_string()).map_err(|expected| {
        ParamError::WrongType {
            name: param.name.clone(),
            expected,
            given: crate::definition::shortened(text),
        }
    })
}

fn default(workflow: &Workflow, param: &Param, moment: Moment) -> Result<String, ParamError> {
    let Some(json) = &param.default_json else {
        let value_type = type_word(param.r#type());
        return Err(ParamError::Missing { name: param.name.clone(), value_type });
    };
    match typed::parse_json(json) {
        Ok(Json::String(text)) if is_template(&text) => {
            let run = run_names(&workflow.name, &workflow.namespace, moment, None);
            let names = minijinja::value::Value::from_pairs([("run", run)]);
            let value = render(&text, &names)
                .map_err(|message| ParamError::Default { name: param.name.clone(), message })?;
            // A default of any type that is a template stays text.
            let value_type =
                if param.r#type() == ValueType::Any { ValueType::String } else { param.r#type() };
            typed::read(value_type, &value).map(|value| value.to_string()).map_err(|expected| {
                ParamError::Default {
                    name: param.name.clone(),
                    message: format!("it is {expected}, not {:?}", crate::definition::shortened(&value)),
                }
            })
        }
        _ => Ok(json.clone()),
    }
}
