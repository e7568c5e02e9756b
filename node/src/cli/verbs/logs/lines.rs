//! Chunks become lines with marks: whose they are, and which stream they came from.

use std::collections::BTreeMap;

use clawhive_proto::{LogChunk, LogStream};

use crate::cli::output::{Hue, Stream, escape};

/// A line that never ends is broken here, so that memory stays bounded.
const LONGEST: usize = 64 * 1024;

type Source = (String, u32, i32);

/// Puts lines together and marks them.
#[derive(Debug)]
pub(super) struct Lines {
    several_tasks: bool,
    stream: Stream,
    /// Lines that have begun, by source.
    open: BTreeMap<Source, Vec<u8>>,
    /// Attempts seen by task: from the second on, a line says that another one begins.
    attempts: BTreeMap<String, u32>,
}

impl Lines {
    pub(super) fn new(several_tasks: bool, stream: Stream) -> Self {
        Self { several_tasks, stream, open: BTreeMap::new(), attempts: BTreeMap::new() }
    }

    /// The lines that this chunk completes.
    pub(super) fn take(&mut self, chunk: &LogChunk) -> Vec<u8> {
        let mut out = Vec::new();
        let before = self.attempts.insert(chunk.task.clone(), chunk.attempt);
        if before.is_some_and(|before| before != chunk.attempt) {
            out.extend(self.end_of(&chunk.task));
            let text = format!("--- {} attempt {}\n", chunk.task, chunk.attempt);
            out.extend(self.stream.dim(&text).into_bytes());
        }
        let source = (chunk.task.clone(), chunk.attempt, chunk.stream);
        let mut line = self.open.remove(&source).unwrap_or_default();
        for &byte in chunk.data.iter() {
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' || line.len() >= LONGEST {
                self.put(&mut out, &source, &line);
                line.clear();
            }
        }
        if !line.is_empty() {
            self.open.insert(source, line);
        }
        out
    }

    /// Lines without an end, once there is nothing more to come.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for (source, line) in std::mem::take(&mut self.open) {
            self.put(&mut out, &source, &line);
        }
        out
    }

    fn end_of(&mut self, task: &str) -> Vec<u8> {
        let mut out = Vec::new();
        let (ended, open) =
            std::mem::take(&mut self.open).into_iter().partition(|(source, _)| source.0 == task);
        self.open = open;
        let ended: BTreeMap<Source, Vec<u8>> = ended;
        for (source, line) in ended {
            self.put(&mut out, &source, &line);
        }
        out
    }

    fn put(&self, out: &mut Vec<u8>, source: &Source, line: &[u8]) {
        let from_stderr = source.2 == LogStream::Stderr as i32;
        let mark = if from_stderr { "!" } else { "|" };
        if self.several_tasks {
            out.extend(self.stream.paint(&source.0, Hue::Busy).into_bytes());
            out.push(b' ');
        }
        if self.several_tasks || from_stderr {
            out.extend(self.stream.paint(mark, if from_stderr { Hue::Bad } else { Hue::Dim }).into_bytes());
            out.push(b' ');
        }
        if self.stream.terminal {
            out.extend(escape(String::from_utf8_lossy(line).trim_end_matches('\r')).into_bytes());
        } else {
            out.extend_from_slice(line);
        }
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::{Format, Output};
    use expect_test::expect;

    fn chunk(task: &str, attempt: u32, stream: LogStream, data: &'static str) -> LogChunk {
        LogChunk {
            task: task.into(),
            attempt,
            stream: stream.into(),
            data: data.into(),
            ..Default::default()
        }
    }

    fn shown(several: bool, stream: Stream, chunks: &[LogChunk]) -> String {
        let mut lines = Lines::new(several, stream);
        let mut out: Vec<u8> = chunks.iter().flat_map(|chunk| lines.take(chunk)).collect();
        out.extend(lines.rest());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_of_several_tasks_say_whose_they_are() {
        let plain = Output::plain(Format::Table).stdout;
        let text = shown(
            true,
            plain,
            &[
                chunk("a", 1, LogStream::Stdout, "one\ntw"),
                chunk("a", 1, LogStream::Stderr, "oops\n"),
                chunk("a", 1, LogStream::Stdout, "o\n"),
                chunk("a", 2, LogStream::Stdout, "again"),
                chunk("b", 1, LogStream::Stdout, "\n"),
            ],
        );
        expect![[r"
            a | one
            a ! oops
            a | two
            --- a attempt 2
            b | 
            a | again
        "]]
        .assert_eq(&text);
    }

    #[test]
    fn a_single_task_is_as_it_wrote_and_a_terminal_is_safe() {
        let mut stream = Output::plain(Format::Table).stdout;
        let chunks =
            [chunk("a", 1, LogStream::Stdout, "\x1b[2Jx\n"), chunk("a", 1, LogStream::Stderr, "e\n")];
        assert_eq!(shown(false, stream, &chunks), "\x1b[2Jx\n! e\n");
        stream.terminal = true;
        assert_eq!(shown(false, stream, &chunks), "\\x1b[2Jx\n! e\n");
    }
}
