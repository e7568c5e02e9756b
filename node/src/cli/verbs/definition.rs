//! Workflow files: reading them, and drawing what is wrong with them.

use std::io::Read;
use std::path::Path;

use clawhive_client::Submit;
use clawhive_node::definition::render::{Frame, Style, render};
use clawhive_node::definition::{self, Definition};
use clawhive_proto::Diagnostic;

use crate::cli::args::SubmitOptions;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Format, Output, Stream};

/// A definition with what messages call it.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) text: Vec<u8>,
}

impl File {
    /// Reads a file, or standard input for `-`. No more than a definition may have, and a little, so that the fault is
    /// told by the one who knows the limit.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let limit = definition::MAX_FILE_BYTES as u64 + 1;
        Self::read_up_to(path, limit)
    }

    pub(super) fn read_up_to(path: &Path, limit: u64) -> Result<Self, Failure> {
        let mut text = Vec::new();
        let read = if path == Path::new("-") {
            std::io::stdin().lock().take(limit).read_to_end(&mut text)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text))
        };
        let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        match read {
            Ok(_) => Ok(Self { name, text }),
            Err(error) => Err(Failure::new(Exit::Usage, "usage", format!("cannot read {name}: {error}"))),
        }
    }

    /// Checks it here, before any server is asked.
    pub(super) fn check(&self, output: &Output) -> Result<Definition, Failure> {
        definition::parse(&self.text, &self.name).map_err(|found| {
            let count = found.errors.len() + found.omitted;
            let problems = if count == 1 { "1 problem".to_owned() } else { format!("{count} problems") };
            let message = format!("{}: the definition is refused: {problems}", self.name);
            let rendered = self.draw(output.stderr, &found.errors, &found.warnings, found.omitted);
            Failure::refused(message, found.errors, rendered)
        })
    }

    /// What a server has refused although it was fine here (another version), drawn as here.
    pub(super) fn explain(&self, failure: Failure, output: &Output) -> Failure {
        if failure.diagnostics().is_empty() {
            return failure;
        }
        let found = failure.diagnostics().to_vec();
        let rendered = self.draw(output.stderr, &found, &[], 0);
        Failure::refused(format!("{}: the definition is refused", self.name), found, rendered)
    }

    pub(super) fn draw(
        &self,
        stream: Stream,
        errors: &[Diagnostic],
        warnings: &[Diagnostic],
        omitted: usize,
    ) -> String {
        let style = match (stream.terminal, stream.colour) {
            (true, true) => Style::Terminal,
            (true, false) => Style::Colourless,
            (false, _) => Style::Plain,
        };
        let frame = Frame { source_name: &self.name, text: &self.text, style, width: stream.width };
        render(&frame, errors, warnings, omitted)
    }
}

/// Adds what was asked for on the command line.
pub(super) fn with_options(submit: Submit, options: &SubmitOptions) -> Submit {
    let mut submit = submit.params(options.params.clone());
    for (name, value) in &options.labels {
        submit = submit.label(name, value);
    }
    match &options.idempotency_key {
        Some(key) => submit.idempotency_key(key),
        None => submit,
    }
}

/// Warnings stop nothing: `validate` tells them, a verb that runs something does not.
pub(super) fn tell_warnings(file: &File, checked: &Definition, output: &Output) {
    if !checked.warnings.is_empty() && output.format == Format::Table {
        eprint!("{}", file.draw(output.stderr, &[], &checked.warnings, 0));
    }
}
