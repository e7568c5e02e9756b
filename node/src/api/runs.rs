//! One run, lists of runs, cancelling a run.

use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{
    CancelRun, CancelRunRequest, CancelRunResponse, Command, GetRunRequest, ListRunsRequest,
    ListRunsResponse, Proposal, RunState, RunView,
};
use clawhive_raft::View;
use clawhive_statemachine::ids::RunId;
use clawhive_statemachine::{read, state};

use super::error::ApiError;
use super::{check, scan};
use crate::context::{Context, rejection};

const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 1_000;

/// Rows looked at for one page: a filter that matches little answers with what it found and a place to go on from.
const SCAN_LIMIT: usize = 20_000;

pub(super) fn unknown(run: u64) -> ApiError {
    ApiError::not_found(format!("there is no run {run}"))
}

pub(super) async fn get(
    ctx: &Context,
    request: GetRunRequest,
    timeout: Duration,
) -> Result<RunView, ApiError> {
    let run = check::run_id(request.run)?;
    let brief = request.brief;
    let show = move |view: &View| read::run_view(view, RunId(run), brief);
    let (found, freshness) = scan(ctx, request.stale, timeout, show).await?;
    let mut found = found.ok_or_else(|| unknown(run))?;
    found.applied_index = freshness.applied_index;
    found.freshness = Some(freshness);
    Ok(found)
}

pub(super) async fn list(
    ctx: &Context,
    request: ListRunsRequest,
    timeout: Duration,
) -> Result<ListRunsResponse, ApiError> {
    for (what, name) in [("namespace", &request.namespace), ("workflow", &request.workflow)] {
        if !name.is_empty() {
            check::name_of(what, name)?;
        }
    }
    let mut states = Vec::new();
    for number in &request.states {
        let known = RunState::try_from(*number).ok().filter(|state| *state != RunState::Unspecified);
        states.push(known.ok_or_else(|| ApiError::invalid(format!("{number} is no state of a run")))?);
    }
    let before = match request.cursor.as_str() {
        "" => None,
        cursor => {
            let wrong = || ApiError::invalid("the cursor is not one of an earlier answer");
            Some(RunId(cursor.parse().map_err(|_| wrong())?))
        }
    };
    let limit = if request.limit == 0 { DEFAULT_LIMIT } else { request.limit.min(MAX_LIMIT) };
    let filter = read::RunFilter {
        states,
        namespace: request.namespace,
        workflow: request.workflow,
        before,
        limit: limit as usize,
        scan_limit: SCAN_LIMIT,
    };
    let list = move |view: &View| read::list_runs(view, &filter);
    let (page, freshness) = scan(ctx, request.stale, timeout, list).await?;
    let applied_index = freshness.applied_index;
    let brief = |(id, row): (RunId, clawhive_proto::RunRow)| RunView {
        id: id.0,
        run: Some(row),
        applied_index,
        ..RunView::default()
    };
    Ok(ListRunsResponse {
        runs: page.runs.into_iter().map(brief).collect(),
        next_cursor: page.next.map(|run| run.0.to_string()).unwrap_or_default(),
        freshness: Some(freshness),
    })
}

pub(super) async fn cancel(
    ctx: &Context,
    request: CancelRunRequest,
    timeout: Duration,
) -> Result<CancelRunResponse, ApiError> {
    let run = check::run_id(request.run)?;
    let request_id = check::request_id(request.request_id)?;
    check::reason(&request.reason)?;
    let view = ctx.replica.linearizable_view(timeout).await?;
    let row = read::run(&view, RunId(run)).ok_or_else(|| unknown(run))?;
    // A repeat gets the first answer, also when the run has ended since.
    if state::run_ended(row.state()) && !read::is_remembered(&view, &request_id) {
        return Ok(CancelRunResponse { already_ended: true, state: row.state });
    }
    let cancel = CancelRun { run, reason: request.reason };
    let commands = vec![Command { kind: Some(Kind::CancelRun(cancel)) }];
    let proposal = Proposal { request_id, actor: super::submit::ACTOR.to_owned(), commands };
    let committed = ctx.replica.propose(proposal, timeout).await?;
    if let Some(rejection) = committed.outcomes.iter().find_map(rejection) {
        return Err(rejection.clone().into());
    }
    let view = ctx.replica.wait_applied(committed.log_index, timeout).await?;
    let row = read::run(&view, RunId(run)).ok_or_else(|| unknown(run))?;
    let already_ended = state::run_ended(row.state()) && row.stop.is_none();
    Ok(CancelRunResponse { already_ended, state: row.state })
}
