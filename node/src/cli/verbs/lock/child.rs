//! The command that runs under a lock: started, signalled as a group, waited for.
//!
//! It has a process group of its own, so that all of it can be stopped. At a terminal it stays in ours instead, or it could
//! not read from there; then only the process itself is signalled, and Ctrl-C reaches it as it reaches us.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::sync::oneshot;

use super::watchdog::Watchdog;
use crate::cli::failure::{Exit, Failure};

/// Shells' codes for commands that cannot be run and that are not there.
const CANNOT_RUN: u8 = 126;
const NO_COMMAND: u8 = 127;

/// Whom signals reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Group(Pid),
    Process(Pid),
}

impl Target {
    pub(super) fn signal(self, signal: Signal) {
        // It may have ended meanwhile, which is as good.
        let _ = match self {
            Target::Group(group) => kill_process_group(group, signal),
            Target::Process(process) => kill_process(process, signal),
        };
    }
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Running {
    target: Target,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    watchdog: Option<Watchdog>,
}

impl Running {
    pub(super) fn start(
        command: &[OsString],
        token: u64,
        server: Option<&str>,
        grace: Duration,
    ) -> Result<Running, Failure> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| Failure::usage("there is no command to run"))?;
        let at_terminal = io::stdin().is_terminal();
        let mut command = Command::new(program);
        command.args(arguments).env("CLAWHIVE_FENCE", token.to_string());
        if let Some(server) = server {
            command.env("CLAWHIVE_SERVER", server);
        }
        if !at_terminal {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(|error| {
            let name = program.to_string_lossy();
            let failure = Failure::new(Exit::Usage, "usage", format!("cannot run {name}: {error}"));
            failure.exit_code(if error.kind() == io::ErrorKind::NotFound { NO_COMMAND } else { CANNOT_RUN })
        })?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::unexpected("a process without a number"))?;
        let target = if at_terminal { Target::Process(pid) } else { Target::Group(pid) };
        // Without it the command would run on when we are killed; that is no reason not to run it.
        let watchdog = Watchdog::start(target, grace).ok();
        let (told, ended) = oneshot::channel();
        std::thread::spawn(move || {
            // Nobody waits any more when this process ends.
            let _ = told.send(child.wait());
        });
        Ok(Running { target, ended, watchdog })
    }

    /// The code that a shell would give.
    pub(super) async fn ended(&mut self) -> Result<u8, Failure> {
        let status = (&mut self.ended).await.map_err(io::Error::other).and_then(|status| status);
        if let Some(watchdog) = self.watchdog.take() {
            watchdog.dismiss();
        }
        let status = status.map_err(|error| Failure::unexpected(format!("cannot wait: {error}")))?;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, signal) => u8::try_from(128 + signal.unwrap_or(0)).unwrap_or(u8::MAX),
        })
    }

    /// What we were told to do, the command is told.
    pub(super) fn forward(&self, signal: Signal) {
        // The terminal has told it already.
        if !(signal == Signal::INT && matches!(self.target, Target::Process(_))) {
            self.target.signal(signal);
        }
    }

    pub(super) fn terminate(&self) {
        self.target.signal(Signal::TERM);
        // One that is stopped hears nothing.
        self.target.signal(Signal::CONT);
    }

    pub(super) fn kill(&self) {
        self.target.signal(Signal::KILL);
    }
}

/// The exit code of who ends because of a signal.
pub(super) fn code_of_signal(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}
