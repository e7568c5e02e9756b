//! The bytes of a workflow file as text with places: size, encoding and characters are checked here, and byte offsets
//! become lines and columns. It knows nothing of YAML or of the format.

use super::report::Fault;

/// The largest workflow file, in bytes.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;

/// A byte range in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// A range of byte offsets; offsets are below 4 GiB because files are.
    pub fn new(start: usize, end: usize) -> Span {
        let clamp = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: clamp(start), end: clamp(end.max(start)) }
    }
}

/// Where each line starts, for turning offsets into lines and columns.
pub(crate) struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    pub fn of(text: &str) -> Lines {
        let mut starts = vec![0];
        starts.extend(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1));
        Lines { starts }
    }

    /// The index of the line that holds the offset, from 0.
    pub fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset).saturating_sub(1)
    }

    /// The byte range of a line, without its line break.
    pub fn range(&self, text: &str, line: usize) -> std::ops::Range<usize> {
        let start = self.starts.get(line).copied().unwrap_or(text.len());
        let end = self.starts.get(line + 1).map_or(text.len(), |next| next - 1);
        let end = if end > start && text.as_bytes()[end - 1] == b'\r' { end - 1 } else { end };
        start..end
    }

    /// How many lines there are; at least one.
    pub fn count(&self) -> usize {
        self.starts.len()
    }
}

/// A checked text: UTF-8, no control characters, not too long.
pub(crate) struct Source<'s> {
    /// The whole file, with its byte order mark if it has one, so that offsets are offsets in the file.
    pub text: &'s str,
    /// Where the text after the byte order mark starts.
    pub start: usize,
    pub lines: Lines,
}

const BYTE_ORDER_MARK: &str = "\u{feff}";

impl<'s> Source<'s> {
    /// Checks the bytes of a file against a limit of `max_bytes`.
    pub fn new(bytes: &'s [u8], max_bytes: usize) -> Result<Source<'s>, Fault> {
        if bytes.len() > max_bytes {
            let message = format!(
                "the file has {} bytes; the limit is {} bytes ({} MiB)",
                grouped(bytes.len()),
                grouped(max_bytes),
                max_bytes / (1024 * 1024)
            );
            return Err(Fault::new(
                "too-large",
                None,
                message,
                "split the workflow, or move data out of the file",
            ));
        }
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Err(not_utf8(bytes, error.valid_up_to())),
        };
        let start = if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        if let Some((at, found)) = text.char_indices().find(|(at, c)| *at >= start && is_forbidden(*c)) {
            let message =
                format!("the control character U+{:04X} is not allowed in a workflow file", found as u32);
            let help = "in a double-quoted string write it as an escape, e.g. \"\\x1b\"";
            return Err(Fault::new(
                "control-character",
                Some(Span::new(at, at + found.len_utf8())),
                message,
                help,
            ));
        }
        Ok(Source { text, start, lines: Lines::of(text) })
    }

    /// Line and column of an offset, both from 1; the column counts characters.
    pub fn place(&self, offset: usize) -> (u32, u32) {
        place(self.text, &self.lines, offset)
    }

    /// The text of a range.
    pub fn slice(&self, span: Span) -> &'s str {
        self.text.get(span.start as usize..span.end as usize).unwrap_or("")
    }
}

/// Line and column of an offset in `text`, both from 1.
pub(crate) fn place(text: &str, lines: &Lines, offset: usize) -> (u32, u32) {
    let line = lines.line_of(offset);
    let start = lines.range(text, line).start;
    let before = text.get(start..offset.min(text.len())).unwrap_or("");
    let column = before.trim_start_matches(BYTE_ORDER_MARK).chars().count() + 1;
    (u32::try_from(line + 1).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}

fn not_utf8(bytes: &[u8], at: usize) -> Fault {
    let help = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        "this looks like UTF-16: save the file as UTF-8"
    } else {
        "save the file as UTF-8"
    };
    let message =
        format!("the file is not UTF-8: byte {:#04x} at offset {at}", bytes.get(at).copied().unwrap_or(0));
    Fault::new("not-utf8", Some(Span::new(at, at + 1)), message, help)
}

/// What YAML calls not printable, without the surrogates that UTF-8 cannot hold.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}')
}

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
