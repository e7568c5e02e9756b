//! Builds the tree from YAML events. Anchors, aliases, tags and several documents are refused here: a definition says
//! each thing once and where it stands, and an alias can make a small file mean a huge one.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::json::{too_deep, too_many};
use super::report::{Fault, Path, Report};
use super::source::{Source, Span};
use super::tree::{Entry, MAX_DEPTH, MAX_NODES, Map, Node, Value};

/// The one document of a YAML text, `None` when it holds nothing. Faults that leave the tree readable go to the report;
/// one that does not is returned.
pub(crate) fn read<'s>(source: &'s Source<'s>, report: &mut Report<'_>) -> Result<Option<Node<'s>>, Fault> {
    let offsets = Offsets::of(source);
    let mut builder = Builder { source, report, stack: Vec::new(), root: None, nodes: 0, offsets };
    let mut parser = Parser::new_from_str(&source.text[source.start..]);
    let mut documents = 0;
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| builder.syntax(&error))?;
        let span = builder.span(span);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    let help = "put each workflow into a file of its own";
                    return Err(Fault::new(
                        "several-documents",
                        Some(span),
                        "a second document starts here",
                        help,
                    ));
                }
            }
            Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::Alias(_) => {
                builder.refuse_anchor(span, "alias");
                builder.value(Node { span, value: Value::Bad })?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                builder.decoration(span, anchor, tag.as_deref().map(ToString::to_string));
                let value = if style == ScalarStyle::Plain { Value::plain(text) } else { Value::Text(text) };
                builder.value(Node { span, value })?;
            }
            Event::SequenceStart(anchor, tag) => {
                builder.decoration(span, anchor, tag.as_deref().map(ToString::to_string));
                builder.open(Frame::List(span, Vec::new()))?;
            }
            Event::MappingStart(anchor, tag) => {
                builder.decoration(span, anchor, tag.as_deref().map(ToString::to_string));
                builder.open(Frame::Map(span, Map::default(), None))?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close(span)?,
        }
    }
    Ok(builder.root)
}

enum Frame<'s> {
    List(Span, Vec<Node<'s>>),
    Map(Span, Map<'s>, Option<Node<'s>>),
}

struct Builder<'s, 'r, 'w> {
    source: &'s Source<'s>,
    report: &'r mut Report<'w>,
    stack: Vec<Frame<'s>>,
    root: Option<Node<'s>>,
    nodes: usize,
    offsets: Offsets,
}

impl<'s> Builder<'s, '_, '_> {
    fn open(&mut self, frame: Frame<'s>) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            let (Frame::List(span, _) | Frame::Map(span, ..)) = frame;
            return Err(too_deep(span));
        }
        self.stack.push(frame);
        Ok(())
    }

    fn close(&mut self, end: Span) -> Result<(), Fault> {
        let node = match self.stack.pop() {
            Some(Frame::List(span, items)) => {
                Node { span: Span { start: span.start, end: end.end }, value: Value::List(items) }
            }
            Some(Frame::Map(span, map, _)) => {
                let value = if map.bad { Value::Bad } else { Value::Map(map) };
                Node { span: Span { start: span.start, end: end.end }, value }
            }
            None => return Ok(()),
        };
        self.value(node)
    }

    /// Puts a finished value where it belongs.
    fn value(&mut self, node: Node<'s>) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(too_many(node.span));
        }
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List(_, items)) => items.push(node),
            Some(Frame::Map(_, _, pending @ None)) => *pending = Some(node),
            Some(Frame::Map(_, map, pending)) => {
                let Some(key) = pending.take() else { return Ok(()) };
                let entry = match key.value {
                    Value::Bool(_, text) | Value::Number(text) | Value::Text(text) => {
                        Some(Entry { key: text, key_span: key.span, value: node })
                    }
                    // The text of a null key is `~` or `null`; nothing in the format is called so.
                    Value::Null => Some(Entry {
                        key: self.source.slice(key.span).into(),
                        key_span: key.span,
                        value: node,
                    }),
                    Value::Bad => {
                        map.bad = true;
                        None
                    }
                    Value::List(_) | Value::Map(_) => {
                        let fault = complex_key(self.source, key.span);
                        self.report.fault(fault, &Path::ROOT);
                        map.bad = true;
                        None
                    }
                };
                map.entries.extend(entry);
            }
        }
        Ok(())
    }

    fn decoration(&mut self, span: Span, anchor: usize, tag: Option<String>) {
        if anchor != 0 {
            self.refuse_anchor(span, "anchor");
        }
        if let Some(tag) = tag {
            let message = format!("the tag `{tag}` is not part of the workflow format");
            let help = "remove it; text that looks like a number is quoted";
            self.report.error("tag", span, &Path::ROOT, message, help);
        }
    }

    fn refuse_anchor(&mut self, span: Span, what: &str) {
        let message =
            format!("this {what} is refused: anchors and aliases are not part of the workflow format");
        let help = "write the value out where it is used; `defaults` holds what all tasks share";
        self.report.error("anchor", span, &Path::ROOT, message, help);
    }

    fn span(&self, span: saphyr_parser::Span) -> Span {
        let start = self.offsets.byte(self.source, span.start);
        Span::new(start, self.offsets.byte(self.source, span.end))
    }

    fn syntax(&self, error: &saphyr_parser::ScanError) -> Fault {
        let at = self.offsets.byte(self.source, *error.marker());
        let width = self.source.text[at..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
        let span = Span::new(at, at + width);
        let info = error.info();
        if info.contains("recursion limit") {
            return too_deep(span);
        }
        if info.contains("unknown anchor") {
            let message = "this alias is refused: anchors and aliases are not part of the workflow format";
            return Fault::new("anchor", Some(span), message, "write the value out where it is used");
        }
        let range = self.source.lines.range(self.source.text, self.source.lines.line_of(at));
        let line = &self.source.text[range];
        let indent = &line[..line.len() - line.trim_start().len()];
        let help = if info.contains("tab") || indent.contains('\t') {
            "indent with spaces: YAML does not take tabs"
        } else if info.contains("mapping values are not allowed") || info.contains("simple key") {
            "check the indentation, and quote text that holds `: `"
        } else if line.contains("{{") && !line.contains("\"{{") {
            "a value that holds a template is quoted: \"{{ ... }}\""
        } else {
            "check the indentation and the quotes of this line and the one before"
        };
        Fault::new("syntax", Some(span), format!("this is not YAML: {info}"), help)
    }
}

fn complex_key(source: &Source<'_>, span: Span) -> Fault {
    let before = source.text[..span.start as usize].trim_end();
    if source.slice(span).starts_with("{{") || before.ends_with('{') {
        let message = "a value that starts with `{{` must be quoted";
        return Fault::new(
            "key-type",
            Some(span),
            message,
            "write \"{{ ... }}\": without quotes YAML reads a map",
        );
    }
    Fault::new("key-type", Some(span), "a key is text, not a list or a map", "")
}

/// Turns the character positions of the scanner into byte offsets.
struct Offsets {
    /// Byte offset of every `STEP`-th character; empty for ASCII text, where both are the same.
    marks: Vec<u32>,
}

const STEP: usize = 256;

impl Offsets {
    fn of(source: &Source<'_>) -> Offsets {
        let text = &source.text[source.start..];
        if text.is_ascii() {
            return Offsets { marks: Vec::new() };
        }
        let marks = text.char_indices().step_by(STEP).map(|(at, _)| u32::try_from(at).unwrap_or(u32::MAX));
        Offsets { marks: marks.collect() }
    }

    fn byte(&self, source: &Source<'_>, mark: Marker) -> usize {
        let text = &source.text[source.start..];
        let index = mark.index();
        let at = if self.marks.is_empty() {
            index.min(text.len())
        } else {
            let from = self.marks.get(index / STEP).map_or(text.len(), |at| *at as usize);
            text[from..].char_indices().nth(index % STEP).map_or(text.len(), |(at, _)| from + at)
        };
        source.start + at
    }
}
