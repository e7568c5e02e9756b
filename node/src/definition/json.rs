//! Reads JSON text (RFC 8259) into the tree. YAML 1.2 contains JSON, but its scanners stumble over surrogate pairs, long
//! keys and tabs, and a recorded workflow is megabytes of JSON: so JSON has a reader of its own. Depth and size are bounded.

use std::borrow::Cow;

use super::report::Fault;
use super::source::{Source, Span};
use super::tree::{Entry, MAX_DEPTH, MAX_NODES, Map, Node, Value};

/// The one value of a JSON text.
pub(crate) fn read<'s>(source: &Source<'s>) -> Result<Node<'s>, Fault> {
    let mut reader = Reader { text: source.text, at: source.start, nodes: 0 };
    reader.space();
    let node = reader.value(0)?;
    reader.space();
    if reader.at < reader.text.len() {
        return Err(reader.fault("there is more text after the end of the JSON value"));
    }
    Ok(node)
}

struct Reader<'s> {
    text: &'s str,
    at: usize,
    nodes: usize,
}

impl<'s> Reader<'s> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn fault(&self, message: impl Into<String>) -> Fault {
        let width = self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        Fault::new("syntax", Some(Span::new(self.at, self.at + width)), message, "")
    }

    fn found(&self) -> String {
        match self.text[self.at..].chars().next() {
            None => "the end of the file".to_owned(),
            Some(c) => format!("`{}`", c.escape_debug()),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'s>, Fault> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(too_many(Span::new(self.at, self.at)));
        }
        let start = self.at;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => return Err(too_deep(Span::new(start, start + 1))),
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", |text| Value::Bool(true, text.into()))?,
            Some(b'f') => self.word("false", |text| Value::Bool(false, text.into()))?,
            Some(b'n') => self.word("null", |_| Value::Null)?,
            _ => return Err(self.fault(format!("expected a JSON value, found {}", self.found()))),
        };
        Ok(Node { span: Span::new(start, self.at), value })
    }

    fn word(&mut self, word: &'static str, value: fn(&'static str) -> Value<'s>) -> Result<Value<'s>, Fault> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault(format!("expected a JSON value, found {}", self.found())));
        }
        self.at += word.len();
        Ok(value(word))
    }

    fn list(&mut self, depth: usize) -> Result<Value<'s>, Fault> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::List(items));
                }
                _ => return Err(self.fault(format!("expected `,` or `]` in a list, found {}", self.found()))),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value<'s>, Fault> {
        let mut map = Map::default();
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(map));
        }
        loop {
            self.space();
            let start = self.at;
            if self.peek() == Some(b'}') {
                return Err(self.fault("the comma before this `}` has nothing after it"));
            }
            if self.peek() != Some(b'"') {
                return Err(self.fault(format!("expected a quoted key, found {}", self.found())));
            }
            let key = self.string()?;
            let key_span = Span::new(start, self.at);
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.fault(format!("expected `:` after a key, found {}", self.found())));
            }
            self.at += 1;
            self.space();
            let value = self.value(depth + 1)?;
            map.entries.push(Entry { key, key_span, value });
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Map(map));
                }
                _ => return Err(self.fault(format!("expected `,` or `}}` in a map, found {}", self.found()))),
            }
        }
    }

    fn number(&mut self) -> Result<Value<'s>, Fault> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.text.as_bytes()[self.at - whole] == b'0') {
            self.at = start;
            return Err(self.fault("a JSON number starts with one digit 1 to 9, or is 0"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(self.fault("a JSON number has digits after its point"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(self.fault("a JSON exponent has digits"));
            }
        }
        Ok(Value::Number(Cow::Borrowed(&self.text[start..self.at])))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn string(&mut self) -> Result<Cow<'s, str>, Fault> {
        self.at += 1;
        let start = self.at;
        let mut owned: Option<String> = None;
        let mut run = start;
        loop {
            match self.peek() {
                None => {
                    self.at = start - 1;
                    return Err(self.fault("this string has no end"));
                }
                Some(b'"') => {
                    let rest = &self.text[run..self.at];
                    self.at += 1;
                    return Ok(match owned {
                        None => Cow::Borrowed(rest),
                        Some(mut text) => {
                            text.push_str(rest);
                            Cow::Owned(text)
                        }
                    });
                }
                Some(b'\\') => {
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.text[run..self.at]);
                    let decoded = self.escape()?;
                    text.push(decoded);
                    run = self.at;
                }
                Some(0..=0x1f) => {
                    return Err(self.fault("a line break or tab inside a JSON string is written \\n or \\t"));
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let start = self.at;
        let decoded = match self.text.as_bytes().get(start + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(),
            _ => return Err(self.fault("unknown escape in a JSON string")),
        };
        self.at += 2;
        Ok(decoded)
    }

    /// `\uXXXX`, or two of them that make one character outside of the basic plane.
    fn unicode(&mut self) -> Result<char, Fault> {
        let start = self.at;
        let high = self.unit(start);
        let (code, length) = match high {
            Some(high @ 0xd800..=0xdbff) => match self.unit(start + 6) {
                Some(low @ 0xdc00..=0xdfff) => (Some(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 12),
                _ => (None, 6),
            },
            other => (other, 6),
        };
        match code.and_then(char::from_u32) {
            Some(decoded) => {
                self.at += length;
                Ok(decoded)
            }
            None => Err(self.fault("this \\u escape is not a character (half of a surrogate pair, or not four hexadecimal digits)")),
        }
    }

    fn unit(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
        if digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            u32::from_str_radix(digits, 16).ok()
        } else {
            None
        }
    }
}

/// Refuses a value nested deeper than the limit.
pub(crate) fn too_deep(span: Span) -> Fault {
    let message = format!("lists and maps are nested deeper than {MAX_DEPTH} levels");
    Fault::new("nesting", Some(span), message, "")
}

/// Refuses a file of more values than the limit.
pub(crate) fn too_many(span: Span) -> Fault {
    let message = format!("the file holds more than {} values", super::source::grouped(MAX_NODES));
    Fault::new("too-many-values", Some(span), message, "")
}
