//! A child process as a value: whoever drops it unreaped kills its group and has it reaped, so that no path through the
//! claw, a panic included, leaves a process or a zombie.

use super::super::executor::Exit;
use super::spawn::Spawned;
use rustix::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::io;

pub(super) struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    exit: Option<Exit>,
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

impl Child {
    /// The child and our ends of its pipes.
    pub(super) fn new(spawned: Spawned) -> (Self, OwnedFd, OwnedFd) {
        let Spawned { pid, pidfd, stdout, stderr } = spawned;
        (Self { pid, pidfd, exit: None }, stdout, stderr)
    }

    /// Its number, which is that of its group and session as well.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Set once it is reaped.
    pub(super) fn exit(&self) -> Option<Exit> {
        self.exit
    }

    /// To the group, as long as its leader is not reaped: until then the number cannot belong to anything else.
    pub(super) fn signal_group(&self, signal: Signal) {
        if self.exit.is_none()
            && let Err(errno) = rustix::process::kill_process_group(self.pid, signal)
            && errno != Errno::SRCH
        {
            tracing::warn!(pid = self.pid.as_raw_nonzero(), %errno, "cannot signal a process group");
        }
    }

    /// Whether a member of the group still lives after the leader was reaped. One that is dead but not yet reaped by its
    /// new parent, which may take its time, does not count.
    pub(super) fn group_remains(&self) -> bool {
        rustix::process::test_kill_process_group(self.pid) != Err(Errno::SRCH) && self.group_lives()
    }

    fn group_lives(&self) -> bool {
        // What cannot be seen is taken to live; the caller does not wait for ever.
        let Ok(entries) = std::fs::read_dir("/proc") else { return true };
        let group = self.pid.as_raw_nonzero().get().to_string();
        entries.flatten().any(|entry| {
            // The fields after the name, which may hold anything: state, parent, group.
            let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { return false };
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let state = fields.next();
            fields.nth(1) == Some(group.as_str()) && !matches!(state, Some("Z" | "X"))
        })
    }

    /// When the leader has ended: kills the rest of its group, then reaps the leader. Does not wait: `WouldBlock` is the
    /// only error.
    pub(super) fn try_reap(&mut self) -> io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // An error comes from an embedding process that reaps our children; the second call says so.
        if let Ok(None) = self.waitid(look | WaitIdOptions::NOWAIT) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.signal_group(Signal::KILL);
        let exit = match self.waitid(look) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Exit::Code(code),
                (None, Some(signal)) => Exit::Signal(signal),
                (None, None) => Exit::Unknown,
            },
            // An embedding process that ignores SIGCHLD or waits for every child was faster.
            Ok(None) | Err(_) => Exit::Unknown,
        };
        self.exit = Some(exit);
        Ok(exit)
    }

    fn waitid(&self, options: WaitIdOptions) -> Result<Option<rustix::process::WaitIdStatus>, Errno> {
        loop {
            match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
                Err(Errno::INTR) => {}
                other => return other,
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_some() {
            return;
        }
        self.signal_group(Signal::KILL);
        let Ok(pidfd) = self.pidfd.try_clone() else {
            // No descriptor to hand on: wait here, the process is being killed.
            let _ = self.waitid(WaitIdOptions::EXITED);
            return;
        };
        // Rare, and there may be no runtime left: a thread.
        let reaper = std::thread::Builder::new().name("claw-reaper".into()).spawn(move || {
            let _ = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        });
        if reaper.is_err() {
            let _ = self.waitid(WaitIdOptions::EXITED);
        }
    }
}
