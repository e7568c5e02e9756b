//! Finds what a template refers to, with the words it uses, without evaluating anything: the static check of definitions
//! points at them. The grammar stays minijinja's; this reads only names, points, brackets, strings and pipes.

use std::borrow::Cow;

/// A path such as `tasks.fetch.outputs.parts` or `tasks["fetch-a"].outputs.parts`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reference<'t> {
    /// `params`, `run`, `task` or `tasks`.
    pub root: &'t str,
    /// The constant steps after it; ends early where a step is computed.
    pub path: Vec<Cow<'t, str>>,
    /// As it is written.
    pub text: &'t str,
}

impl Reference<'_> {
    /// Whether it names a value, and not only a root.
    pub fn is_value(&self) -> bool {
        !self.path.is_empty()
    }
}

const ROOTS: [&str; 4] = ["params", "run", "task", "tasks"];

/// Every reference of a template, in order.
pub(crate) fn references(template: &str) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    blocks(template, |tokens, block| {
        let mut at = 0;
        while at < tokens.len() {
            let after_point = at > 0 && matches!(tokens[at - 1].kind, Kind::Sign('.' | '|'));
            let keyword = matches!(tokens.get(at + 1).map(|token| &token.kind), Some(Kind::Sign('=')))
                && !matches!(tokens.get(at + 2).map(|token| &token.kind), Some(Kind::Sign('=')));
            match tokens[at].kind {
                Kind::Name(root) if ROOTS.contains(&root) && !after_point && !keyword => {
                    let (path, end) = path(tokens, at + 1);
                    found.push(Reference { root, path, text: &block[tokens[at].start..tokens[end - 1].end] });
                    at = end;
                }
                _ => at += 1,
            }
        }
    });
    found
}

/// The name of every filter that a template applies.
pub(crate) fn filters(template: &str) -> Vec<&str> {
    let mut found = Vec::new();
    blocks(template, |tokens, _| {
        for pair in tokens.windows(2) {
            if let (Kind::Sign('|'), Kind::Name(name)) = (&pair[0].kind, &pair[1].kind) {
                found.push(*name);
            }
        }
    });
    found
}

fn path<'t>(tokens: &[Token<'t>], mut at: usize) -> (Vec<Cow<'t, str>>, usize) {
    let mut steps = Vec::new();
    loop {
        match tokens.get(at..).unwrap_or(&[]) {
            [Token { kind: Kind::Sign('.'), .. }, Token { kind: Kind::Name(name), .. }, ..] => {
                steps.push(Cow::Borrowed(*name));
                at += 2;
            }
            [
                Token { kind: Kind::Sign('['), .. },
                Token { kind: Kind::Text(text), .. },
                Token { kind: Kind::Sign(']'), .. },
                ..,
            ] => {
                steps.push(text.clone());
                at += 3;
            }
            _ => return (steps, at),
        }
    }
}

#[derive(Debug)]
struct Token<'t> {
    kind: Kind<'t>,
    start: usize,
    end: usize,
}

#[derive(Debug)]
enum Kind<'t> {
    Name(&'t str),
    Text(Cow<'t, str>),
    Sign(char),
}

/// Calls back with the tokens of every `{{ }}` and `{% %}`; comments and raw text are passed over.
fn blocks<'t>(template: &'t str, mut each: impl FnMut(&[Token<'t>], &'t str)) {
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let after = &rest[open + 1..];
        match after.bytes().next() {
            Some(b'#') => match after.find("#}") {
                Some(end) => rest = &after[end + 2..],
                None => return,
            },
            Some(kind @ (b'{' | b'%')) => {
                let block = &after[1..];
                let (tokens, end) = tokens(block, if kind == b'{' { '}' } else { '%' });
                rest = &block[end..];
                if kind == b'%' && matches!(tokens.first(), Some(Token { kind: Kind::Name("raw"), .. })) {
                    match rest.find("endraw") {
                        Some(end) => rest = &rest[end..],
                        None => return,
                    }
                    continue;
                }
                each(&tokens, block);
            }
            _ => rest = after,
        }
    }
}

/// The tokens up to the closing sign (`}` of `}}`, `%` of `%}`), and where the block ends.
fn tokens(block: &str, close: char) -> (Vec<Token<'_>>, usize) {
    let mut tokens = Vec::new();
    let mut chars = block.char_indices().peekable();
    let mut depth = 0usize;
    while let Some((start, c)) = chars.next() {
        let followed_by_brace = matches!(chars.peek(), Some((_, '}')));
        if c == close && followed_by_brace && depth == 0 {
            return (tokens, start + 2);
        }
        match c {
            '-' | '+' if tokens.is_empty() => {}
            c if c.is_whitespace() => {}
            '"' | '\'' => {
                let mut end = block.len();
                let mut escaped = false;
                for (at, next) in chars.by_ref() {
                    if escaped {
                        escaped = false;
                    } else if next == '\\' {
                        escaped = true;
                    } else if next == c {
                        end = at;
                        break;
                    }
                }
                let inner = block.get(start + 1..end).unwrap_or("");
                let text =
                    if inner.contains('\\') { Cow::Owned(inner.replace('\\', "")) } else { inner.into() };
                tokens.push(Token { kind: Kind::Text(text), start, end: (end + 1).min(block.len()) });
            }
            c if c.is_alphanumeric() || c == '_' => {
                let mut end = start + c.len_utf8();
                while let Some((at, next)) = chars.next_if(|(_, next)| next.is_alphanumeric() || *next == '_')
                {
                    end = at + next.len_utf8();
                }
                tokens.push(Token { kind: Kind::Name(&block[start..end]), start, end });
            }
            sign => {
                match sign {
                    '{' => depth += 1,
                    '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                tokens.push(Token { kind: Kind::Sign(sign), start, end: start + sign.len_utf8() });
            }
        }
    }
    (tokens, block.len())
}

#[cfg(test)]
mod tests {
    use super::{filters, references};

    fn texts(template: &str) -> Vec<&str> {
        references(template).into_iter().map(|reference| reference.text).collect()
    }

    #[test]
    fn finds_paths_by_point_and_by_bracket() {
        let found = references("a {{ tasks['fetch-a'].outputs.parts[0] }} b {{- params.x|upper -}}");
        assert_eq!(found[0].path, ["fetch-a", "outputs", "parts"]);
        assert_eq!(found[0].text, "tasks['fetch-a'].outputs.parts");
        assert_eq!(found[1].path, ["x"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn passes_over_what_is_no_reference() {
        assert!(texts("{# {{ params.x }} #} {% raw %}{{ params.x }}{% endraw %} params.x ${#x}").is_empty());
        assert!(texts("{{ 'params.x' }} {{ a.params.x }} {{ dict(run=1) }} {{.State}}").is_empty());
        assert_eq!(texts("{{ {'a': {'b': params.y}} }}"), ["params.y"]);
        assert_eq!(texts("{% if run.id == 1 %}{% endif %}"), ["run.id"]);
    }

    #[test]
    fn finds_filters_outside_of_strings() {
        assert_eq!(filters("{{ 'a | b' | upper | date('%Y | %m') }} x | y"), ["upper", "date"]);
    }
}
