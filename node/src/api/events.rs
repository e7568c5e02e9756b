//! Events, in the order of the log, without a gap.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::{Event, EventBatch, EventView, ListEventsRequest};
use clawhive_raft::{Feed, View};
use clawhive_statemachine::ids::{RunId, TaskIndex, Version, WorkflowUid};
use clawhive_statemachine::{Touched, names, read, state};
use futures::stream::StreamExt;
use tonic::Status;

use super::error::ApiError;
use super::{Items, runs, view};
use crate::context::Context;

/// How long the first look may wait for a quorum.
const FIRST_LOOK: Duration = Duration::from_millis(4_500);

/// Runs whose names are kept at once.
const NAMES: usize = 1_000;

struct Reading {
    ctx: Arc<Context>,
    feed: Feed,
    /// 0: of everything.
    run: RunId,
    after: u64,
    follow: bool,
    view: Option<View>,
    names: HashMap<u64, RunNames>,
    ready: VecDeque<EventView>,
    failed: bool,
}

#[derive(Clone, Default)]
struct RunNames {
    namespace: String,
    workflow: String,
    uid: WorkflowUid,
    version: Version,
}

pub(super) async fn list(
    ctx: Arc<Context>,
    request: ListEventsRequest,
) -> Result<Items<EventView>, ApiError> {
    let run = RunId(request.run);
    let feed = ctx.replica.feed();
    let first = view(&ctx, false, FIRST_LOOK).await?;
    if run.0 != 0 && read::run(&first, run).is_none() {
        return Err(runs::unknown(run.0));
    }
    let reading = Reading {
        ctx,
        feed,
        run,
        after: request.after_log_index,
        follow: request.follow,
        view: Some(first),
        names: HashMap::new(),
        ready: VecDeque::new(),
        failed: false,
    };
    let events = futures::stream::unfold(reading, |mut reading| async move {
        let next = reading.next().await?;
        Some((next, reading))
    });
    Ok(events.boxed())
}

impl Reading {
    async fn next(&mut self) -> Option<Result<EventView, Status>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.failed {
                return None;
            }
            let view = match self.view.take() {
                Some(view) => view,
                None => {
                    self.feed.look();
                    self.ctx.replica.view()
                }
            };
            if self.read_page(&view) {
                continue;
            }
            if !self.follow || self.run_has_ended(&view) {
                return None;
            }
            drop(view);
            let touched = Touched::RUNS.with(Touched::WORKFLOWS).with(Touched::CLAWS).with(Touched::NODES);
            if self.feed.touched(touched).await.is_err() {
                self.failed = true;
                return Some(Err(ApiError::unavailable("this node is shutting down").into()));
            }
            self.view = Some(self.ctx.replica.view());
        }
    }

    /// Reads the next page. False when there was nothing.
    fn read_page(&mut self, view: &View) -> bool {
        let batches = match self.run.0 {
            0 => read::events(view, self.after, read::EVENTS_PAGE),
            _ => read::run_events(view, self.run, self.after, read::EVENTS_PAGE),
        };
        let Some((last, _)) = batches.last() else { return false };
        self.after = *last;
        for (log_index, batch) in batches {
            for event in &batch.events {
                let event = self.shown(view, log_index, &batch, event);
                self.ready.push_back(event);
            }
        }
        true
    }

    fn run_has_ended(&self, view: &View) -> bool {
        self.run.0 != 0 && read::run(view, self.run).is_none_or(|run| state::run_ended(run.state()))
    }

    fn shown(&mut self, view: &View, log_index: u64, batch: &EventBatch, event: &Event) -> EventView {
        let run = self.names_of(view, event.run);
        let task = event.task_plus_1.checked_sub(1).map(TaskIndex).and_then(|task| {
            let spec = read::spec(view, run.uid, run.version, task)?;
            spec.task.map(|task| task.name)
        });
        EventView {
            log_index,
            time_ms: batch.time_ms,
            kind: names::event_kind(event.kind()),
            namespace: run.namespace,
            workflow: run.workflow,
            run: event.run,
            task: task.unwrap_or_default(),
            attempt: event.attempt,
            actor: batch.actor.clone(),
            detail: event.detail.clone(),
            claw: event.claw,
            reason: names::reason(event.reason()),
        }
    }

    fn names_of(&mut self, view: &View, run: u64) -> RunNames {
        if run == 0 {
            return RunNames::default();
        }
        if let Some(names) = self.names.get(&run) {
            return names.clone();
        }
        if self.names.len() >= NAMES {
            self.names.clear();
        }
        let names = read::run(view, RunId(run)).map(|row| RunNames {
            namespace: row.namespace,
            workflow: row.workflow,
            uid: WorkflowUid(row.workflow_uid),
            version: Version(row.version),
        });
        let names = names.unwrap_or_default();
        self.names.insert(run, names.clone());
        names
    }
}
