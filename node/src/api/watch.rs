//! A run as it changes, until it has ended.

use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::{RunView, WatchRunRequest};
use clawhive_raft::{Feed, View};
use clawhive_statemachine::ids::RunId;
use clawhive_statemachine::{Touched, read, state};
use futures::stream::StreamExt;
use tonic::Status;

use super::error::ApiError;
use super::{Items, check, runs, view};
use crate::context::Context;

/// Changes within this time are sent as one.
const COALESCE: Duration = Duration::from_millis(30);

/// How long the first look may wait for a quorum.
const FIRST_LOOK: Duration = Duration::from_millis(4_500);

struct Watch {
    ctx: Arc<Context>,
    feed: Feed,
    run: RunId,
    brief: bool,
    /// The newest log index whose change was sent.
    seen: u64,
    first: Option<View>,
    ended: bool,
}

pub(super) async fn run(ctx: Arc<Context>, request: WatchRunRequest) -> Result<Items<RunView>, ApiError> {
    let run = RunId(check::run_id(request.run)?);
    let feed = ctx.replica.feed();
    let first = view(&ctx, false, FIRST_LOOK).await?;
    if read::run(&first, run).is_none() {
        return Err(runs::unknown(run.0));
    }
    let watch = Watch { ctx, feed, run, brief: request.brief, seen: 0, first: Some(first), ended: false };
    let views = futures::stream::unfold(watch, |mut watch| async move {
        let next = watch.next().await?;
        Some((next, watch))
    });
    Ok(views.boxed())
}

impl Watch {
    /// The run after its next change; none when it has ended.
    async fn next(&mut self) -> Option<Result<RunView, Status>> {
        if self.ended {
            return None;
        }
        let view = match self.first.take() {
            Some(view) => view,
            None => match self.changed().await {
                Ok(view) => view,
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error.into()));
                }
            },
        };
        let Some(mut found) = read::run_view(&view, self.run, self.brief) else {
            self.ended = true;
            return Some(Err(runs::unknown(self.run.0).into()));
        };
        self.seen = view.applied_index();
        found.applied_index = self.seen;
        self.ended = found.run.as_ref().is_none_or(|run| state::run_ended(run.state()));
        Some(Ok(found))
    }

    /// Waits until an event of the run is newer than what was sent.
    async fn changed(&mut self) -> Result<View, ApiError> {
        loop {
            let tick = self.feed.touched(Touched::RUNS).await;
            tick.map_err(|_| ApiError::unavailable("this node is shutting down"))?;
            let has_news = !read::run_events(&self.ctx.replica.view(), self.run, self.seen, 1).is_empty();
            let gone = || read::run(&self.ctx.replica.view(), self.run).is_none();
            if has_news || gone() {
                tokio::time::sleep(self.pause()).await;
                return Ok(self.ctx.replica.view());
            }
        }
    }

    /// A run with many tasks is sent less often: each time all of it is.
    fn pause(&self) -> Duration {
        if self.brief {
            return COALESCE;
        }
        let tasks = read::run(&self.ctx.replica.view(), self.run).map_or(0, |run| run.tasks);
        COALESCE.max(Duration::from_micros(u64::from(tasks) * 50))
    }
}
