//! Sends what the claw has to report: what queued up travels in one proposal, few of them at a time, each repeated with
//! the same content until it is answered or the lease is over.

use super::deps::ClawDeps;
use super::lease::Lease;
use clawhive_proto::prost::Message;
use clawhive_proto::{Command, FailTask, Outcome, Reason, Rejection, RejectionCode, command, outcome};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinSet};

/// Proposals that wait for an answer at once.
const IN_FLIGHT: usize = 2;
/// Commands of one proposal.
const MAX_COMMANDS: usize = 1024;
/// Bytes of one proposal: well below what a message may have, whatever the outputs.
const MAX_BYTES: usize = 1024 * 1024;

pub(super) struct Reporter {
    deps: Arc<dyn ClawDeps>,
    lease: Arc<Lease>,
    queue: VecDeque<Command>,
    /// Each gives what is to be reported instead.
    in_flight: JoinSet<Vec<Command>>,
    /// What is in flight, should its task break off.
    sent: HashMap<Id, Arc<Vec<Command>>>,
}

impl Reporter {
    pub(super) fn new(deps: Arc<dyn ClawDeps>, lease: Arc<Lease>) -> Self {
        Self { deps, lease, queue: VecDeque::new(), in_flight: JoinSet::new(), sent: HashMap::new() }
    }

    /// Queues a report. The proposals in flight may be applied in any order; the end of an attempt whose start is in one
    /// of them takes the start along once more, so that the start is on record before the end in any case and the end
    /// does not wait for an answer. The second of the two starts is refused and changes nothing.
    pub(super) fn push(&mut self, report: command::Kind) {
        if let Some(start) = self.start_in_flight(&report) {
            self.queue.push_back(start);
        }
        self.queue.push_back(Command { kind: Some(report) });
    }

    fn start_in_flight(&self, report: &command::Kind) -> Option<Command> {
        let fence = match report {
            command::Kind::CompleteTask(done) => (done.run, done.task, done.fence),
            command::Kind::FailTask(fail) => (fail.run, fail.task, fail.fence),
            _ => return None,
        };
        let is_its_start = |command: &&Command| match &command.kind {
            Some(command::Kind::StartTask(start)) => (start.run, start.task, start.fence) == fence,
            _ => false,
        };
        self.sent.values().flat_map(|batch| batch.iter()).find(is_its_start).cloned()
    }

    /// Whether everything has been answered.
    pub(super) fn idle(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// Sends what is waiting, when there is room.
    pub(super) fn flush(&mut self) {
        while self.in_flight.len() < IN_FLIGHT && !self.queue.is_empty() {
            let batch = Arc::new(self.take_batch());
            let send = send(self.deps.clone(), self.lease.clone(), batch.clone());
            let id = self.in_flight.spawn(send).id();
            self.sent.insert(id, batch);
        }
    }

    /// Waits until a proposal in flight is done. Never returns when there is none. Cancel safe.
    pub(super) async fn answered(&mut self) {
        match self.in_flight.join_next_with_id().await {
            None => std::future::pending().await,
            Some(Ok((id, instead))) => {
                self.sent.remove(&id);
                self.queue.extend(instead);
            }
            Some(Err(error)) => {
                tracing::error!(%error, "a report broke off, it is sent again");
                let batch = self.sent.remove(&error.id());
                self.queue.extend(batch.into_iter().flat_map(|batch| batch.to_vec()));
            }
        }
    }

    fn take_batch(&mut self) -> Vec<Command> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(command) = self.queue.front() {
            bytes += command.encoded_len();
            if batch.len() == MAX_COMMANDS || (bytes > MAX_BYTES && !batch.is_empty()) {
                break;
            }
            batch.extend(self.queue.pop_front());
        }
        batch
    }
}

async fn send(deps: Arc<dyn ClawDeps>, lease: Arc<Lease>, batch: Arc<Vec<Command>>) -> Vec<Command> {
    let mut pause = Duration::from_millis(20);
    // Also after the lease, once: the token says whether the report still counts.
    loop {
        match deps.report(batch.to_vec()).await {
            Ok(outcomes) => return batch.iter().zip(outcomes).filter_map(|(c, o)| settle(c, o)).collect(),
            Err(error) if lease.holds() => {
                tracing::warn!(%error, commands = batch.len(), "a report has no answer yet, it is sent again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(500));
            }
            Err(error) => {
                tracing::warn!(%error, commands = batch.len(), "a report after the lease has no answer, it is dropped");
                return Vec::new();
            }
        }
    }
}

/// Looks at one answer; gives what is to be reported instead of a command that cannot be taken as it is.
fn settle(command: &Command, outcome: Outcome) -> Option<Command> {
    let Some(outcome::Kind::Rejected(Rejection { code, message })) = outcome.kind else { return None };
    let code = RejectionCode::try_from(code).unwrap_or_default();
    match (&command.kind, code) {
        // Mostly one that had been sent twice.
        (Some(command::Kind::StartTask(start)), _) => {
            tracing::debug!(run = start.run, task = start.task, message, "a start was refused");
            None
        }
        (_, RejectionCode::StaleFence | RejectionCode::NotFound | RejectionCode::WrongState) => {
            tracing::warn!(?command, code = code.as_str_name(), message, "a late report was refused");
            None
        }
        // Whatever is wrong with the outputs, the attempt has ended and must not stay open.
        (Some(command::Kind::CompleteTask(done)), _) => Some(Command {
            kind: Some(command::Kind::FailTask(FailTask {
                run: done.run,
                task: done.task,
                attempt: done.attempt,
                fence: done.fence,
                reason: Reason::OutputError.into(),
                exit_code: Some(0),
                signal: None,
                message: super::attempt::short(&format!("the result was refused: {message}")),
                never_started: false,
            })),
        }),
        _ => {
            tracing::error!(?command, code = code.as_str_name(), message, "a report was refused");
            None
        }
    }
}
