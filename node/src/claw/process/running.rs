//! One running process: takes its output, sees its end, ends it when asked, and leaves nothing of it.

use super::super::executor::{Exit, Running};
use super::super::logs::{Kind, LogWriter, PipeBuffer};
use super::child::Child;
use super::spawn::watch;
use super::strays;
use super::workdir::WorkDir;
use async_trait::async_trait;
use rustix::fd::OwnedFd;
use rustix::process::Signal;
use std::cell::RefCell;
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

thread_local! {
    /// Reading and writing on happens within one call, so one buffer per thread serves all attempts.
    static BUFFER: RefCell<PipeBuffer> = RefCell::default();
}

/// What a pipe holds at most (unless root raised it): so much is taken after the end without waiting for the end of file.
const PIPE_MAX: usize = 1024 * 1024;

/// How long a pipe may stay open without being suspicious: a child that is being spawned at the same time holds a copy of
/// every descriptor until it runs its program.
const SPAWN_WAIT: Duration = Duration::from_millis(100);

/// How long a pipe may stay open after everything that could be found was killed.
const LAST_WAIT: Duration = Duration::from_millis(300);

/// How long the killed members of a group may take to be gone.
const GROUP_WAIT: Duration = Duration::from_secs(2);

pub(super) struct ProcessRunning {
    child: AsyncFd<Child>,
    stdout: Pipe,
    stderr: Pipe,
    log: LogWriter,
    dir: Option<WorkDir>,
    stopping: bool,
    kill_at: Option<Instant>,
    ended: Option<Exit>,
}

struct Pipe {
    kind: Kind,
    /// `None` after the end of file.
    fd: Option<AsyncFd<OwnedFd>>,
}

impl ProcessRunning {
    pub(super) fn new(
        child: Child,
        stdout: OwnedFd,
        stderr: OwnedFd,
        log: LogWriter,
        dir: WorkDir,
    ) -> io::Result<Self> {
        let pipe = |kind, fd| Ok::<_, io::Error>(Pipe { kind, fd: Some(watch(fd)?) });
        Ok(Self {
            child: watch(child)?,
            stdout: pipe(Kind::Stdout, stdout)?,
            stderr: pipe(Kind::Stderr, stderr)?,
            log,
            dir: Some(dir),
            stopping: false,
            kill_at: None,
            ended: None,
        })
    }

    /// Until the leader of the group has ended and is reaped.
    async fn leader_end(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.child.get_ref().exit() {
                return exit;
            }
            let kill_at = self.kill_at;
            tokio::select! {
                biased;
                () = at(kill_at) => {
                    self.kill_at = None;
                    self.child.get_ref().signal_group(Signal::KILL);
                }
                // The error of a readiness wait means that the runtime is being shut down; the drop then kills.
                Ok(mut guard) = self.child.readable_mut() => {
                    if let Ok(Ok(exit)) = guard.try_io(|child| child.get_mut().try_reap()) {
                        return exit;
                    }
                }
                // Both are looked at when one is ready: neither starves the other.
                () = self.stdout.ready() => self.pump(),
                () = self.stderr.ready() => self.pump(),
            }
        }
    }

    fn pump(&mut self) {
        self.stdout.pump(&mut self.log);
        self.stderr.pump(&mut self.log);
    }

    /// Takes what is left in the pipes. Everything that the attempt wrote before its end is there by now; a pipe that
    /// stays open is held by a process that left the group.
    async fn drain(&mut self) {
        let pid_gone = Instant::now() + GROUP_WAIT;
        while self.child.get_ref().group_remains() && Instant::now() < pid_gone {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let at_end = self.drained(SPAWN_WAIT).await;
        if at_end && !self.stopping {
            return;
        }
        self.end_strays().await;
        if !self.drained(LAST_WAIT).await {
            self.log.note("a process that left its session still holds the output open; it was not found");
        }
    }

    /// Takes what is in the pipes until both are at their end, or for so long.
    async fn drained(&mut self, wait: Duration) -> bool {
        // Not waiting is the usual case: no timer is made for it.
        if self.stdout.drain(&mut self.log) & self.stderr.drain(&mut self.log) {
            return true;
        }
        let limit = Instant::now() + wait;
        while self.stdout.fd.is_some() || self.stderr.fd.is_some() {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(limit) => return false,
                () = self.stdout.ready() => self.pump(),
                () = self.stderr.ready() => self.pump(),
            }
        }
        true
    }

    async fn end_strays(&mut self) {
        let Some(path) = self.dir.as_ref().map(|dir| dir.path().to_owned()) else { return };
        let killed = tokio::task::spawn_blocking(move || strays::kill_all(&path)).await.unwrap_or_default();
        for stray in killed {
            self.log.note(&format!(
                "killed process {} that had left its session: {}",
                stray.pid(),
                stray.command
            ));
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Pipe {
    /// Waits for output or the end of file. Never returns after the end of file.
    async fn ready(&self) {
        let ready = match &self.fd {
            Some(fd) => fd.readable().await.is_ok(),
            None => false,
        };
        if !ready {
            std::future::pending::<()>().await;
        }
    }

    /// Takes one piece when there is one.
    fn pump(&mut self, log: &mut LogWriter) {
        let Some(fd) = &self.fd else { return };
        let result = fd.try_io(Interest::READABLE, |fd| take(fd, self.kind, log));
        if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.note_end(&result);
        }
    }

    /// Takes what is there without waiting, at most what a pipe can hold; true at the end of file.
    fn drain(&mut self, log: &mut LogWriter) -> bool {
        let mut taken = 0;
        while let Some(fd) = &self.fd
            && taken < PIPE_MAX
        {
            let result = take(fd.get_ref(), self.kind, log);
            match &result {
                Ok(len) => taken += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {}
            }
            self.note_end(&result);
        }
        self.fd.is_none()
    }

    fn note_end(&mut self, result: &io::Result<usize>) {
        match result {
            Ok(0) => self.fd = None,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(%error, "cannot read the output of a process");
                self.fd = None;
            }
        }
    }
}

/// One read, written on to the log.
fn take(fd: &OwnedFd, kind: Kind, log: &mut LogWriter) -> io::Result<usize> {
    BUFFER.with_borrow_mut(|buffer| {
        let len = rustix::io::retry_on_intr(|| rustix::io::read(fd, buffer.payload()))?;
        log.append(kind, buffer, len);
        Ok(len)
    })
}

#[async_trait]
impl Running for ProcessRunning {
    async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.ended {
            return exit;
        }
        let exit = self.leader_end().await;
        self.drain().await;
        self.ended = Some(exit);
        exit
    }

    fn stop(&mut self, grace: Duration) {
        let child = self.child.get_ref();
        self.stopping = true;
        if grace.is_zero() {
            self.kill_at = None;
            child.signal_group(Signal::KILL);
            return;
        }
        let at = Instant::now() + grace;
        if self.kill_at.is_none() {
            child.signal_group(Signal::TERM);
            // A stopped process would not see it.
            child.signal_group(Signal::CONT);
        }
        self.kill_at = Some(self.kill_at.map_or(at, |old| old.min(at)));
    }

    async fn finish(mut self: Box<Self>, want_output: bool) -> Result<Vec<u8>, String> {
        self.log.close();
        let Some(dir) = self.dir.take() else { return Ok(Vec::new()) };
        let clean = move || {
            let output = if want_output { dir.read_output() } else { Ok(Vec::new()) };
            dir.remove();
            output
        };
        tokio::task::spawn_blocking(clean).await.unwrap_or_else(|error| Err(error.to_string()))
    }
}
