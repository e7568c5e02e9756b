//! Starts a run, pinned to a version. This is the one entry that may write as many rows as the run has tasks.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    EventKind, IdempotencyRow, Reason, RejectionCode, RunRow, RunState, RunSubmitted, SubmitRun, TaskRow,
    TaskState, TimerKind, TimerRow, VersionRow, WorkflowRow,
};
use core::ops::ControlFlow;

use crate::command::check_name;
use crate::graph::admission;
use crate::halt::{Step, rejected};
use crate::ids::{RunId, TaskIndex, Version, WorkflowUid};
use crate::row::SlimSpec;
use crate::work::Work;
use crate::{Table, Touched, key, row};

/// How long an idempotency key is remembered.
pub(crate) const IDEMPOTENCY_TTL_MS: u64 = 72 * 60 * 60 * 1000;

pub(crate) fn apply(work: &mut Work<'_>, command: &SubmitRun) -> Step<Answer> {
    check_name("the namespace", &command.namespace)?;
    check_name("the workflow's name", &command.workflow)?;
    if let Some(earlier) = earlier(work, command)? {
        return Ok(Answer::RunSubmitted(earlier));
    }
    let (run, version) = create(
        work,
        &NewRun {
            namespace: &command.namespace,
            workflow: &command.workflow,
            version: command.version,
            params: &command.params,
            labels: &command.labels,
            idempotency_key: &command.idempotency_key,
            of_schedule: None,
        },
    )?;
    if !command.idempotency_key.is_empty() {
        remember(work, command, run, version);
    }
    Ok(Answer::RunSubmitted(RunSubmitted { run: run.0, replayed: false, version: version.0 }))
}

/// A run to be made.
pub(crate) struct NewRun<'a> {
    pub namespace: &'a str,
    pub workflow: &'a str,
    /// 0: the newest.
    pub version: u64,
    pub params: &'a BTreeMap<String, String>,
    pub labels: &'a BTreeMap<String, String>,
    pub idempotency_key: &'a str,
    pub of_schedule: Option<OfSchedule<'a>>,
}

/// The schedule that makes a run.
#[derive(Clone, Copy)]
pub(crate) struct OfSchedule<'a> {
    pub uid: u64,
    pub name: &'a str,
    /// 0: by hand.
    pub nominal_ms: u64,
}

/// Makes a run of a stored workflow.
pub(crate) fn create(work: &mut Work<'_>, new: &NewRun<'_>) -> Step<(RunId, Version)> {
    let name_key = key::workflow(new.namespace, new.workflow);
    let Some(workflow) = work.get::<WorkflowRow>(Table::Workflows, &name_key)? else {
        return not_found(new);
    };
    let uid = WorkflowUid(workflow.uid);
    let version = Version(if new.version == 0 { workflow.latest_version } else { new.version });
    let Some(head) = work.get::<VersionRow>(Table::Versions, &key::version(uid, version))? else {
        return not_found(new);
    };
    let header = head.header.unwrap_or_default();

    let run = RunId(work.meta.next_run);
    work.meta.next_run += 1;
    work.put_run(
        run,
        RunRow {
            namespace: new.namespace.into(),
            workflow: new.workflow.into(),
            workflow_uid: uid.0,
            version: version.0,
            state: RunState::Pending as i32,
            params: new.params.clone(),
            created_at_ms: work.now,
            idempotency_key: new.idempotency_key.into(),
            log_index: work.log_index,
            priority: header.priority,
            max_parallel: header.max_parallel,
            on_failure: header.on_failure,
            timeout_ms: header.timeout_ms,
            tasks: head.tasks,
            unfinished: head.tasks,
            labels: new.labels.clone(),
            schedule_uid: new.of_schedule.map_or(0, |of| of.uid),
            schedule: new.of_schedule.map_or_else(String::new, |of| of.name.into()),
            nominal_ms: new.of_schedule.map_or(0, |of| of.nominal_ms),
            ..RunRow::default()
        },
    );
    work.put_raw(Table::Active, &key::run(run), &[]);
    if header.timeout_ms > 0 {
        let due_ms = work.now.saturating_add(header.timeout_ms);
        work.put(Table::Timers, &key::timer(due_ms, TimerKind::RunTimeout, run, TaskIndex(0)), &TimerRow {});
        work.touched.add(Touched::TIMERS);
    }
    work.run_event(EventKind::RunSubmitted, run, Reason::Unspecified, "");
    put_tasks(work, run, uid, version)?;
    Ok((run, version))
}

fn not_found<T>(new: &NewRun<'_>) -> Step<T> {
    let version = match new.version {
        0 => String::new(),
        version => alloc::format!(" version {version}"),
    };
    rejected(
        RejectionCode::NotFound,
        alloc::format!("there is no workflow {}/{}{version}", new.namespace, new.workflow),
    )
}

/// The run that stands under the same idempotency key, if its time is not over.
fn earlier(work: &Work<'_>, command: &SubmitRun) -> Step<Option<RunSubmitted>> {
    if command.idempotency_key.is_empty() {
        return Ok(None);
    }
    let key = key::idempotency(&command.namespace, &command.idempotency_key);
    let Some(row) = work.get::<IdempotencyRow>(Table::Idempotency, &key)? else { return Ok(None) };
    if row.expires_ms <= work.now {
        return Ok(None);
    }
    if row.body_hash != command.body_hash {
        return rejected(
            RejectionCode::Conflict,
            alloc::format!("idempotency key {} stands for run {} already", command.idempotency_key, row.run),
        );
    }
    Ok(Some(RunSubmitted { run: row.run, replayed: true, version: row.version }))
}

fn remember(work: &mut Work<'_>, command: &SubmitRun, run: RunId, version: Version) {
    let (namespace, text) = (&command.namespace, &command.idempotency_key);
    let key = key::idempotency(namespace, text);
    // A row that outlived its time, but was not collected yet, makes room together with its place in the index.
    if let Some(old) = work.raw(Table::Idempotency, &key).and_then(|value| IdempotencyRow::decode(value).ok())
    {
        work.delete(Table::IdempotencyExpiry, &key::idempotency_expiry(old.expires_ms, namespace, text));
    }
    let expires_ms = work.now.saturating_add(IDEMPOTENCY_TTL_MS);
    let body_hash = command.body_hash.clone();
    work.put(
        Table::Idempotency,
        &key,
        &IdempotencyRow { run: run.0, version: version.0, body_hash, expires_ms },
    );
    work.put_raw(Table::IdempotencyExpiry, &key::idempotency_expiry(expires_ms, namespace, text), &[]);
    work.touched.add(Touched::EXPIRY);
}

/// Writes the tasks; those without upstreams are ready, in file order.
fn put_tasks(work: &mut Work<'_>, run: RunId, uid: WorkflowUid, version: Version) -> Step<()> {
    let mut specs: Vec<Option<SlimSpec>> = Vec::new();
    row::scan_prefix(work.view(), Table::Specs, &key::version(uid, version), &mut |_, value| {
        specs.push(SlimSpec::decode(value.clone()).ok());
        ControlFlow::Continue(())
    });
    for (index, spec) in specs.into_iter().enumerate() {
        let task = TaskIndex(index as u32);
        let spec = spec.ok_or_else(|| row::damaged(Table::Specs, &key::spec(uid, version, task)))?;
        let mut row = TaskRow {
            state: TaskState::Pending as i32,
            remaining: spec.needs().len() as u32,
            ..TaskRow::default()
        };
        if row.remaining == 0 {
            admission::make_ready(work, run, task, &mut row, spec.queue_ms())?;
        }
        work.put_task(run, task, &row);
    }
    Ok(())
}
