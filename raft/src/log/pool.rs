//! Files for segments to come, and what becomes of segments that are done.
//!
//! Owns: zeroing ahead of need, in small steps so that no fsync of the log waits behind 64 MiB, and using
//! files again by renaming, since unlinking a large one stalls the file system for 20 ms.
//! Must not: touch a segment that somebody may still read, or give one up out of order.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::disk::{Disk, DiskFile, is_full};

use super::error::LogError;
use super::segment::{Segment, free_path_of};

const STEP: u64 = 1 << 20;
/// A pause between steps, so that zeroing takes at most about half of what the disk can do.
const PAUSE: Duration = Duration::from_millis(1);

/// A file of zeroes.
pub(crate) struct Spare {
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub len: u64,
}

pub(crate) struct Pool {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    segment_bytes: u64,
    /// How many free files are kept besides the one that is made ready.
    keep: usize,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    ready: Option<Spare>,
    zeroing: Option<(Spare, u64)>,
    free: Vec<PathBuf>,
    /// Segments that left the log, oldest first.
    retired: std::collections::VecDeque<Arc<Segment>>,
    /// The number for the next new file.
    next: u64,
    /// Making a spare failed. The next segment tries again, and the error is the log's if it fails too.
    resting: bool,
    stop: bool,
}

/// What a step of [`Pool::work`] found to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    /// Somebody still reads what is to be done next.
    Blocked,
    Idle,
}

impl Pool {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        segment_bytes: u64,
        keep: usize,
        free: &[u64],
        next: u64,
    ) -> Self {
        let free = free.iter().map(|number| free_path_of(dir, *number)).collect();
        let state = Mutex::new(State { free, next, ..State::default() });
        Self { disk, dir: dir.to_owned(), segment_bytes, keep, state, wake: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file of zeroes with room for `len` bytes: one made ahead, or a new one whose space is reserved.
    pub(crate) fn take(&self, len: u64) -> Result<Spare, LogError> {
        let mut state = self.lock();
        state.resting = false;
        self.wake.notify_one();
        let len = len.max(self.segment_bytes);
        if let Some(spare) = state.ready.take_if(|spare| spare.len >= len) {
            return Ok(spare);
        }
        let path = self.fresh_path(&mut state);
        drop(state);
        let file = self.disk.create(&path).map_err(|e| failed("create", &path, e))?;
        if let Err(error) = file.reserve(len) {
            self.discard(&path);
            return Err(failed("reserve space for", &path, error));
        }
        Ok(Spare { path, file, len })
    }

    /// Part of the room may have been taken for a file that is not to be. Best effort: the next start knows it as free.
    fn discard(&self, path: &Path) {
        if let Err(error) = self.disk.remove(path) {
            tracing::debug!(path = %path.display(), %error, "an unfinished file stays");
        }
    }

    fn fresh_path(&self, state: &mut State) -> PathBuf {
        let number = state.next;
        state.next += 1;
        // The high bit keeps these apart from files that were segments and are named after them.
        free_path_of(&self.dir, number | 1 << 63)
    }

    /// Takes segments that the log no longer needs; the record that says so must be synced.
    pub(crate) fn retire(&self, segments: Vec<Arc<Segment>>) {
        if !segments.is_empty() {
            self.lock().retired.extend(segments);
            self.wake.notify_one();
        }
    }

    /// Does one small thing. An error is the end of the log; failing to make a spare is none yet.
    pub(crate) fn work(&self) -> Result<Step, LogError> {
        let blocked = match self.give_up_segment()? {
            Step::Done => return Ok(Step::Done),
            step => step,
        };
        match self.make_ready() {
            Ok(Step::Idle) => {}
            Ok(step) => return Ok(step),
            Err(error) => {
                match &error {
                    // Whoever needs the segment says it, once.
                    LogError::Io { source, .. } if is_full(source) => {
                        tracing::debug!(%error, "no room for the next log segment yet");
                    }
                    _ => tracing::warn!(%error, "cannot prepare the next log segment"),
                }
                let mut state = self.lock();
                state.zeroing = None;
                state.resting = true;
            }
        }
        Ok(blocked)
    }

    fn give_up_segment(&self) -> Result<Step, LogError> {
        let mut state = self.lock();
        let Some(segment) = state.retired.front() else { return Ok(Step::Idle) };
        // Nobody can get at it any more, so the count only falls.
        if Arc::strong_count(segment) > 1 {
            return Ok(Step::Blocked);
        }
        let (from, to) = (segment.path.clone(), free_path_of(&self.dir, segment.number));
        drop(state);
        // One after the other, each made durable: a power cut must not leave a hole between segments, and
        // nothing may be zeroed while its old name can come back.
        self.disk.rename(&from, &to).map_err(|e| failed("rename", &from, e))?;
        self.disk.sync_dir(&self.dir).map_err(|e| failed("sync", &self.dir, e))?;
        state = self.lock();
        state.retired.pop_front();
        state.free.push(to);
        Ok(Step::Done)
    }

    fn make_ready(&self) -> Result<Step, LogError> {
        let mut state = self.lock();
        if state.resting {
            return Ok(Step::Idle);
        }
        if let Some((spare, at)) = state.zeroing.take() {
            drop(state);
            return self.zero(spare, at);
        }
        if state.ready.is_none() {
            let again = state.free.pop();
            let path = match &again {
                Some(path) => path.clone(),
                None => self.fresh_path(&mut state),
            };
            drop(state);
            let file = match again {
                Some(_) => self.disk.open(&path).map_err(|e| failed("open", &path, e))?,
                None => self.disk.create(&path).map_err(|e| failed("create", &path, e))?,
            };
            let size = file.size().map_err(|e| failed("measure", &path, e))?;
            if size > self.segment_bytes {
                file.set_len(self.segment_bytes).map_err(|e| failed("cut", &path, e))?;
            }
            if let Err(error) = file.reserve(self.segment_bytes) {
                self.discard(&path);
                return Err(failed("reserve space for", &path, error));
            }
            let spare = Spare { path, file, len: self.segment_bytes };
            self.lock().zeroing = Some((spare, 0));
            return Ok(Step::Done);
        }
        if state.free.len() > self.keep
            && let Some(path) = state.free.pop()
        {
            drop(state);
            return self.shrink(path);
        }
        Ok(Step::Idle)
    }

    fn zero(&self, spare: Spare, at: u64) -> Result<Step, LogError> {
        let step = STEP.min(spare.len - at);
        spare.file.write_at(&vec![0; step as usize], at).map_err(|e| failed("zero", &spare.path, e))?;
        spare.file.sync_data().map_err(|e| failed("sync", &spare.path, e))?;
        let mut state = self.lock();
        if at + step < spare.len {
            state.zeroing = Some((spare, at + step));
        } else {
            state.ready = Some(spare);
        }
        Ok(Step::Done)
    }

    /// Frees space a few MiB at a time, for the same reason as it is zeroed so.
    fn shrink(&self, path: PathBuf) -> Result<Step, LogError> {
        let file = self.disk.open(&path).map_err(|e| failed("open", &path, e))?;
        let size = file.size().map_err(|e| failed("measure", &path, e))?;
        if size <= 4 * STEP {
            self.disk.remove(&path).map_err(|e| failed("remove", &path, e))?;
        } else {
            file.set_len(size - 4 * STEP).map_err(|e| failed("cut", &path, e))?;
            self.lock().free.push(path);
        }
        Ok(Step::Done)
    }

    /// Works until there is nothing to do: for logs without threads.
    pub(crate) fn work_off(&self) -> Result<(), LogError> {
        while self.work()? == Step::Done {}
        Ok(())
    }

    /// Works until [`Pool::stop`]; returns early with the error that ends the log.
    pub(crate) fn run(&self) -> Result<(), LogError> {
        loop {
            if self.lock().stop {
                return Ok(());
            }
            let step = self.work()?;
            let state = self.lock();
            if state.stop {
                return Ok(());
            }
            match step {
                Step::Done | Step::Blocked => drop(self.wake.wait_timeout(state, PAUSE)),
                Step::Idle => {
                    let something = state.ready.is_none() && !state.resting || !state.retired.is_empty();
                    if !something {
                        drop(self.wake.wait(state));
                    }
                }
            }
        }
    }

    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }
}

pub(crate) fn failed(action: &'static str, file: &Path, source: std::io::Error) -> LogError {
    LogError::Io { action, file: file.to_owned(), source: Arc::new(source) }
}
