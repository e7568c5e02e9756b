//! Storing definitions and starting runs.

use std::collections::BTreeMap;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::submit_run_request::What;
use clawhive_proto::{
    Command, MAX_MESSAGE_BYTES, Proposal, PutWorkflow, PutWorkflowRequest, PutWorkflowResponse, SubmitResult,
    SubmitRun, SubmitRunRequest, SubmitRunResponse, SubmitRunsRequest, SubmitRunsResponse, Workflow, outcome,
    submit_result,
};
use clawhive_statemachine::ids::{Version, WorkflowUid};
use clawhive_statemachine::read;
use futures::stream::{StreamExt, iter};
use sha2::{Digest, Sha256};

use super::check;
use super::error::ApiError;
use crate::context::{Context, rejection};
use crate::definition;
use crate::template::{self, Moment};

/// Who acts, in events: there are no names of callers yet.
pub(super) const ACTOR: &str = "anonymous";

/// Submits of one call that are under way at once.
const AT_ONCE: usize = 256;

/// A definition of this size is read on a thread of its own, not on one that serves others.
const LARGE: usize = 32 * 1024;

/// A definition that was read, with its identity.
struct Parsed {
    workflow: Workflow,
    hash: Vec<u8>,
}

async fn parse(text: Vec<u8>) -> Result<Parsed, ApiError> {
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(ApiError::too_large("the definition", text.len()));
    }
    if text.len() >= LARGE {
        let read = tokio::task::spawn_blocking(move || read_definition(&text)).await;
        read.map_err(|error| ApiError::internal(format!("reading the definition broke off: {error}")))?
    } else {
        read_definition(&text)
    }
}

fn read_definition(text: &[u8]) -> Result<Parsed, ApiError> {
    let read = definition::parse(text, "definition");
    let workflow = read.map_err(|refused| ApiError::definition(refused.errors, refused.omitted))?.workflow;
    let hash = definition::hash(&workflow).to_vec();
    Ok(Parsed { workflow, hash })
}

pub(super) async fn put_workflow(
    ctx: &Context,
    request: PutWorkflowRequest,
    timeout: Duration,
) -> Result<PutWorkflowResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    let Parsed { workflow, hash } = parse(request.definition).await?;
    let (namespace, name) = (workflow.namespace.clone(), workflow.name.clone());
    let put = PutWorkflow { workflow: Some(workflow), hash, set_schedules: true };
    let commands = vec![Command { kind: Some(Kind::PutWorkflow(put)) }];
    let proposal = Proposal { request_id, actor: ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    match committed.outcomes.into_iter().next().and_then(|outcome| outcome.kind) {
        Some(outcome::Kind::WorkflowPut(put)) => {
            Ok(PutWorkflowResponse { namespace, name, version: put.version, created: put.created })
        }
        Some(outcome::Kind::Rejected(rejection)) => Err(rejection.into()),
        _ => Err(ApiError::internal("an outcome of another kind")),
    }
}

pub(super) async fn submit_runs(
    ctx: &Context,
    request: SubmitRunsRequest,
    timeout: Duration,
) -> SubmitRunsResponse {
    let one = |run: SubmitRunRequest| async move {
        let result = match submit_run(ctx, run, timeout).await {
            Ok(run) => submit_result::Result::Run(run),
            Err(error) => submit_result::Result::Error(error.into_submit_error()),
        };
        SubmitResult { result: Some(result) }
    };
    SubmitRunsResponse { results: iter(request.runs).map(one).buffered(AT_ONCE).collect().await }
}

pub(super) async fn submit_run(
    ctx: &Context,
    request: SubmitRunRequest,
    timeout: Duration,
) -> Result<SubmitRunResponse, ApiError> {
    let request_id = check::request_id(request.request_id)?;
    check::key("the idempotency key", &request.idempotency_key)?;
    check::labels(&request.labels)?;
    let mut plan = match request.what {
        None => return Err(ApiError::invalid("neither a definition nor the name of a workflow is given")),
        Some(What::Definition(_)) if request.version != 0 => {
            return Err(ApiError::invalid(
                "a version is named beside a definition; name the workflow instead",
            ));
        }
        Some(What::Definition(text)) => of_definition(ctx, parse(text).await?, &request.params)?,
        Some(What::Workflow(name)) => of_name(ctx, &name, request.version, &request.params, timeout).await?,
    };
    plan.submit.idempotency_key = request.idempotency_key;
    plan.submit.labels = request.labels;
    let (namespace, workflow) = (plan.submit.namespace.clone(), plan.submit.workflow.clone());
    let mut commands = Vec::with_capacity(2);
    commands.extend(plan.put.map(|put| Command { kind: Some(Kind::PutWorkflow(put)) }));
    commands.push(Command { kind: Some(Kind::SubmitRun(plan.submit)) });
    let proposal = Proposal { request_id, actor: ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    if let Some(rejection) = committed.outcomes.iter().find_map(rejection) {
        return Err(rejection.clone().into());
    }
    // A repeat gets the outcomes of the first time, which may have stored the definition on the way.
    match committed.outcomes.into_iter().next_back().and_then(|outcome| outcome.kind) {
        Some(outcome::Kind::RunSubmitted(submitted)) => Ok(SubmitRunResponse {
            run: submitted.run,
            replayed: submitted.replayed,
            namespace,
            workflow,
            version: submitted.version,
            log_index: committed.log_index,
        }),
        _ => Err(ApiError::internal("an outcome of another kind")),
    }
}

/// What is to be proposed for one submit.
struct Plan {
    put: Option<PutWorkflow>,
    submit: SubmitRun,
}

/// A submit starts no schedule: that takes a put of its own. The version is pinned when the newest one that is known here is the same; else the definition travels along.
fn of_definition(ctx: &Context, parsed: Parsed, given: &BTreeMap<String, String>) -> Result<Plan, ApiError> {
    let Parsed { workflow, hash } = parsed;
    let params = resolve(ctx, &workflow, given)?;
    let (namespace, name) = (workflow.namespace.clone(), workflow.name.clone());
    let body_hash = body_hash(&namespace, &name, &hash, given);
    let known = read::workflow(&ctx.replica.view(), &namespace, &name).filter(|row| row.latest_hash == hash);
    let submit = SubmitRun {
        namespace,
        workflow: name,
        version: known.as_ref().map_or(0, |row| row.latest_version),
        params,
        body_hash,
        ..SubmitRun::default()
    };
    let put =
        known.is_none().then_some(PutWorkflow { workflow: Some(workflow), hash, ..PutWorkflow::default() });
    Ok(Plan { put, submit })
}

async fn of_name(
    ctx: &Context,
    text: &str,
    version: u64,
    given: &BTreeMap<String, String>,
    timeout: Duration,
) -> Result<Plan, ApiError> {
    let (namespace, workflow) = check::workflow_name(text)?;
    let view = ctx.replica.linearizable_view(timeout).await?;
    let unknown = || ApiError::not_found(format!("there is no workflow {namespace}/{workflow}"));
    let row = read::workflow(&view, &namespace, &workflow).ok_or_else(unknown)?;
    let pinned = if version == 0 { row.latest_version } else { version };
    let unknown = || ApiError::not_found(format!("workflow {namespace}/{workflow} has no version {version}"));
    let stored = read::version(&view, WorkflowUid(row.uid), Version(pinned)).ok_or_else(unknown)?;
    let params = resolve(ctx, &stored.header.unwrap_or_default(), given)?;
    // What the caller said, not what it meant at the moment: a repeat after a new version is still a repeat.
    let body_hash = body_hash(&namespace, &workflow, &version.to_be_bytes(), given);
    let submit =
        SubmitRun { namespace, workflow, version: pinned, params, body_hash, ..SubmitRun::default() };
    Ok(Plan { put: None, submit })
}

pub(super) fn resolve(
    ctx: &Context,
    workflow: &Workflow,
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let moment = Moment { created_at_ms: ctx.clock.now_ms(), nominal_time_ms: None };
    template::resolve_params(workflow, given, moment).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ApiError::invalid(texts.join("; "))
    })
}

/// What makes two submits under one idempotency key the same: the workflow, its definition or the version asked for, and
/// the parameters as given.
fn body_hash(namespace: &str, workflow: &str, what: &[u8], given: &BTreeMap<String, String>) -> Vec<u8> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(namespace.as_bytes());
    add(workflow.as_bytes());
    add(what);
    for (name, value) in given {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    hash.finalize().to_vec()
}
