//! Collects what is wrong with a definition, with its place and its path, all of one pass. It decides nothing.

use std::fmt;

use clawhive_proto::Diagnostic;

use super::source::{Source, Span};

/// At most this many errors are kept; the rest is counted. A reader fixes the first ones first, and a hostile file
/// must not make an answer of any size.
pub(crate) const MAX_ERRORS: usize = 100;

/// One fault before its place is turned into line and column.
#[derive(Debug)]
pub(crate) struct Fault {
    pub code: &'static str,
    pub span: Option<Span>,
    pub message: String,
    pub help: String,
}

impl Fault {
    pub fn new(
        code: &'static str,
        span: Option<Span>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Fault {
        Fault { code, span, message: message.into(), help: help.into() }
    }

    /// The fault without a text to point into.
    pub fn without_source(self) -> Diagnostic {
        let span = self.span.unwrap_or_default();
        Diagnostic {
            code: self.code.to_owned(),
            message: self.message,
            help: self.help,
            line: 0,
            column: 0,
            path: String::new(),
            offset: span.start,
            length: span.end - span.start,
        }
    }
}

/// Where in the definition, as a chain on the stack: building it costs nothing until it is printed.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
    /// Several steps, already printed.
    Below(&'a str),
}

impl<'a> Path<'a> {
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    /// A path that was printed before, below this one.
    pub fn below(&'a self, steps: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Below(steps) }
    }

    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Below(steps) => write!(f, ".{steps}"),
            Step::Key(key) => {
                if self.parent.is_some_and(|parent| !matches!(parent.step, Step::Root)) {
                    f.write_str(".")?;
                }
                let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                if !key.is_empty() && key.chars().all(plain) {
                    f.write_str(key)
                } else {
                    write!(f, "{key:?}")
                }
            }
        }
    }
}

/// The collector of one pass.
pub(crate) struct Report<'s> {
    pub source: &'s Source<'s>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
    omitted: usize,
}

impl<'s> Report<'s> {
    pub fn new(source: &'s Source<'s>) -> Report<'s> {
        Report { source, errors: Vec::new(), warnings: Vec::new(), omitted: 0 }
    }

    pub fn error(
        &mut self,
        code: &'static str,
        span: Span,
        path: &Path<'_>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.errors.len() >= MAX_ERRORS {
            self.omitted += 1;
            return;
        }
        let diagnostic = self.diagnostic(Fault::new(code, Some(span), message, help), path);
        self.errors.push(diagnostic);
    }

    pub fn fault(&mut self, fault: Fault, path: &Path<'_>) {
        let span = fault.span.unwrap_or_default();
        self.error(fault.code, span, path, fault.message, fault.help);
    }

    pub fn warning(
        &mut self,
        code: &'static str,
        span: Span,
        path: &Path<'_>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if self.warnings.len() < MAX_ERRORS {
            let diagnostic = self.diagnostic(Fault::new(code, Some(span), message, help), path);
            self.warnings.push(diagnostic);
        }
    }

    /// How many errors were found so far.
    pub fn count(&self) -> usize {
        self.errors.len() + self.omitted
    }

    /// Whether anything was found so far that refuses the file.
    pub fn failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Errors, warnings, and how many errors were only counted; both in file order.
    pub fn finish(mut self) -> (Vec<Diagnostic>, Vec<Diagnostic>, usize) {
        self.errors.sort_by_key(|diagnostic| diagnostic.offset);
        self.warnings.sort_by_key(|diagnostic| diagnostic.offset);
        (self.errors, self.warnings, self.omitted)
    }

    pub fn line(&self, span: Span) -> u32 {
        self.source.place(span.start as usize).0
    }

    fn diagnostic(&self, fault: Fault, path: &Path<'_>) -> Diagnostic {
        let span = self.visible(fault.span.unwrap_or_default());
        let (line, column) = self.source.place(span.start as usize);
        Diagnostic {
            code: fault.code.to_owned(),
            message: fault.message,
            help: fault.help,
            line,
            column,
            path: path.to_string(),
            offset: span.start,
            length: span.end - span.start,
        }
    }

    /// A range that stays on its first line: marking a whole block says less than marking where it starts.
    fn visible(&self, span: Span) -> Span {
        let text = self.source.slice(span);
        let first = text.lines().next().unwrap_or("").trim_end();
        Span::new(span.start as usize, span.start as usize + first.len())
    }
}
