//! Logs of attempts: read where they ran, from any node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use clawhive_proto::{AttemptLogRequest, AttemptRow, LogChunk, ReadLogsRequest, RunRow};
use clawhive_raft::{Feed, View};
use clawhive_statemachine::ids::{AttemptNumber, RunId, TaskIndex, Version, WorkflowUid};
use clawhive_statemachine::{Touched, read, state};
use futures::stream::{BoxStream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::error::ApiError;
use super::{Items, check, runs, view};
use crate::claw::LogQuery;
use crate::context::Context;

/// Between two tries to reach a node whose log is followed.
const REOPEN: std::time::Duration = std::time::Duration::from_millis(500);

/// How long the first look may wait for a quorum.
const FIRST_LOOK: Duration = Duration::from_millis(4_500);

/// Chunks on their way to a caller: memory is bounded, a slow caller slows the reading.
const AHEAD: usize = 16;

pub(super) async fn read(ctx: Arc<Context>, request: ReadLogsRequest) -> Result<Items<LogChunk>, ApiError> {
    let run = RunId(check::run_id(request.run)?);
    if !request.task.is_empty() {
        check::task_name(&request.task)?;
    }
    if request.attempt != 0 && request.task.is_empty() {
        return Err(ApiError::invalid("an attempt is named without its task"));
    }
    let first = view(&ctx, false, FIRST_LOOK).await?;
    let row = read::run(&first, run).ok_or_else(|| runs::unknown(run.0))?;
    let names = task_names(&first, &row);
    let wanted = match request.task.as_str() {
        "" => None,
        name => {
            let unknown = || ApiError::not_found(format!("run {run} has no task `{name}`"));
            let position = names.iter().position(|known| known == name).ok_or_else(unknown)?;
            Some(TaskIndex(u32::try_from(position).map_err(|_| unknown())?))
        }
    };
    if let Some(task) = wanted.filter(|_| request.attempt != 0)
        && !request.follow
        && read::attempt(&first, run, task, AttemptNumber(request.attempt)).is_none()
    {
        return Err(ApiError::not_found(format!(
            "task `{}` has no attempt {}",
            request.task, request.attempt
        )));
    }
    let resume =
        request.resume_from.iter().map(|place| ((place.task.clone(), place.attempt), place.offset)).collect();
    let (send, receive) = mpsc::channel(AHEAD);
    let feed = ctx.replica.feed();
    let reading = Reading {
        ctx,
        feed,
        run,
        names,
        wanted,
        attempt: request.attempt,
        follow: request.follow,
        tail_lines: request.tail_lines,
        resume,
        done: BTreeSet::new(),
        send,
    };
    tokio::spawn(reading.run(first));
    Ok(ReceiverStream::new(receive).boxed())
}

fn task_names(view: &View, row: &RunRow) -> Vec<String> {
    let specs = read::specs(view, WorkflowUid(row.workflow_uid), Version(row.version));
    specs.into_iter().map(|spec| spec.task.unwrap_or_default().name).collect()
}

/// One attempt whose log is to be shown.
struct Source {
    task: TaskIndex,
    number: u32,
    row: AttemptRow,
}

/// The caller is gone.
struct Gone;

struct Reading {
    ctx: Arc<Context>,
    feed: Feed,
    run: RunId,
    names: Vec<String>,
    wanted: Option<TaskIndex>,
    attempt: u32,
    follow: bool,
    tail_lines: u32,
    resume: BTreeMap<(String, u32), u64>,
    done: BTreeSet<(TaskIndex, u32)>,
    send: mpsc::Sender<Result<LogChunk, Status>>,
}

impl Reading {
    /// Shows one attempt after the other until there is no more, or the caller is gone.
    async fn run(mut self, first: View) {
        let mut view = first;
        loop {
            if let Some(source) = self.next(&view) {
                drop(view);
                self.done.insert((source.task, source.number));
                if self.show(&source).await.is_err() {
                    return;
                }
                view = self.ctx.replica.view();
                continue;
            }
            if !self.follow || self.is_over(&view) {
                return;
            }
            drop(view);
            tokio::select! {
                tick = self.feed.touched(Touched::RUNS) => if tick.is_err() {
                    let status = ApiError::unavailable("this node is shutting down").into();
                    // A caller that is gone needs no reason.
                    let _ = self.send.send(Err(status)).await;
                    return;
                },
                () = self.send.closed() => return,
            }
            view = self.ctx.replica.view();
        }
    }

    /// The attempt to show next: of those not shown yet, the one that was dispatched first.
    fn next(&self, view: &View) -> Option<Source> {
        let tasks = match self.wanted {
            Some(task) => vec![(task, read::task(view, self.run, task)?)],
            None => read::tasks(view, self.run),
        };
        let mut sources = Vec::new();
        for (task, row) in tasks {
            // Once an attempt of a task was shown, the later ones follow it; before, the newest one is meant.
            let shown = self.done.range((task, 0)..=(task, u32::MAX)).next_back().map(|(_, number)| *number);
            let number = match (self.attempt, shown) {
                (0, None) => row.attempt,
                (0, Some(shown)) if shown < row.attempt => shown + 1,
                (named, None) => named,
                (_, Some(_)) => continue,
            };
            if number == 0 {
                continue;
            }
            if let Some(row) = read::attempt(view, self.run, task, AttemptNumber(number)) {
                sources.push(Source { task, number, row });
            }
        }
        sources.into_iter().min_by_key(|source| (source.row.fence, source.task))
    }

    /// True when no attempt that could be shown is still to come.
    fn is_over(&self, view: &View) -> bool {
        let Some(run) = read::run(view, self.run) else { return true };
        let task_over =
            |task| read::task(view, self.run, task).is_none_or(|row| state::task_ended(row.state()));
        let named = self.attempt != 0 && !self.done.is_empty();
        named || state::run_ended(run.state()) || self.wanted.is_some_and(task_over)
    }

    async fn show(&mut self, source: &Source) -> Result<(), Gone> {
        let name = self.names.get(source.task.0 as usize).cloned().unwrap_or_default();
        let resumed = self.resume.get(&(name.clone(), source.number)).copied();
        let mut request = AttemptLogRequest {
            cluster_id: Vec::new(),
            run: self.run.0,
            task: source.task.0,
            attempt: source.number,
            offset: resumed.unwrap_or(0),
            follow: self.follow,
            tail_lines: if resumed.is_some() { 0 } else { self.tail_lines },
        };
        let unavailable = |unavailable: String| LogChunk {
            task: name.clone(),
            attempt: source.number,
            unavailable,
            ..LogChunk::default()
        };
        while let Err(reason) = self.copy(source, &name, &mut request).await? {
            // A node that is away may come back, and a follower waits for it as long as the attempt may go on.
            if !self.follow || self.has_ended(source) {
                return self.give(unavailable(reason)).await;
            }
            tokio::select! {
                () = tokio::time::sleep(REOPEN) => {}
                () = self.send.closed() => return Err(Gone),
            }
        }
        if self.follow {
            self.wait_for_end(source).await?;
        }
        Ok(())
    }

    /// Hands on what the claw's node has, and remembers in the request how far that was. Inner errors: it broke off.
    async fn copy(
        &self,
        source: &Source,
        name: &str,
        request: &mut AttemptLogRequest,
    ) -> Result<Result<(), String>, Gone> {
        let mut chunks = match open(&self.ctx, source.row.claw, request.clone()).await {
            Ok(chunks) => chunks,
            Err(reason) => return Ok(Err(reason)),
        };
        loop {
            let chunk = tokio::select! {
                chunk = chunks.next() => chunk,
                () = self.send.closed() => return Err(Gone),
            };
            match chunk {
                None => return Ok(Ok(())),
                Some(Ok(chunk)) => {
                    request.offset = request.offset.max(chunk.next_offset);
                    request.tail_lines = 0;
                    self.give(LogChunk { task: name.to_owned(), attempt: source.number, ..chunk }).await?;
                }
                Some(Err(status)) => {
                    return Ok(Err(format!("node {}: {}", source.row.claw, status.message())));
                }
            }
        }
    }

    fn has_ended(&self, source: &Source) -> bool {
        let row =
            read::attempt(&self.ctx.replica.view(), self.run, source.task, AttemptNumber(source.number));
        row.is_none_or(|row| state::attempt_ended(row.state()))
    }

    /// The log is closed a moment before the end of the attempt is known here: the next one is looked for after that.
    async fn wait_for_end(&mut self, source: &Source) -> Result<(), Gone> {
        loop {
            if self.has_ended(source) {
                return Ok(());
            }
            tokio::select! {
                tick = self.feed.touched(Touched::RUNS) => if tick.is_err() { return Err(Gone) },
                () = self.send.closed() => return Err(Gone),
            }
        }
    }

    async fn give(&self, chunk: LogChunk) -> Result<(), Gone> {
        self.send.send(Ok(chunk)).await.map_err(|_| Gone)
    }
}

/// The log of an attempt, from here or from the peer it ran on.
async fn open(
    ctx: &Arc<Context>,
    claw: u64,
    request: AttemptLogRequest,
) -> Result<BoxStream<'static, Result<LogChunk, Status>>, String> {
    if claw == ctx.me.node {
        return Ok(attempt_log(ctx.clone(), request));
    }
    let Some(peer) = ctx.peer(claw) else { return Err(format!("node {claw} is no longer a member")) };
    match ctx.links.read_attempt_log(&peer, request).await {
        Ok(chunks) => Ok(chunks.boxed()),
        Err(error) => Err(format!("node {claw} is not reachable ({error})")),
    }
}

/// The log of an attempt that ran on this node.
pub(crate) fn attempt_log(
    ctx: Arc<Context>,
    request: AttemptLogRequest,
) -> BoxStream<'static, Result<LogChunk, Status>> {
    let (send, receive) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        tokio::select! {
            read = copy(&ctx, request, &send) => if let Err(status) = read {
                // A caller that is gone needs no reason.
                let _ = send.send(Err(status)).await;
            },
            () = send.closed() => {}
        }
    });
    ReceiverStream::new(receive).boxed()
}

async fn copy(
    ctx: &Context,
    request: AttemptLogRequest,
    send: &mpsc::Sender<Result<LogChunk, Status>>,
) -> Result<(), Status> {
    let Some(logs) = ctx.logs.get().and_then(Weak::upgrade) else {
        return Err(ApiError::unavailable("the claw does not run").into());
    };
    if request.follow {
        started(ctx, &request).await?;
    }
    let query = LogQuery {
        run: request.run,
        task: request.task,
        attempt: request.attempt,
        offset: request.offset,
        follow: request.follow,
        tail_lines: request.tail_lines,
    };
    let fault = |error: crate::claw::LogError| Status::from(ApiError::internal(error.to_string()));
    let mut reader = logs.read(query).map_err(fault)?;
    while let Some(piece) = reader.next().await.map_err(fault)? {
        let chunk = LogChunk {
            stream: piece.stream.into(),
            time_ms: piece.time_ms,
            data: piece.data,
            next_offset: piece.next_offset,
            ..LogChunk::default()
        };
        if send.send(Ok(chunk)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Waits until the attempt has started: from then on its log is either open or closed for good.
async fn started(ctx: &Context, request: &AttemptLogRequest) -> Result<(), Status> {
    let mut feed = ctx.replica.feed();
    let key = (RunId(request.run), TaskIndex(request.task), AttemptNumber(request.attempt));
    loop {
        let stopped = feed.touched(Touched::RUNS).await.is_err();
        if stopped {
            return Err(ApiError::unavailable("this node is shutting down").into());
        }
        match read::attempt(&ctx.replica.view(), key.0, key.1, key.2) {
            // Not granted here yet: this replica is behind the caller's.
            None => {}
            Some(row) if row.started_at_ms == 0 && !state::attempt_ended(row.state()) => {}
            Some(_) => return Ok(()),
        }
    }
}
