//! The process executor: `run` (`sh -eu -c TEXT`, /bin/sh) and `process` (argv, never through a shell). Each attempt is a
//! session of its own with a clean environment, standard input from /dev/null, its own working directory, and output
//! captured as bytes.

mod child;
mod environment;
mod guard;
mod priority;
mod program;
mod running;
pub(crate) mod spawn;
mod strays;
mod workdir;

pub use guard::{GUARD_ARGUMENT, guard};

use super::config::{BaseEnv, ClawConfig, cores};
use super::executor::{Executor, Running, Start, StartError};
use async_trait::async_trait;
use child::Child;
use clawhive_proto::task::Executor as Kind;
use environment::Environment;
use guard::Guard;
use program::{Command, c_path};
use running::ProcessRunning;
use rustix::fd::OwnedFd;
use spawn::Program;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use workdir::{WorkDir, WorkDirs};

/// Starts processes.
pub(crate) struct ProcessExecutor {
    shared: Arc<Shared>,
    /// A spawn is CPU and blocks its thread: no more at once than there are cores.
    spawning: Semaphore,
    /// Ends the processes of this node should it die without a word or stand still.
    guard: Option<Guard>,
}

struct Shared {
    /// Their path is found again in the environment of processes.
    dirs: Arc<WorkDirs>,
    base: BaseEnv,
    server: String,
    host: String,
    nice: u8,
}

impl ProcessExecutor {
    pub(crate) fn new(config: &ClawConfig) -> std::io::Result<Self> {
        let work = config.data_dir.join("work");
        std::fs::create_dir_all(&work)?;
        let work = work.canonicalize()?;
        let guard = config.guard.as_ref().map(|program| Guard::start(program, &work)).transpose()?;
        let shared = Shared {
            dirs: WorkDirs::new(work),
            base: config.base_env.clone(),
            server: config.server_addr.clone(),
            host: config.host.clone(),
            nice: config.task_nice,
        };
        Ok(Self { shared: Arc::new(shared), spawning: Semaphore::new(cores().max(2)), guard })
    }
}

/// What a start gives.
struct Started {
    child: Child,
    stdout: OwnedFd,
    stderr: OwnedFd,
    dir: WorkDir,
}

impl Shared {
    fn spawn(&self, start: &Start) -> Result<Started, StartError> {
        let task = &start.work.task;
        let kind =
            task.executor.as_ref().ok_or_else(|| StartError("the task has nothing to run".to_owned()))?;
        let command = Command::of(kind)?;
        let io = |error: std::io::Error| {
            StartError(format!("cannot make the working directory on {}: {error}", self.host))
        };
        let dir = self.dirs.create(start.id).map_err(io)?;
        match self.spawn_in(start, &command, &dir) {
            Ok((child, stdout, stderr)) => Ok(Started { child, stdout, stderr, dir }),
            Err(error) => {
                dir.remove();
                Err(error)
            }
        }
    }

    fn spawn_in(
        &self,
        start: &Start,
        command: &Command,
        dir: &WorkDir,
    ) -> Result<(Child, OwnedFd, OwnedFd), StartError> {
        let env = Environment::of(start, &self.base, &self.server, dir.output())?;
        let cwd = command.working_dir.as_deref().unwrap_or(dir.path());
        let file =
            command.resolve(env.path(), cwd).map_err(|errno| command.explain(errno, None, &self.host))?;
        let (path, cwd) = (c_path(&file)?, c_path(cwd)?);
        let env = env.strings()?;
        let program = Program { path: &path, argv: &command.argv, env: &env, working_dir: Some(&cwd) };
        if Instant::now() >= start.not_after {
            return Err(StartError("the claw's lease is over".to_owned()));
        }
        spawn::spawn(&program)
            .map(Child::new)
            .map_err(|errno| command.explain(errno, Some(&file), &self.host))
    }
}

#[async_trait]
impl Executor for ProcessExecutor {
    fn runs(&self, kind: &Kind) -> bool {
        matches!(kind, Kind::Run(_) | Kind::Process(_))
    }

    fn clean_up(&self) -> std::io::Result<()> {
        for stray in strays::kill_all(self.shared.dirs.parent()) {
            tracing::warn!(
                pid = stray.pid(),
                command = stray.command,
                "killed a process of an earlier life of this node"
            );
        }
        self.shared.dirs.clean_up()
    }

    fn keep_until(&self, until: Instant) {
        if let Some(guard) = &self.guard {
            guard.keep_until(until);
        }
    }

    async fn start(&self, start: Start) -> Result<Box<dyn Running>, StartError> {
        let _permit = self.spawning.acquire().await.map_err(|error| StartError(error.to_string()))?;
        let shared = self.shared.clone();
        let spawn = move || {
            let started = shared.spawn(&start)?;
            Ok::<_, StartError>((started, start.log))
        };
        let (started, log) =
            tokio::task::spawn_blocking(spawn).await.map_err(|error| StartError(error.to_string()))??;
        let Started { child, stdout, stderr, dir } = started;
        priority::lower(child.pid(), self.shared.nice);
        let running = ProcessRunning::new(child, stdout, stderr, log, dir).map_err(|error| {
            StartError(format!("cannot watch a process on {}: {error}", self.shared.host))
        })?;
        Ok(Box::new(running))
    }
}
