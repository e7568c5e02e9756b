//! The entry of the state machine: clamps time, answers repeats, passes the version gate, and hands each command to
//! its file. One match, which only dispatches.

use alloc::vec::Vec;
use clawhive_proto::command::Kind;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::prost::Message;
use clawhive_proto::{Command, Done, Entry, Meta, Outcome, Outcomes, RequestRow};

use crate::halt::{Refusal, Step};
use crate::work::Work;
use crate::{Halt, Store, Table, Touched, command, graph, key, level, row};

/// The newest entry format.
pub const ENTRY_VERSION: u32 = 1;

/// How long a request id is remembered.
pub const REQUEST_TTL_MS: u64 = 10 * 60 * 1000;

/// What an entry came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// One per command, in order.
    pub outcomes: Vec<Outcome>,
    /// Of a repeat: where the outcomes are from.
    pub first_index: Option<u64>,
    /// Where readers should look again.
    pub touched: Touched,
}

/// Bounds on the work of one entry. All replicas must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Steps of the graph (an edge told, a task swept) that an entry does before it leaves the rest to `Advance`.
    pub steps: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 1_000 }
    }
}

/// Applies one committed entry. The same entries in the same order give the same rows, bit for bit.
///
/// # Errors
/// [`Halt`] when no answer would be right: the caller must end the process without keeping any row of this entry.
pub fn apply(store: &mut dyn Store, log_index: u64, entry: &Entry) -> Result<Applied, Halt> {
    apply_with(store, log_index, entry, Limits::default())
}

/// As [`apply`], with other limits: for tests and simulation, where small limits make the backlog busy.
///
/// # Errors
/// As [`apply`].
pub fn apply_with(
    store: &mut dyn Store,
    log_index: u64,
    entry: &Entry,
    limits: Limits,
) -> Result<Applied, Halt> {
    if entry.version != ENTRY_VERSION {
        return Err(Halt::UnknownVersion { log_index, version: entry.version });
    }
    if let Some(position) = entry.commands.iter().position(|command| command.kind.is_none()) {
        return Err(Halt::UnknownCommand { log_index, position });
    }
    let meta: Meta = row::load(store, Table::Meta, &key::META)?.unwrap_or(Meta {
        last_time_ms: 0,
        next_run: 1,
        next_workflow: 1,
        next_ready: 1,
        next_backlog: 1,
        ..Meta::default()
    });
    let now = entry.time_ms.max(meta.last_time_ms);

    if let Some((first_index, outcomes)) = remembered(store, &entry.request_id, now)? {
        return Ok(Applied { outcomes, first_index: Some(first_index), touched: Touched::NONE });
    }

    let mut work = Work::new(store, log_index, now, meta, limits.steps);
    let mut outcomes = Vec::with_capacity(entry.commands.len());
    for command in &entry.commands {
        let kind = match run_command(&mut work, command) {
            Ok(answer) => answer,
            Err(Refusal::Rejected(rejection)) => Answer::Rejected(rejection),
            Err(Refusal::Halted(halt)) => return Err(halt),
        };
        outcomes.push(Outcome { kind: Some(kind) });
    }
    let outcomes = Outcomes { outcomes, first_index: 0 };
    if !entry.request_id.is_empty() {
        remember(&mut work, &entry.request_id, &outcomes);
    }
    let touched = work.finish(&entry.actor);
    Ok(Applied { outcomes: outcomes.outcomes, first_index: None, touched })
}

/// One command, and the part of the work it freed that fits into this entry.
fn run_command(work: &mut Work<'_>, command: &Command) -> Step<Answer> {
    let answer = dispatch(work, command)?;
    graph::backlog::run_fresh(work)?;
    Ok(answer)
}

fn dispatch(work: &mut Work<'_>, command: &Command) -> Step<Answer> {
    level::check(command, work.level())?;
    match &command.kind {
        Some(Kind::RegisterClaw(it)) => command::register_claw::apply(work, it),
        Some(Kind::ExpireClaw(it)) => command::expire_claw::apply(work, it),
        Some(Kind::RenewLeases(it)) => command::renew_leases::apply(work, it),
        Some(Kind::PutWorkflow(it)) => command::put_workflow::apply(work, it),
        Some(Kind::SubmitRun(it)) => command::submit_run::apply(work, it),
        Some(Kind::AssignTasks(it)) => command::assign_tasks::apply(work, it),
        Some(Kind::StartTask(it)) => command::start_task::apply(work, it),
        Some(Kind::CompleteTask(it)) => command::complete_task::apply(work, it),
        Some(Kind::FailTask(it)) => command::fail_task::apply(work, it),
        Some(Kind::FireTimers(it)) => command::fire_timers::apply(work, it),
        Some(Kind::CancelRun(it)) => command::cancel_run::apply(work, it),
        Some(Kind::Collect(it)) => command::collect::apply(work, it),
        Some(Kind::Advance(it)) => command::advance::apply(work, it),
        Some(Kind::AddNode(it)) => command::add_node::apply(work, it),
        Some(Kind::PutKey(it)) => command::put_key::apply(work, it),
        Some(Kind::DeleteKey(it)) => command::delete_key::apply(work, it),
        // For the replica, not for the state.
        Some(Kind::TakeDigest(_) | Kind::StateDigest(_)) => Ok(Answer::Done(Done {})),
        Some(Kind::RestoreCluster(it)) => command::restore_cluster::apply(work, it),
        Some(Kind::ResumeCluster(_)) => command::resume_cluster::apply(work),
        Some(Kind::RaiseLevel(it)) => command::raise_level::apply(work, it),
        Some(Kind::CheckpointLeases(it)) => command::checkpoint_leases::apply(work, it),
        Some(Kind::KeyTxn(it)) => command::key_txn::apply(work, it),
        Some(Kind::AcquireLock(it)) => command::acquire_lock::apply(work, it),
        Some(Kind::RenewLock(it)) => command::renew_lock::apply(work, it),
        Some(Kind::ReleaseLock(it)) => command::release_lock::apply(work, it),
        Some(Kind::ExpireLocks(it)) => command::expire_locks::apply(work, it),
        Some(Kind::CheckpointLocks(it)) => command::checkpoint_locks::apply(work, it),
        None => Err(Refusal::Halted(Halt::UnknownCommand { log_index: work.log_index, position: 0 })),
    }
}

/// Log index and outcomes of the first time, when this request id was seen and has not outlived its time.
fn remembered(store: &dyn Store, request_id: &[u8], now: u64) -> Result<Option<(u64, Vec<Outcome>)>, Halt> {
    if request_id.is_empty() {
        return Ok(None);
    }
    let Some(request) = row::load::<RequestRow>(store, Table::Requests, request_id)? else {
        return Ok(None);
    };
    if request.expires_ms <= now {
        return Ok(None);
    }
    let outcomes =
        Outcomes::decode(request.outcomes).map_err(|_| row::damaged(Table::Requests, request_id))?;
    Ok(Some((request.log_index, outcomes.outcomes)))
}

fn remember(work: &mut Work<'_>, request_id: &[u8], outcomes: &Outcomes) {
    // A row that outlived its time, but was not collected yet, makes room together with its place in the index.
    if let Some(old) = work.raw(Table::Requests, request_id).and_then(|value| RequestRow::decode(value).ok())
    {
        work.delete(Table::RequestExpiry, &key::request_expiry(old.expires_ms, request_id));
    }
    let expires_ms = work.now.saturating_add(REQUEST_TTL_MS);
    let request = RequestRow { expires_ms, outcomes: row::encode(outcomes), log_index: work.log_index };
    work.put(Table::Requests, request_id, &request);
    work.put_raw(Table::RequestExpiry, &key::request_expiry(expires_ms, request_id), &[]);
    work.touched.add(Touched::EXPIRY);
}
