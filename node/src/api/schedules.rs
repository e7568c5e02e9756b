//! Schedules: looking at them, making a run of one by hand, pausing and resuming.

use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{
    Command, GetScheduleRequest, ListSchedulesRequest, ListSchedulesResponse, OccurrenceView, PauseSchedule,
    PauseScheduleRequest, Proposal, ScheduleRef, ScheduleView, SubmitRunResponse, TriggerSchedule,
    TriggerScheduleRequest, outcome,
};
use clawhive_raft::View;
use clawhive_statemachine::ids::{Version, WorkflowUid};
use clawhive_statemachine::{names, read};

use super::error::ApiError;
use super::submit::{ACTOR, resolve};
use super::{check, view};
use crate::context::{Context, rejection};

const MAX_OCCURRENCES: u32 = 1_000;

/// `[namespace/]workflow[:schedule]`. Not held against the rule for names: one that an older version stored is as good.
fn named(text: &str) -> Result<ScheduleRef, ApiError> {
    check::key("the name of the schedule", text)?;
    let (namespace, rest) = text.split_once('/').unwrap_or(("default", text));
    let (workflow, schedule) = rest.split_once(':').unwrap_or((rest, ""));
    if namespace.is_empty() || workflow.is_empty() {
        return Err(ApiError::invalid(format!(
            "{text:?} names no schedule; write [namespace/]workflow[:schedule]"
        )));
    }
    Ok(ScheduleRef { namespace: namespace.into(), workflow: workflow.into(), schedule: schedule.into() })
}

fn unknown(of: &ScheduleRef) -> ApiError {
    let name = names::schedule(&of.namespace, &of.workflow, &of.schedule);
    ApiError::not_found(format!("there is no schedule {name}"))
}

pub(super) async fn list(
    ctx: &Context,
    request: ListSchedulesRequest,
    timeout: Duration,
) -> Result<ListSchedulesResponse, ApiError> {
    check::key("the namespace", &request.namespace)?;
    let view = view(ctx, request.stale, timeout).await?;
    let applied_index = view.applied_index();
    let schedules = read::schedules(&view, &request.namespace, "").into_iter();
    let schedules = schedules.map(|(of, row)| ScheduleView {
        of: Some(of),
        row: Some(row),
        occurrences: Vec::new(),
        applied_index,
    });
    Ok(ListSchedulesResponse { schedules: schedules.collect(), applied_index })
}

pub(super) async fn get(
    ctx: &Context,
    request: GetScheduleRequest,
    timeout: Duration,
) -> Result<ScheduleView, ApiError> {
    let of = named(&request.schedule)?;
    let view = view(ctx, request.stale, timeout).await?;
    show(&view, of, request.occurrences)
}

fn show(view: &View, of: ScheduleRef, occurrences: u32) -> Result<ScheduleView, ApiError> {
    let row = read::schedule(view, &of).ok_or_else(|| unknown(&of))?;
    let records = read::occurrences(view, &of, u64::MAX, occurrences.min(MAX_OCCURRENCES) as usize);
    let occurrences = records
        .into_iter()
        .map(|one| OccurrenceView { nominal_ms: one.nominal_ms, row: Some(one.row) })
        .collect();
    Ok(ScheduleView { of: Some(of), row: Some(row), occurrences, applied_index: view.applied_index() })
}

pub(super) async fn trigger(
    ctx: &Context,
    request: TriggerScheduleRequest,
    timeout: Duration,
) -> Result<SubmitRunResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let of = named(&request.schedule)?;
    let view = ctx.replica.linearizable_view(timeout).await?;
    if read::schedule(&view, &of).is_none() {
        return Err(unknown(&of));
    }
    let workflow = read::workflow(&view, &of.namespace, &of.workflow).ok_or_else(|| unknown(&of))?;
    let stored = read::version(&view, WorkflowUid(workflow.uid), Version(workflow.latest_version));
    let header = stored.and_then(|stored| stored.header).unwrap_or_default();
    let params = resolve(ctx, &header, &request.params)?;
    let (namespace, name) = (of.namespace.clone(), of.workflow.clone());
    let version = workflow.latest_version;
    let trigger = TriggerSchedule { of: Some(of), force: request.force, version, params };
    let commands = vec![Command { kind: Some(Kind::TriggerSchedule(trigger)) }];
    let proposal = Proposal { request_id, actor: ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    match committed.outcomes.into_iter().next().and_then(|outcome| outcome.kind) {
        Some(outcome::Kind::RunSubmitted(run)) => Ok(SubmitRunResponse {
            run: run.run,
            replayed: run.replayed,
            namespace,
            workflow: name,
            version: run.version,
            log_index: committed.log_index,
        }),
        Some(outcome::Kind::Rejected(rejection)) => Err(rejection.into()),
        _ => Err(ApiError::internal("an outcome of another kind")),
    }
}

pub(super) async fn pause(
    ctx: &Context,
    request: PauseScheduleRequest,
    timeout: Duration,
) -> Result<ScheduleView, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let of = named(&request.schedule)?;
    check::reason(&request.reason)?;
    let pause = PauseSchedule { of: Some(of.clone()), paused: request.paused, reason: request.reason };
    let commands = vec![Command { kind: Some(Kind::PauseSchedule(pause)) }];
    let proposal = Proposal { request_id, actor: ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    if let Some(rejection) = committed.outcomes.iter().find_map(rejection) {
        return Err(rejection.clone().into());
    }
    show(&view(ctx, false, timeout).await?, of, 0)
}
