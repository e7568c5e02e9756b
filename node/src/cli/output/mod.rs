//! What a verb prints: tables for people, one document for programs.
//!
//! Owns: formats, the shape of documents, columns, colours, times. Must not: ask a server anything.

mod document;
mod style;
mod table;
mod text;
mod time;
mod yaml;

use std::io::{self, Write};

use clap::ValueEnum;
use clawhive_proto::Freshness;
use serde_json::Value;

use super::failure::Failure;

pub(super) use document::{
    attempt_json, cluster_json, diagnostic_json, event_json, freshness_json, node_json, run_json, stale_text,
    task_json, why_text,
};
pub(super) use style::{Hue, Stream};
pub(super) use table::Table;
pub(super) use text::{base64, escape, shortened};
pub(super) use time::{age, duration, now_ms, rfc3339, span};

/// The formats of `-o`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON document; one a line when it follows
    Json,
    /// The same as YAML
    Yaml,
}

/// Where and how this process answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) format: Format,
    pub(super) stdout: Stream,
    pub(super) stderr: Stream,
}

impl Output {
    pub(super) fn of_process(format: Format) -> Self {
        Self { format, stdout: Stream::stdout(), stderr: Stream::stderr() }
    }

    /// No terminal anywhere.
    #[cfg(test)]
    pub(super) fn plain(format: Format) -> Self {
        Self { format, stdout: Stream::plain(), stderr: Stream::plain() }
    }

    /// Prints the one document of this verb.
    pub(super) fn document(&self, value: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Yaml => self.print(&yaml::text(value)),
            _ => self.print(&format!("{value:#}\n")),
        }
    }

    /// Prints one of many documents, as one line (or one YAML document).
    pub(super) fn item(&self, value: &Value) -> Result<(), Failure> {
        match self.format {
            Format::Yaml => self.print(&format!("---\n{}", yaml::text(value))),
            _ => self.print(&format!("{value}\n")),
        }
    }

    /// Says so, above a table, when its contents may be old.
    pub(super) fn stale(&self, freshness: Option<&Freshness>) -> Result<(), Failure> {
        match freshness.filter(|freshness| freshness.stale) {
            Some(freshness) => {
                self.print(&format!("{}\n", self.stdout.paint(&stale_text(freshness), Hue::Odd)))
            }
            None => Ok(()),
        }
    }

    /// Prints text.
    pub(super) fn print(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes as they are.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::output_closed(),
            _ => Failure::unexpected(format!("cannot write to standard output: {error}")),
        })
    }

    /// Prints a table, or what there is to say when it is empty.
    pub(super) fn table(&self, table: &Table, when_empty: &str) -> Result<(), Failure> {
        if table.is_empty() {
            eprintln!("{when_empty}");
            return Ok(());
        }
        self.print(&table.text(self.stdout))
    }
}
