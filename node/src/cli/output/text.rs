//! Text from outside, made fit for a terminal.

/// Control characters as text (`\x1b`), so that what a task printed cannot play with the terminal. Tabs stay.
pub(in crate::cli) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => out.push('\t'),
            // The marks that turn the direction of text are as good for hiding things as escapes are.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                out.extend(character.escape_unicode());
            }
            c if c.is_control() && (c as u32) < 0x100 => out.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// At most so many characters, with a mark where it was cut.
pub(in crate::cli) fn shortened(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Bytes as text, in the usual base 64 with padding.
pub(in crate::cli) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let number =
            three.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place > three.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_usual_one() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(
            escape("a\tb \x1b[31mred\x1b[0m\r\x07 é \u{9b}x"),
            "a\tb \\x1b[31mred\\x1b[0m\\x0d\\x07 é \\x9bx"
        );
        assert_eq!(escape("abc\u{202e}txt"), "abc\\u{202e}txt");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("größer", 4), "grö…");
        assert_eq!(shortened("groß", 4), "groß");
    }
}
