//! Ends what a node leaves behind when it dies without a word (kill -9, a crash): a small process of its own that waits
//! for the end of a pipe whose other end only the node holds, then kills every process that carries the mark of this
//! node's work directory. Without it, tasks would run on beside the attempt that replaces them.
//!
//! It needs a program to be: the binary gives itself, an embedding process may give none and goes without.

use super::strays;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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
        Ok(Guard { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // Reaped here, or it would stay as a zombie of an embedding process.
        let _ = self.child.wait();
    }
}

/// The whole life of a guard process: waits until its standard input ends, then kills what runs below `work`.
pub fn guard(work: &Path) {
    let mut nothing = [0u8; 16];
    // Nobody writes; an error is an end too.
    while matches!(io::stdin().read(&mut nothing), Ok(count) if count > 0) {}
    // A process whose start was under way when the node died shows its mark a moment later. Not much later: the next life
    // of this node must not lose what it starts.
    for pause in [0, 30] {
        std::thread::sleep(Duration::from_millis(pause));
        strays::kill_all(work);
    }
}
