//! Workflow files: YAML or JSON text becomes a checked, completed [`Workflow`], or everything that is wrong with it in one
//! pass, each fault with its place. Nothing is stored, run or read from disk here.
//!
//! Decisions that the format leaves open:
//! * Anchors, aliases, tags and several documents are refused.
//! * Scalars are YAML 1.2: `no` and `on` are text, `012` is twelve. Where text is expected (`env`, `command`, `labels`) a
//!   number or boolean counts as it was written: `1.10` stays `1.10`.
//! * A limit that is not wanted is written `none` (`timeout: none`, `max_parallel: none`); zero is refused.
//! * A parameter without a type has the type of its default, or is a string. `name: value` is short for a default.
//! * `retries: 3` is `max_attempts: 4`; on a task it keeps the delays of `defaults`.
//! * The text of `run` is never a template; one that names a value there is refused with the way through `env`.

use clawhive_proto::{Diagnostic, Workflow, prost::Message};
use sha2::{Digest, Sha256};

mod canonical;
mod graph;
mod json;
mod keys;
mod params;
mod policy;
mod references;
pub mod render;
mod report;
mod schedule;
mod source;
mod task;
mod tree;
mod values;
mod workflow;

pub use canonical::canonical_json;
pub(crate) use keys::nearest;
pub(crate) use params::type_word;
pub use source::MAX_FILE_BYTES;
pub(crate) use tree::{json_number, whole_number};
pub(crate) use values::{TASK_NAME, WORKFLOW_NAME, shortened};
pub use values::{duration_text, parse_duration};

mod yaml;

use report::{Path, Report};
use source::{Source, Span};
use tree::Node;

/// A file that may be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Every default filled in.
    pub workflow: Workflow,
    /// What is allowed and yet worth a word.
    pub warnings: Vec<Diagnostic>,
}

/// Everything that is wrong with a file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", render::plain_lines(source_name, errors, *omitted))]
pub struct Diagnostics {
    /// As given to [`parse`].
    pub source_name: String,
    /// In file order; at least one.
    pub errors: Vec<Diagnostic>,
    /// In file order.
    pub warnings: Vec<Diagnostic>,
    /// Errors that were found and not kept.
    pub omitted: usize,
}

/// Reads a workflow file. `source_name` is what messages call it; a name that ends in `.json` is read as JSON only.
pub fn parse(text: &[u8], source_name: &str) -> Result<Definition, Diagnostics> {
    let refused = |errors: Vec<Diagnostic>, warnings: Vec<Diagnostic>, omitted: usize| Diagnostics {
        source_name: source_name.to_owned(),
        errors,
        warnings,
        omitted,
    };
    let source = match Source::new(text, MAX_FILE_BYTES) {
        Ok(source) => source,
        Err(fault) => return Err(refused(vec![located(fault, text)], Vec::new(), 0)),
    };
    let mut report = Report::new(&source);
    let workflow = read_tree(&source, &mut report, source_name).and_then(|mut root| {
        tree::refuse_duplicates(&mut root, &Path::ROOT, &mut report);
        workflow::read(&mut report, &root)
    });
    let failed = report.failed();
    let (errors, warnings, omitted) = report.finish();
    match workflow {
        Some(workflow) if !failed => Ok(Definition { workflow, warnings }),
        _ => Err(refused(errors, warnings, omitted)),
    }
}

/// Whether the rule for names of workflows and namespaces takes a name.
pub(crate) fn is_workflow_name(name: &str) -> bool {
    WORKFLOW_NAME.allows(name)
}

/// SHA-256 over the canonical encoding: the identity of a version.
pub fn hash(workflow: &Workflow) -> [u8; 32] {
    Sha256::digest(workflow.encode_to_vec()).into()
}

/// JSON text as a value, by the same reader and limits as definitions; the error is one line.
pub(crate) fn json_value(text: &[u8], max_bytes: usize) -> Result<serde_json::Value, String> {
    let source = Source::new(text, max_bytes).map_err(|fault| fault.message)?;
    let mut report = Report::new(&source);
    let at = |fault: &report::Fault| match fault.span {
        Some(span) => {
            let (line, column) = source.place(span.start as usize);
            format!("{} (line {line}, column {column})", fault.message)
        }
        None => fault.message.clone(),
    };
    let mut root = json::read(&source).map_err(|fault| at(&fault))?;
    tree::refuse_duplicates(&mut root, &Path::ROOT, &mut report);
    if let Some(error) = report.finish().0.into_iter().next() {
        return Err(error.message);
    }
    tree::to_json(&root).map_err(|(_, reason)| reason.to_owned())
}

fn read_tree<'s>(source: &'s Source<'s>, report: &mut Report<'_>, source_name: &str) -> Option<Node<'s>> {
    let content = source.text[source.start..].trim_start();
    let json_only = source_name.ends_with(".json");
    let mut json_fault = None;
    if json_only || content.starts_with(['{', '[']) {
        match json::read(source) {
            Ok(root) => return Some(root),
            // What is too large or too deep as JSON is so as YAML; what is only no JSON may be YAML in braces.
            Err(fault) if (json_only && !content.is_empty()) || fault.code != "syntax" => {
                report.fault(fault, &Path::ROOT);
                return None;
            }
            Err(fault) => json_fault = Some(fault),
        }
    }
    match yaml::read(source, report) {
        Ok(Some(root)) => Some(root),
        Ok(None) => {
            let help = "a workflow has at least a name and a task; see the examples";
            report.error("empty", Span::default(), &Path::ROOT, "the file is empty", help);
            None
        }
        Err(fault) => {
            // A file that starts like JSON and is neither: the reader that came further knows better.
            let reached = |fault: &report::Fault| fault.span.map_or(0, |span| span.start);
            let fault = match json_fault {
                Some(json) if fault.code == "syntax" && reached(&json) >= reached(&fault) => json,
                _ => fault,
            };
            report.fault(fault, &Path::ROOT);
            None
        }
    }
}

/// A fault of a file that has no text: its place is counted in bytes that are text.
fn located(fault: report::Fault, bytes: &[u8]) -> Diagnostic {
    let span = fault.span;
    let mut diagnostic = fault.without_source();
    if let Some(span) = span {
        let before = bytes.get(..span.start as usize).unwrap_or(bytes);
        let before = String::from_utf8_lossy(before);
        let (line, column) = source::place(&before, &source::Lines::of(&before), before.len());
        (diagnostic.line, diagnostic.column) = (line, column);
    }
    diagnostic
}
