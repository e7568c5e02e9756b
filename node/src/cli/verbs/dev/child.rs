//! One node as a process of its own, which ends when this one does: it watches its standard input, and only we hold the
//! other end.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::UnboundedSender;

use super::Spec;
use crate::cli::failure::Failure;

/// What a child does.
#[derive(Debug)]
pub(super) enum News {
    /// It serves.
    Ready { n: u16, id: String },
    /// It is gone.
    Ended { n: u16, how: String },
}

/// A running node.
#[derive(Debug)]
pub(super) struct Child {
    spec: Spec,
    pid: u32,
    running: Arc<AtomicBool>,
    /// Closed when this process ends, however it does.
    _alive: Option<ChildStdin>,
}

impl Child {
    pub(super) fn start(
        spec: Spec,
        peers: &[SocketAddr],
        grace: Duration,
        tell: UnboundedSender<News>,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::unexpected(format!("cannot start a node: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("server").arg("--exit-with-parent").arg("--data").arg(&spec.data);
        command.arg("--listen").arg(spec.listen.to_string());
        command.arg("--peer-listen").arg(spec.peer_listen.to_string());
        let others: Vec<String> =
            (peers.iter()).filter(|peer| **peer != spec.peer_listen).map(SocketAddr::to_string).collect();
        if spec.n > 1 {
            command.arg("--join").arg(others.join(","));
        } else if !spec.data.exists() {
            command.arg("--bootstrap");
        }
        command.env("CLAWHIVE_SHUTDOWN_GRACE", format!("{}ms", grace.as_millis()));
        if std::env::var_os("CLAWHIVE_LOG").is_none() {
            command.env("CLAWHIVE_LOG", "error");
        }
        // A group of its own: Ctrl-C is for us, and we tell the children in good order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let running = Arc::new(AtomicBool::new(true));
        let alive = child.stdin.take();
        let (pid, n, flag) = (child.id(), spec.n, running.clone());
        let stdout = child.stdout.take();
        std::thread::spawn(move || {
            let lines = stdout.map(|stdout| BufReader::new(stdout).lines()).into_iter().flatten();
            for line in lines.map_while(Result::ok) {
                if let Some((_, id)) = line.strip_prefix("ready ").and_then(|line| line.split_once("node=")) {
                    // A receiver that is gone is a dev that ends.
                    let _ = tell.send(News::Ready { n, id: id.to_owned() });
                }
            }
            let how = child.wait().map_or_else(|error| format!("is lost: {error}"), how);
            flag.store(false, Ordering::Relaxed);
            let _ = tell.send(News::Ended { n, how });
        });
        Ok(Self { spec, pid, running, _alive: alive })
    }

    pub(super) fn spec(&self) -> &Spec {
        &self.spec
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.is_running()) {
            // One that has just ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
