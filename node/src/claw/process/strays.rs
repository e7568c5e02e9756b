//! Finds processes of attempts by what they carry: CLAWHIVE_OUTPUT in their environment points into our work directory.
//! This reaches those that left the session of their attempt, and those that an earlier process of this node left behind.
//! A process that has cleared its environment is not found.

use rustix::process::{Pid, Signal};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// A process to be ended.
pub(super) struct Stray {
    pid: Pid,
    /// Its command line, for people.
    pub(super) command: String,
}

impl Stray {
    /// Its number, for people.
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }
}

/// Processes whose CLAWHIVE_OUTPUT starts with this path. Blocking: reads /proc.
pub(super) fn find(path: &Path) -> Vec<Stray> {
    let mut mark = b"CLAWHIVE_OUTPUT=".to_vec();
    mark.extend_from_slice(path.as_os_str().as_bytes());
    // A whole part of a path: 1-2-3 is not 1-2-30.
    mark.push(b'/');
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = rustix::process::getpid();
    numbers
        .filter_map(Pid::from_raw)
        // A node that is itself run by a task carries the mark of that task.
        .filter(|pid| *pid != own)
        .filter(|pid| {
            fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()))
                .is_ok_and(|all| all.split(|byte| *byte == 0).any(|variable| variable.starts_with(&mark)))
        })
        .map(|pid| Stray { pid, command: command(pid) })
        .collect()
}

/// Kills all of them and waits, not for ever, until they are gone. A process that makes new ones is looked at again.
pub(super) fn kill_all(path: &Path) -> Vec<Stray> {
    let mut killed: Vec<Stray> = Vec::new();
    let start = Instant::now();
    loop {
        let found = find(path);
        if found.is_empty() || start.elapsed() > Duration::from_secs(2) {
            return killed;
        }
        for stray in found {
            let _ = rustix::process::kill_process(stray.pid, Signal::KILL);
            if !killed.iter().any(|known| known.pid == stray.pid) {
                killed.push(stray);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn command(pid: Pid) -> String {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    text.trim_end().chars().take(200).collect()
}
