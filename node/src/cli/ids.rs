//! Run ids as people type them.

use std::fmt;
use std::str::FromStr;

/// The id of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run(pub(super) u64);

impl FromStr for Run {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(0) | Err(_) => Err("expected the number of a run, as `clawhive ls` shows it"),
            Ok(id) => Ok(Self(id)),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
