//! Stops the command when `clawhive lock` itself is killed without a word (kill -9): a small process that waits for the end
//! of a pipe whose other end only `clawhive lock` holds. Otherwise the command would go on while somebody else gets the
//! lock.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, test_kill_process, test_kill_process_group};

use super::child::Target;

/// First argument of a process that is a watchdog. Then `group` or `process`, its number, and the grace in ms.
pub(crate) const WATCHDOG_ARGUMENT: &str = "__lock_watchdog";

/// How often to look whether what was told to end has ended.
const LOOK: Duration = Duration::from_millis(20);

/// A running watchdog.
#[derive(Debug)]
pub(super) struct Watchdog {
    child: Child,
}

impl Watchdog {
    /// In a group of its own, so that nothing meant for the command or for us reaches it.
    pub(super) fn start(target: Target, grace: Duration) -> io::Result<Watchdog> {
        let (kind, pid) = match target {
            Target::Group(pid) => ("group", pid),
            Target::Process(pid) => ("process", pid),
        };
        let child = Command::new("/proc/self/exe")
            .args([
                WATCHDOG_ARGUMENT,
                kind,
                &pid.as_raw_nonzero().to_string(),
                &grace.as_millis().to_string(),
            ])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Watchdog { child })
    }

    /// The command has ended.
    pub(super) fn dismiss(mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // One that has gone need not be told.
            let _ = pipe.write_all(b"done");
        }
        let _ = self.child.wait();
    }
}

/// The whole life of a watchdog process.
pub(crate) fn watchdog(mut arguments: impl Iterator<Item = String>) {
    let kind = arguments.next().unwrap_or_default();
    let pid = arguments.next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let grace = Duration::from_millis(arguments.next().and_then(|ms| ms.parse().ok()).unwrap_or(0));
    let Some(pid) = pid else { return };
    let mut word = [0u8; 4];
    if matches!(io::stdin().read(&mut word), Ok(count) if count > 0) {
        return;
    }
    let target = if kind == "group" { Target::Group(pid) } else { Target::Process(pid) };
    let lives = || match target {
        Target::Group(pid) => test_kill_process_group(pid).is_ok(),
        Target::Process(pid) => test_kill_process(pid).is_ok(),
    };
    target.signal(Signal::TERM);
    target.signal(Signal::CONT);
    let mut waited = Duration::ZERO;
    while lives() && waited < grace {
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
    target.signal(Signal::KILL);
}
