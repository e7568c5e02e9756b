//! Diagnostics for people and for programs: with the place in the text and colours on a terminal, without colours and drawing
//! characters when piped, and as JSON. It prints diagnostics that came from a server as well as local ones.

use std::fmt::{self, Write};

use clawhive_proto::Diagnostic;
use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, Severity,
    SourceCode, SourceSpan, SpanContents,
};
use serde_json::{Value, json};

use super::source::Lines;

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Colours and drawing characters: a terminal.
    Terminal,
    /// Drawing characters, no colours: a terminal under `NO_COLOR`.
    Colourless,
    /// ASCII only: a pipe or a file.
    Plain,
}

/// What is printed around the diagnostics.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What messages call the file.
    pub source_name: &'a str,
    /// The bytes that were parsed.
    pub text: &'a [u8],
    /// See [`Style`].
    pub style: Style,
    /// Columns of the terminal; 80 when unknown.
    pub width: usize,
}

/// Every diagnostic with its place in the text, then the summary line.
pub fn render(frame: &Frame<'_>, errors: &[Diagnostic], warnings: &[Diagnostic], omitted: usize) -> String {
    let text = without_controls(&String::from_utf8_lossy(frame.text));
    let lines = Lines::of(&text);
    let theme = match frame.style {
        Style::Terminal => GraphicalTheme::unicode(),
        Style::Colourless => GraphicalTheme::unicode_nocolor(),
        Style::Plain => GraphicalTheme::none(),
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_links(false)
        .with_width(frame.width.clamp(40, 120))
        .with_context_lines(1)
        .tab_width(4);
    let mut out = String::new();
    let all = errors
        .iter()
        .map(|one| (one, Severity::Error))
        .chain(warnings.iter().map(|one| (one, Severity::Warning)));
    for (diagnostic, severity) in all {
        let diagnostic = &harmless(diagnostic);
        let page = Page { text: &text, lines: &lines, name: frame.source_name, diagnostic };
        let shown = Shown { diagnostic, severity, page };
        // Writing into a string does not fail; a diagnostic that could not be drawn is still said.
        if handler.render_report(&mut out, &shown).is_err() {
            let _ = writeln!(out, "{}", plain_line(frame.source_name, diagnostic));
        }
        if !out.ends_with("\n\n") {
            out.push('\n');
        }
    }
    out.push_str(&summary(frame.source_name, errors.len() + omitted, warnings.len(), omitted));
    out.push('\n');
    out
}

/// `bad.yaml: 3 errors, nothing stored`.
pub fn summary(source_name: &str, errors: usize, warnings: usize, omitted: usize) -> String {
    let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    let mut parts = Vec::new();
    if errors > 0 {
        parts.push(count(errors, "error"));
    }
    if omitted > 0 {
        parts.push(format!("{omitted} of them not shown"));
    }
    if warnings > 0 {
        parts.push(count(warnings, "warning"));
    }
    parts.push(if errors > 0 { "nothing stored".to_owned() } else { "the definition is valid".to_owned() });
    format!("{source_name}: {}", parts.join(", "))
}

/// The diagnostics as JSON: `{"source", "errors": [...], "warnings": [...], "omitted"}`.
pub fn render_json(
    source_name: &str,
    errors: &[Diagnostic],
    warnings: &[Diagnostic],
    omitted: usize,
) -> Value {
    let list = |diagnostics: &[Diagnostic]| diagnostics.iter().map(one_json).collect::<Value>();
    json!({
        "source": source_name,
        "errors": list(errors),
        "warnings": list(warnings),
        "omitted": omitted,
    })
}

fn one_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "code": diagnostic.code,
        "message": diagnostic.message,
        "help": diagnostic.help,
        "line": diagnostic.line,
        "column": diagnostic.column,
        "path": diagnostic.path,
        "offset": diagnostic.offset,
        "length": diagnostic.length,
    })
}

/// One line per error, for logs and for errors that travel as text.
pub fn plain_lines(source_name: &str, errors: &[Diagnostic], omitted: usize) -> String {
    let mut out: Vec<String> = errors.iter().map(|one| plain_line(source_name, &harmless(one))).collect();
    if omitted > 0 {
        out.push(format!("{source_name}: {omitted} more errors"));
    }
    out.join("\n")
}

fn plain_line(source_name: &str, diagnostic: &Diagnostic) -> String {
    let mut line = source_name.to_owned();
    if diagnostic.line > 0 {
        let _ = write!(line, ":{}:{}", diagnostic.line, diagnostic.column);
    }
    let _ = write!(line, ": {} [{}]", diagnostic.message, diagnostic.code);
    if !diagnostic.help.is_empty() {
        let _ = write!(line, " ({})", diagnostic.help);
    }
    line
}

/// A diagnostic in the form that miette draws.
struct Shown<'d> {
    diagnostic: &'d Diagnostic,
    severity: Severity,
    page: Page<'d>,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.diagnostic, f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.diagnostic.message, self.diagnostic.code)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        if self.diagnostic.help.is_empty() { None } else { Some(Box::new(&self.diagnostic.help)) }
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        if self.diagnostic.line == 0 { None } else { Some(&self.page) }
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        if self.diagnostic.line == 0 {
            return None;
        }
        let path = (!self.diagnostic.path.is_empty()).then(|| self.diagnostic.path.clone());
        let label = LabeledSpan::new_primary_with_span(path, self.page.span());
        Some(Box::new(std::iter::once(label)))
    }
}

/// Bytes shown on either side of the place when a line is long: JSON files have lines of megabytes.
const WINDOW: usize = 60;

/// The text behind one diagnostic; hands out the line of its place and its neighbours, and of a long line a window.
struct Page<'d> {
    text: &'d str,
    lines: &'d Lines,
    name: &'d str,
    diagnostic: &'d Diagnostic,
}

impl Page<'_> {
    /// The place, moved to character boundaries and into the text.
    fn span(&self) -> SourceSpan {
        let start = floor(self.text, self.diagnostic.offset as usize);
        let end =
            floor(self.text, start.saturating_add(self.diagnostic.length as usize)).min(start + 2 * WINDOW);
        let end = floor(self.text, end).max(start);
        (start, end - start).into()
    }
}

impl<'d> Page<'d> {
    /// The place alone: it becomes the `file:line:column` of the heading.
    fn place(&self, at: usize) -> MietteSpanContents<'d> {
        let (line, column) = super::source::place(self.text, self.lines, at);
        let (line, column) = (line.saturating_sub(1) as usize, column.saturating_sub(1) as usize);
        MietteSpanContents::new_named(self.name.to_owned(), &[], (at, 0).into(), line, column, 1)
    }
}

impl SourceCode for Page<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let at = span.offset();
        if before == 0 && after == 0 {
            return Ok(Box::new(self.place(at)));
        }
        let line = self.lines.line_of(at);
        let own = self.lines.range(self.text, line);
        let (mut start, mut end, mut first) = (own.start, own.end, line);
        if own.len() > 4 * WINDOW {
            start = floor(self.text, at.saturating_sub(WINDOW).max(own.start));
            end = floor(self.text, (at + span.len() + WINDOW).min(own.end));
        } else {
            let short = |line: usize| self.lines.range(self.text, line).len() <= 4 * WINDOW;
            for _ in 0..before {
                if first > 0 && short(first - 1) {
                    first -= 1;
                    start = self.lines.range(self.text, first).start;
                }
            }
            let mut last = line;
            for _ in 0..after {
                if last + 1 < self.lines.count() && short(last + 1) {
                    last += 1;
                    end = self.lines.range(self.text, last).end;
                }
            }
        }
        let bytes = &self.text.as_bytes()[start..end];
        let column =
            if first == line { self.text[own.start..start.max(own.start)].chars().count() } else { 0 };
        let place: SourceSpan = (start, end - start).into();
        let contents = MietteSpanContents::new_named(self.name.to_owned(), bytes, place, first, column, 1);
        Ok(Box::new(contents))
    }
}

/// A diagnostic whose texts, which quote the file, steer nothing.
fn harmless(diagnostic: &Diagnostic) -> Diagnostic {
    Diagnostic {
        message: without_controls(&diagnostic.message),
        help: without_controls(&diagnostic.help),
        path: without_controls(&diagnostic.path),
        ..diagnostic.clone()
    }
}

/// The text with what steers a terminal or turns the writing direction replaced, byte for byte, so that places stay where they are.
fn without_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if turns || (c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
