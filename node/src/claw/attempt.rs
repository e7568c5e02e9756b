//! One attempt from its assignment to the command that reports its end. Keeps its execution timeout on the monotonic
//! clock.

use super::deps::{Assignment, Work};
use super::executor::{Exit, Running, Start};
use super::lease::Lease;
use super::logs::AttemptId;
use super::runtime::Shared;
use clawhive_proto::{CompleteTask, Delivery, FailTask, Reason, StartTask, command};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// What the session wants of an attempt; grows only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    /// The run is being stopped: TERM, grace, KILL, and a report with this reason.
    Stop(Reason),
    /// The claw ends: TERM, a short grace, KILL, no report.
    Shutdown,
    /// The assignment is not ours any more, or may soon not be: KILL, no report.
    Kill,
}

/// Why the attempt was ended from outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Timeout,
    Stop(Reason),
    /// `strict_single`, and the lease was not confirmed in time.
    Fenced,
    /// Not to be reported.
    Gone,
}

pub(super) struct Attempt {
    pub(super) shared: Arc<Shared>,
    pub(super) lease: Arc<Lease>,
    pub(super) assignment: Assignment,
    pub(super) order: watch::Receiver<Order>,
    /// Told when it has started.
    pub(super) started: mpsc::UnboundedSender<command::Kind>,
}

impl Attempt {
    /// Runs it; gives what to report, if anything.
    pub(super) async fn run(mut self) -> Option<command::Kind> {
        let shared = self.shared.clone();
        let work = match shared.deps.work(&self.assignment) {
            Ok(Some(work)) => Arc::new(work),
            Ok(None) => return None,
            Err(message) => return Some(self.fail(Reason::StartError, None, &message)),
        };
        let executor = match &work.task.executor {
            Some(kind) => shared.executors.iter().find(|executor| executor.runs(kind)),
            None => None,
        };
        let Some(executor) = executor else {
            return Some(self.fail(Reason::StartError, None, "this claw cannot run this kind of task"));
        };
        let delivery = work.task.delivery();
        let lease = self.lease.clone();
        tokio::select! {
            () = lease.fresh(delivery) => {}
            _ = self.order.wait_for(|order| *order != Order::Run) => {}
        }
        let start = self.start(&work);
        let not_after = start.not_after;
        let order = *self.order.borrow();
        let running = match order {
            Order::Run => executor.start(start).await,
            Order::Stop(reason) => return Some(self.fail(reason, None, "stopped before it was started")),
            Order::Shutdown | Order::Kill => return None,
        };
        let running = match running {
            Ok(running) => running,
            Err(_) if !self.lease.holds() => return None,
            Err(_) if Instant::now() >= not_after => return Some(never_started(&self.assignment)),
            Err(error) => return Some(self.fail(Reason::StartError, None, &error.0)),
        };
        let Assignment { run, task, attempt, fence, .. } = self.assignment;
        // The session may be gone; then nothing is reported at all.
        let _ = self.started.send(command::Kind::StartTask(StartTask { run, task, attempt, fence }));
        self.see_to_end(running, &work).await
    }

    fn start(&self, work: &Arc<Work>) -> Start {
        let Assignment { run, task, attempt, fence, .. } = self.assignment;
        let id = AttemptId { run, task, attempt };
        let execution = timeouts(work).0.map(|limit| {
            let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            self.shared.deps.now_ms().saturating_add(limit)
        });
        let deadline_ms = execution.into_iter().chain(work.run_deadline_ms).min();
        let log = self.shared.logs.writer(id);
        let not_after = self.lease.start_until(work.task.delivery());
        Start { id, fence, work: work.clone(), deadline_ms, not_after, log }
    }

    async fn see_to_end(&mut self, mut running: Box<dyn Running>, work: &Work) -> Option<command::Kind> {
        let (limit, grace) = timeouts(work);
        let started = Instant::now();
        let timeout = limit.and_then(|limit| started.checked_add(limit));
        let delivery = work.task.delivery();
        let lease = self.lease.clone();
        let mut cause = None;
        // What was ordered before the start is seen as well.
        self.order.mark_changed();
        let exit = loop {
            tokio::select! {
                exit = running.wait() => break exit,
                Ok(()) = self.order.changed() => {
                    let order = *self.order.borrow_and_update();
                    self.carry_out(order, &mut *running, grace, &mut cause);
                }
                // The others end with the claw's session.
                () = lease.over(delivery), if delivery == Delivery::StrictSingle && cause.is_none() => {
                    cause = Some(Cause::Fenced);
                    running.stop(Duration::ZERO);
                }
                () = at(timeout), if cause.is_none() => {
                    cause = Some(Cause::Timeout);
                    running.stop(grace);
                }
            }
        };
        // What is killed does not end with a code: it had ended by itself before, and that is worth a report, late as it
        // may be. The cluster refuses it when the attempt was replaced meanwhile.
        let killed = *self.order.borrow() == Order::Kill;
        if killed && cause == Some(Cause::Gone) && matches!(exit, Exit::Code(_)) {
            cause = None;
        }
        let success = cause.is_none() && exit == Exit::Code(0);
        let written = running.finish(success).await;
        match cause {
            Some(Cause::Gone) => None,
            Some(Cause::Stop(reason)) => Some(self.fail(reason, Some(exit), "stopped")),
            Some(Cause::Fenced) => {
                Some(self.fail(Reason::Cancelled, Some(exit), "killed: its lease was not confirmed in time"))
            }
            Some(Cause::Timeout) => {
                let limit = limit.unwrap_or_default();
                Some(self.fail(Reason::Timeout, Some(exit), &format!("not ended within {limit:?}")))
            }
            None if success => Some(self.complete(work, written)),
            None => Some(match exit {
                Exit::Code(code) => self.fail(Reason::Exit, Some(exit), &format!("exit code {code}")),
                Exit::Signal(signal) => self.fail(
                    Reason::Signal,
                    Some(exit),
                    &format!("ended by signal {signal}{}", signal_name(signal)),
                ),
                Exit::Unknown => self.fail(
                    Reason::Exit,
                    Some(exit),
                    "the exit status was taken by another part of the process",
                ),
            }),
        }
    }

    fn carry_out(&self, order: Order, running: &mut dyn Running, grace: Duration, cause: &mut Option<Cause>) {
        match order {
            Order::Run => {}
            Order::Stop(reason) => {
                cause.get_or_insert(Cause::Stop(reason));
                running.stop(grace);
            }
            Order::Shutdown => {
                *cause = Some(Cause::Gone);
                running.stop(grace.min(self.shared.config.stop_grace));
            }
            Order::Kill => {
                *cause = Some(Cause::Gone);
                running.stop(Duration::ZERO);
            }
        }
    }

    fn complete(&self, work: &Work, written: Result<Vec<u8>, String>) -> command::Kind {
        let outputs = written.and_then(|bytes| {
            if bytes.is_empty() && work.task.outputs.is_empty() {
                return Ok(String::new());
            }
            self.shared.deps.check_outputs(&work.task, &bytes)
        });
        match outputs {
            Ok(outputs_json) => {
                let Assignment { run, task, attempt, fence, .. } = self.assignment;
                command::Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json })
            }
            Err(message) => self.fail(Reason::OutputError, Some(Exit::Code(0)), &message),
        }
    }

    fn fail(&self, reason: Reason, exit: Option<Exit>, message: &str) -> command::Kind {
        failed(&self.assignment, reason, exit, message)
    }
}

/// The report of a failed attempt.
pub(super) fn failed(
    assignment: &Assignment,
    reason: Reason,
    exit: Option<Exit>,
    message: &str,
) -> command::Kind {
    let Assignment { run, task, attempt, fence, .. } = *assignment;
    let (exit_code, signal) = match exit {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        Some(Exit::Unknown) | None => (None, None),
    };
    let message = short(message);
    command::Kind::FailTask(FailTask {
        run,
        task,
        attempt,
        fence,
        reason: reason.into(),
        exit_code,
        signal,
        message,
        never_started: false,
    })
}

/// Gives an attempt back of which nothing was started.
pub(super) fn never_started(assignment: &Assignment) -> command::Kind {
    let Assignment { run, task, attempt, fence, .. } = *assignment;
    let (reason, message) = (Reason::Cancelled.into(), "given back before it was started".to_owned());
    let never_started = true;
    command::Kind::FailTask(FailTask {
        run,
        task,
        attempt,
        fence,
        reason,
        message,
        never_started,
        ..FailTask::default()
    })
}

/// At most 1 KiB, cut between characters.
pub(super) fn short(message: &str) -> String {
    const MAX: usize = 1024;
    if message.len() <= MAX {
        return message.to_owned();
    }
    let end = (0..=MAX - 3).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", &message[..end])
}

/// Execution timeout and grace of a task.
fn timeouts(work: &Work) -> (Option<Duration>, Duration) {
    let timeouts = work.task.timeout.unwrap_or_default();
    let execution = (timeouts.execution_ms > 0).then(|| Duration::from_millis(timeouts.execution_ms));
    (execution, Duration::from_millis(timeouts.grace_ms))
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        1 => " (HUP)",
        2 => " (INT)",
        3 => " (QUIT)",
        4 => " (ILL)",
        6 => " (ABRT)",
        7 => " (BUS)",
        8 => " (FPE)",
        9 => " (KILL)",
        11 => " (SEGV)",
        13 => " (PIPE)",
        15 => " (TERM)",
        24 => " (XCPU)",
        25 => " (XFSZ)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn messages_are_cut_between_characters() {
        assert_eq!(short("short"), "short");
        let long = short(&"é".repeat(1000));
        assert!(long.len() <= 1024 && long.ends_with("é..."), "{} bytes", long.len());
    }
}
