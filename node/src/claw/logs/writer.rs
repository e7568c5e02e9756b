//! The writer of one attempt's log. One write call per record, no fsync, no buffer of its own, and no error: bytes that
//! cannot be written are counted and the count is written once there is space again.

use super::record::{self, HEAD, Kind, MAX_PAYLOAD, TAIL};
use super::{AttemptId, LogStore};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use tokio::sync::watch;

/// How far a log is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Whole records up to here.
    pub(super) len: u64,
    pub(super) closed: bool,
}

/// Room for one record, so that what is read from a pipe is written to the log without being copied.
pub(crate) struct PipeBuffer {
    bytes: Box<[u8]>,
}

impl Default for PipeBuffer {
    fn default() -> Self {
        Self { bytes: vec![0; HEAD + MAX_PAYLOAD + TAIL].into_boxed_slice() }
    }
}

impl PipeBuffer {
    /// Where to read to.
    pub(crate) fn payload(&mut self) -> &mut [u8] {
        &mut self.bytes[HEAD..HEAD + MAX_PAYLOAD]
    }
}

pub(crate) struct LogWriter {
    store: LogStore,
    id: AttemptId,
    file: Option<File>,
    len: u64,
    /// Bytes lost since the last mark.
    dropped: u64,
    /// The note that says why is written.
    is_cut: bool,
    progress: watch::Sender<Progress>,
    closed: bool,
}

impl LogWriter {
    pub(super) fn new(store: LogStore, id: AttemptId, progress: watch::Sender<Progress>) -> Self {
        Self { store, id, file: None, len: 0, dropped: 0, is_cut: false, progress, closed: false }
    }

    /// Appends the first `len` bytes of the buffer's payload.
    pub(crate) fn append(&mut self, kind: Kind, buffer: &mut PipeBuffer, len: usize) {
        debug_assert!(len <= MAX_PAYLOAD);
        if len == 0 {
            return;
        }
        let time_ms = self.store.now_ms();
        if kind != Kind::Note && !self.store.allows(len) {
            self.cut(len);
            return;
        }
        if self.dropped > 0 && !self.write_mark(time_ms) {
            self.dropped += len as u64;
            return;
        }
        // The note itself does not mean that output is written again.
        self.is_cut &= kind == Kind::Note;
        let total = record::frame(&mut buffer.bytes, kind, time_ms, len);
        if let Err(error) = self.write(&buffer.bytes[..total]) {
            tracing::warn!(attempt = %self.id, %error, "cannot write the log of an attempt, its output is dropped");
            self.dropped += len as u64;
        }
    }

    /// Drops output since the disk is nearly full; says so once, while there is room for a line.
    fn cut(&mut self, len: usize) {
        if !std::mem::replace(&mut self.is_cut, true) {
            tracing::warn!(attempt = %self.id, "the output of an attempt is dropped, the disk is nearly full");
            self.note("output stopped: the disk is nearly full");
        }
        self.dropped += len as u64;
    }

    /// A line by the claw itself.
    pub(crate) fn note(&mut self, text: &str) {
        let mut buffer = PipeBuffer::default();
        let line = format!("[clawhive: {text}]\n");
        let len = line.len().min(MAX_PAYLOAD);
        buffer.payload()[..len].copy_from_slice(&line.as_bytes()[..len]);
        self.append(Kind::Note, &mut buffer, len);
    }

    /// Ends the log: followers see everything and then the end.
    pub(crate) fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let time_ms = self.store.now_ms();
        if self.dropped > 0 && !self.write_mark(time_ms) {
            tracing::warn!(attempt = %self.id, bytes = self.dropped, "the end of an attempt's log is lost");
        }
        if self.file.is_some() {
            let mut small = [0; HEAD + TAIL];
            record::frame(&mut small, Kind::Close, time_ms, 0);
            if let Err(error) = self.write(&small) {
                tracing::warn!(attempt = %self.id, %error, "cannot close the log of an attempt");
            }
        }
        self.progress.send_modify(|progress| progress.closed = true);
        self.store.forget(self.id);
    }

    fn write_mark(&mut self, time_ms: u64) -> bool {
        let mut mark = [0; HEAD + 8 + TAIL];
        mark[HEAD..HEAD + 8].copy_from_slice(&self.dropped.to_le_bytes());
        record::frame(&mut mark, Kind::Dropped, time_ms, 8);
        let done = self.write(&mark).is_ok();
        if done {
            self.dropped = 0;
        }
        done
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(self.create()?);
        }
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = file.write_all_at(bytes, self.len) {
            // Part of the record may be there. Best effort: the next record is written over it, and a reader stops
            // at a record that is not whole.
            drop(file.set_len(self.len));
            return Err(error);
        }
        self.len += bytes.len() as u64;
        let len = self.len;
        self.progress.send_modify(|progress| progress.len = len);
        Ok(())
    }

    fn create(&self) -> io::Result<File> {
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o640);
        let path = self.store.path(self.id);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(self.store.run_dir(self.id.run))?;
                options.open(&path)
            }
            other => other,
        }
    }

    /// For tests of a disk that refuses: from now on the log goes to this file.
    #[cfg(test)]
    pub(super) fn replace_file(&mut self, file: Option<File>) -> Option<File> {
        std::mem::replace(&mut self.file, file)
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.close();
    }
}
