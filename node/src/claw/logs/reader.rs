//! A reader of one attempt's log: from a place on, or the last lines; to the end that is there, or following the writer.
//! Holds at most one batch of bytes.

use super::record::{self, HEAD, Kind, MAX_PAYLOAD, TAIL};
use super::tail;
use super::writer::Progress;
use super::{AttemptId, LogError};
use bytes::Bytes;
use clawhive_proto::LogStream;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tokio::sync::watch;

/// What to read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogQuery {
    /// The run.
    pub run: u64,
    /// Position of the task.
    pub task: u32,
    /// From 1.
    pub attempt: u32,
    /// A `next_offset` of an earlier piece, or 0.
    pub offset: u64,
    /// Stay until the writer closes the log.
    pub follow: bool,
    /// Only the last lines of what is there (with `offset` 0); 0: all.
    pub tail_lines: u32,
}

impl LogQuery {
    /// Whose log.
    pub fn id(&self) -> AttemptId {
        AttemptId { run: self.run, task: self.task, attempt: self.attempt }
    }
}

/// Bytes of one stream, as they were written in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// Unspecified when `note` is set.
    pub stream: LogStream,
    /// When the claw read them.
    pub time_ms: u64,
    /// The bytes.
    pub data: Bytes,
    /// Where to go on after this piece.
    pub next_offset: u64,
    /// A line by the claw itself, not output of the task.
    pub note: bool,
}

/// Gives the pieces of a log in order.
pub struct LogReader {
    id: AttemptId,
    path: PathBuf,
    file: Option<File>,
    progress: Option<watch::Receiver<Progress>>,
    follow: bool,
    tail_lines: u32,
    offset: u64,
    skip: usize,
    ready: VecDeque<LogPiece>,
    ended: bool,
    complete: bool,
}

/// Bytes read in one go: always room for a whole record.
const BATCH: usize = 256 * 1024;
const _: () = assert!(BATCH > HEAD + MAX_PAYLOAD + TAIL);

/// What one go found.
struct Batch {
    file: Option<File>,
    pieces: VecDeque<LogPiece>,
    offset: u64,
    skip: usize,
    closed: bool,
}

impl LogReader {
    pub(super) fn new(
        path: PathBuf,
        progress: Option<watch::Receiver<Progress>>,
        query: LogQuery,
    ) -> Result<Self, LogError> {
        Ok(Self {
            id: query.id(),
            path,
            file: None,
            progress,
            follow: query.follow,
            tail_lines: if query.offset == 0 { query.tail_lines } else { 0 },
            offset: query.offset,
            skip: 0,
            ready: VecDeque::new(),
            ended: false,
            complete: false,
        })
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<LogPiece>, LogError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            if self.ended {
                return Ok(None);
            }
            // Looked at before the file is: what is written up to the close is then in the file.
            let progress = self.progress.as_mut().map(|progress| *progress.borrow_and_update());
            let read =
                self.read_batch(progress).await.map_err(|source| LogError::Io { id: self.id, source })?;
            let moved = read.offset > self.offset;
            self.file = read.file;
            self.offset = read.offset;
            self.skip = read.skip;
            self.ready = read.pieces;
            self.complete |= read.closed;
            if moved {
                continue;
            }
            let closed = progress.is_none_or(|progress| progress.closed);
            if closed || !self.follow {
                self.ended = true;
            } else if let Some(progress) = &mut self.progress {
                // An error means that the writer is gone: one more look, then the end.
                if progress.changed().await.is_err() {
                    self.progress = None;
                }
            }
        }
    }

    /// Whether the log was read to the mark that its writer made at the end. A log without output has none.
    pub fn complete(&self) -> bool {
        self.complete
    }

    async fn read_batch(&mut self, progress: Option<Progress>) -> io::Result<Batch> {
        let limit = progress.map(|progress| progress.len);
        let mut batch = Batch {
            file: self.file.take(),
            pieces: VecDeque::new(),
            offset: self.offset,
            skip: self.skip,
            closed: false,
        };
        if limit.is_some_and(|limit| limit <= self.offset) {
            return Ok(batch);
        }
        let tail_lines = std::mem::take(&mut self.tail_lines);
        let path = self.path.clone();
        let work = move || {
            batch.read(&path, limit, tail_lines)?;
            Ok(batch)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Batch {
    fn read(&mut self, path: &Path, limit: Option<u64>, tail_lines: u32) -> io::Result<()> {
        if self.file.is_none() {
            match File::open(path) {
                Ok(file) => self.file = Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let Some(file) = &self.file else { return Ok(()) };
        let length = file.metadata()?.len();
        let end = limit.map_or(length, |limit| limit.min(length));
        if tail_lines > 0 {
            let place = tail::find(file, end, tail_lines)?;
            (self.offset, self.skip) = (place.offset, place.skip);
        }
        if self.offset >= end {
            return Ok(());
        }
        let mut bytes = vec![0; usize::try_from(end - self.offset).unwrap_or(BATCH).min(BATCH)];
        file.read_exact_at(&mut bytes, self.offset)?;
        let bytes = Bytes::from(bytes);
        let mut at = 0;
        while let Some((header, _)) = record::parse(&bytes[at..]) {
            let start = at + HEAD;
            at += header.total();
            let skip = std::mem::take(&mut self.skip).min(header.payload);
            let data = bytes.slice(start + skip..start + header.payload);
            let next_offset = self.offset + at as u64;
            let (stream, data, note) = match header.kind {
                Kind::Stdout => (LogStream::Stdout, data, false),
                Kind::Stderr => (LogStream::Stderr, data, false),
                Kind::Note => (LogStream::Unspecified, data, true),
                Kind::Dropped => (LogStream::Unspecified, record::dropped_text(&data).into(), true),
                Kind::Close => {
                    self.closed = true;
                    continue;
                }
            };
            self.pieces.push_back(LogPiece { stream, time_ms: header.time_ms, data, next_offset, note });
        }
        self.offset += at as u64;
        Ok(())
    }
}
