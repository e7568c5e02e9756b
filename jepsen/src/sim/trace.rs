//! The trace of a simulation: each line is folded into one hash, and printed when asked. Two runs of a seed that differ
//! anywhere differ in the hash.

use std::fmt::{self, Write as _};

use crate::rng::splitmix;

/// The lines so far, as a hash.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    print: bool,
    line: String,
}

impl Trace {
    /// An empty trace; with `print`, each line goes to standard output.
    pub fn new(print: bool) -> Trace {
        Trace { print, ..Trace::default() }
    }

    /// Adds a line.
    pub fn line(&mut self, at_ms: u64, what: fmt::Arguments<'_>) {
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = write!(self.line, "{:>9}.{:03} {what}", at_ms / 1000, at_ms % 1000);
        self.hash = digest(self.hash, self.line.as_bytes());
        if self.print {
            println!("{}", self.line);
        }
    }

    /// Adds numbers that have no line.
    pub fn numbers(&mut self, numbers: &[u64]) {
        self.hash = numbers.iter().fold(self.hash, |hash, number| splitmix(hash ^ number));
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

/// A hash of bytes, eight at a time. Not for adversaries.
pub fn digest(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = splitmix(seed ^ bytes.len() as u64);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = chunk.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        hash = (hash.rotate_left(29) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    let rest = chunks.remainder().iter().fold(1, |word, byte| (word << 8) | u64::from(*byte));
    splitmix(hash ^ rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_changes_the_hash() {
        let hash = |lines: &[&str]| {
            let mut trace = Trace::new(false);
            lines.iter().for_each(|line| trace.line(5, format_args!("{line}")));
            trace.hash()
        };
        assert_eq!(hash(&["a", "b"]), hash(&["a", "b"]));
        assert_ne!(hash(&["a", "b"]), hash(&["b", "a"]));
        assert_ne!(hash(&["a", "b"]), hash(&["ab"]));
        assert_ne!(digest(0, &[0; 8]), digest(0, &[0; 16]));
    }
}
