//! Bulk work beside the replica: on a thread of its own, with a lower priority than consensus, and in steps that leave
//! the disk to the log in between.
//!
//! Must not: be used for anything that somebody's vote or write waits for.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use rustix::process::{Pid, setpriority_process};
use tokio::sync::oneshot;

/// Runs bulk work on a thread of its own. An error only when the thread cannot be started, or panics.
pub(crate) async fn run<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        step_back();
        // Nobody waits any more only when the replica is gone.
        let _ = tell.send(work());
    })?;
    told.await.map_err(|_| io::Error::other("a thread for bulk work failed"))
}

/// Lets every other thread go first. Where the system does not allow it, the work is only less polite.
fn step_back() {
    // On Linux a thread has a priority of its own; its link ends in its number.
    let Ok(link) = std::fs::read_link("/proc/thread-self") else { return };
    let thread = link.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
    if let Some(thread) = thread
        && let Err(errno) = setpriority_process(Some(thread), BACK)
    {
        tracing::debug!(%errno, "bulk work keeps its priority");
    }
}

/// Niceness: about a tenth of the share of others.
const BACK: i32 = 10;

/// So much is written before it is synced: what piles up in the page cache, the log's next sync would wait for.
const STEP: u64 = 4 << 20;
/// After this long the disk is no longer left alone in between: whoever waits for the file holds something meanwhile.
const POLITE: Duration = Duration::from_secs(20);

/// A file that is written in steps: each is synced, and then the disk is left alone for as long as the step took.
pub(crate) struct Paced {
    file: File,
    unsynced: u64,
    started: Instant,
}

impl Paced {
    pub(crate) fn new(file: File) -> Paced {
        Paced { file, unsynced: 0, started: Instant::now() }
    }

    /// The file, all of it synced.
    pub(crate) fn finish(self) -> io::Result<File> {
        self.file.sync_all()?;
        Ok(self.file)
    }
}

impl Write for Paced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written as u64;
        if self.unsynced >= STEP {
            self.unsynced = 0;
            let syncing = Instant::now();
            self.file.sync_data()?;
            if self.started.elapsed() < POLITE {
                // As long as the disk was busy with us; at least a moment, so that others get at it at all.
                std::thread::sleep(syncing.elapsed().clamp(Duration::from_millis(1), MOST));
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A pause is never longer.
const MOST: Duration = Duration::from_millis(200);
