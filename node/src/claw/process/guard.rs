//! Ends what a node leaves behind when it dies without a word (kill -9, a crash) or stands still past its lease (a stop
//! signal, a hung disk): a small process of its own that waits for the end of a pipe whose other end only the node holds,
//! or for the moment that the node last wrote into it, then kills every process that carries the mark of this node's work
//! directory. Without it, tasks would run on beside the attempt that replaces them.
//!
//! It needs a program to be: the binary gives itself, an embedding process may give none and goes without.

use super::strays;
use rustix::fs::OFlags;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use tokio::time::Instant;

/// First argument of a program that is started as a guard; the second is the work directory.
pub const GUARD_ARGUMENT: &str = "__guard";

/// A running guard. Dropping it ends the guard, after a last look.
#[derive(Debug)]
pub(super) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts `program` as the guard of `work`, in a group of its own so that a terminal's Ctrl-C does not reach it.
    pub(super) fn start(program: &Path, work: &Path) -> io::Result<Guard> {
        let child = Command::new(program)
            .args([GUARD_ARGUMENT.as_ref(), work.as_os_str()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        if let Some(pipe) = &child.stdin {
            // A guard that stands still must not hold up the node.
            rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        Ok(Guard { child })
    }

    /// Everything of this node must be gone at this moment, unless a later one is told before.
    pub(super) fn keep_until(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if let Some(pipe) = &self.child.stdin
            && let Err(errno) = rustix::io::write(pipe, &left.to_le_bytes())
        {
            tracing::warn!(%errno, "the guard does not hear of the lease");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Reaped here, or it would stay as a zombie of an embedding process.
        let _ = self.child.wait();
    }
}

/// The whole life of a guard process: kills what runs below `work` when its standard input ends, and also when the time
/// last told there is over. Times are eight bytes: milliseconds from now.
pub fn guard(work: &Path) {
    let (told, times) = mpsc::channel();
    std::thread::spawn(move || {
        let mut left = [0u8; 8];
        // An error is an end too.
        while io::stdin().read_exact(&mut left).is_ok() {
            if told.send(u64::from_le_bytes(left)).is_err() {
                return;
            }
        }
    });
    let mut until: Option<Instant> = None;
    loop {
        let news = match until {
            None => times.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until) => times.recv_timeout(until.saturating_duration_since(Instant::now())),
        };
        match news {
            Ok(left) => until = Instant::now().checked_add(Duration::from_millis(left)),
            Err(RecvTimeoutError::Timeout) => {
                until = None;
                strays::kill_all(work);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // A process whose start was under way when the node died shows its mark a moment later. Not much later: the next life
    // of this node must not lose what it starts.
    for pause in [0, 30] {
        std::thread::sleep(Duration::from_millis(pause));
        strays::kill_all(work);
    }
}
