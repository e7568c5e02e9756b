//! Events, in the order of the log, without a gap: a place to go on from that is older than what is kept is an error, never
//! a jump. A reader that is slow is waited for, with one page of events in memory.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::{Event, EventBatch, EventKind, EventView, ListEventsRequest};
use clawhive_raft::{Feed, View};
use clawhive_statemachine::ids::{RunId, TaskIndex, Version, WorkflowUid};
use clawhive_statemachine::{ReadStore, Touched, names, read, state};
use futures::stream::StreamExt;
use tonic::Status;

use super::error::ApiError;
use super::{Items, check, runs, view};
use crate::context::Context;

/// How long the first look may wait for a quorum.
const FIRST_LOOK: Duration = Duration::from_millis(4_500);

/// Runs whose names are kept at once.
const NAMES: usize = 1_000;

/// While nothing matches, a reader that asked for it is told how far the search has come: after so many entries with
/// events, or when so much time has passed.
const SEARCHED: usize = 2 * read::EVENTS_PAGE;
const TELL_EVERY: Duration = Duration::from_secs(1);

struct Reading {
    ctx: Arc<Context>,
    feed: Feed,
    /// 0: of everything.
    run: RunId,
    wanted: Wanted,
    /// Everything up to here was searched.
    after: u64,
    follow: bool,
    /// Says how far the search has come, when asked to.
    progress: bool,
    /// What the reader knows to be searched, when it was told, and how many entries were searched since.
    told: u64,
    told_at: Duration,
    searched: usize,
    view: Option<View>,
    names: HashMap<u64, RunNames>,
    ready: VecDeque<EventView>,
    failed: bool,
}

/// Which events; what is empty does not matter.
struct Wanted {
    namespace: String,
    workflow: String,
    kinds: BTreeSet<i32>,
}

impl Wanted {
    fn of(request: &ListEventsRequest) -> Result<Wanted, ApiError> {
        for (what, name) in [("namespace", &request.namespace), ("workflow", &request.workflow)] {
            if !name.is_empty() {
                check::name_of(what, name)?;
            }
        }
        let kinds = request.kinds.iter().map(|kind| kind_of(kind)).collect::<Result<_, _>>()?;
        Ok(Wanted { namespace: request.namespace.clone(), workflow: request.workflow.clone(), kinds })
    }

    fn kind(&self, event: &Event) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&event.kind)
    }

    fn place(&self, event: &EventView) -> bool {
        (self.namespace.is_empty() || self.namespace == event.namespace)
            && (self.workflow.is_empty() || self.workflow == event.workflow)
    }
}

/// A kind by the word that people read.
fn kind_of(word: &str) -> Result<i32, ApiError> {
    let kind = EventKind::from_str_name(&format!("EVENT_KIND_{}", word.to_ascii_uppercase()));
    if let Some(kind) =
        kind.filter(|kind| *kind != EventKind::Unspecified && names::event_kind(*kind) == word)
    {
        return Ok(kind.into());
    }
    let known = (1..100).filter_map(|number| EventKind::try_from(number).ok()).map(names::event_kind);
    let near = known
        .map(|known| (strsim::jaro_winkler(&known, word), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = near.map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"));
    let word = &word[..word.floor_char_boundary(80)];
    Err(ApiError::invalid(format!("there is no kind of event {word:?}{hint}")))
}

/// Where a reader begins: after its own place, or with what is kept. An error when events between are gone.
fn start(view: &dyn ReadStore, run: RunId, after: u64) -> Result<u64, ApiError> {
    let compacted = read::compacted(view);
    // Of a run that began later nothing is gone.
    let younger = || read::run(view, run).is_some_and(|row| row.log_index > compacted);
    match after {
        0 => Ok(compacted),
        _ if after >= compacted || (run.0 != 0 && younger()) => Ok(after),
        _ => Err(ApiError::compacted(compacted)),
    }
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
    let wanted = Wanted::of(&request)?;
    let feed = ctx.replica.feed();
    let first = view(&ctx, false, FIRST_LOOK).await?;
    if run.0 != 0 && read::run(&first, run).is_none() {
        return Err(runs::unknown(run.0));
    }
    let after = start(&first, run, request.after_log_index)?;
    let told_at = ctx.clock.monotonic();
    let reading = Reading {
        ctx,
        feed,
        run,
        wanted,
        after,
        follow: request.follow,
        progress: request.progress,
        told: after,
        told_at,
        searched: 0,
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
            // While the reader was slow, events that it has not seen may have gone.
            if let Err(error) = start(&view, self.run, self.after) {
                self.failed = true;
                return Some(Err(error.into()));
            }
            if self.read_page(&view) {
                let enough = self.searched >= SEARCHED;
                match self.marker(enough) {
                    Some(marker) if self.ready.is_empty() => return Some(Ok(marker)),
                    // A long search is one of many things to do.
                    _ => tokio::task::yield_now().await,
                }
                continue;
            }
            self.after = self.after.max(view.applied_index());
            let last = !self.follow || self.run_has_ended(&view);
            if last {
                self.failed = true;
            }
            if let Some(marker) = self.marker(last) {
                return Some(Ok(marker));
            }
            if last {
                return None;
            }
            drop(view);
            if self.feed.touched(Touched::EVENTS).await.is_err() {
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
        self.searched += batches.len();
        for (log_index, batch) in batches {
            for event in &batch.events {
                if !self.wanted.kind(event) {
                    continue;
                }
                let event = self.shown(view, log_index, &batch, event);
                if self.wanted.place(&event) {
                    self.ready.push_back(event);
                }
            }
        }
        if let Some(event) = self.ready.back() {
            self.tell(event.log_index);
        }
        true
    }

    /// How far the search has come, when the reader wants to know and it is time to say so.
    fn marker(&mut self, now: bool) -> Option<EventView> {
        let due = now || self.ctx.clock.monotonic().saturating_sub(self.told_at) >= TELL_EVERY;
        if !self.progress || !due || !self.ready.is_empty() || self.after <= self.told {
            return None;
        }
        self.tell(self.after);
        Some(EventView { log_index: self.after, progress: true, ..EventView::default() })
    }

    fn tell(&mut self, log_index: u64) {
        (self.told, self.told_at, self.searched) = (log_index, self.ctx.clock.monotonic(), 0);
    }

    fn run_has_ended(&self, view: &View) -> bool {
        self.run.0 != 0 && read::run(view, self.run).is_none_or(|run| state::run_ended(run.state()))
    }

    fn shown(&mut self, view: &View, log_index: u64, batch: &EventBatch, event: &Event) -> EventView {
        let mut run = self.names_of(view, event.run);
        if event.run == 0 {
            (run.namespace, run.workflow) = names_in(event);
        }
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
            progress: false,
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

/// Namespace and workflow of an event that belongs to no run.
fn names_in(event: &Event) -> (String, String) {
    if event.kind() != EventKind::WorkflowPut {
        return (event.namespace.clone(), String::new());
    }
    // "namespace/name version 3"
    let name = event.detail.split(' ').next().unwrap_or_default();
    let (namespace, workflow) = name.split_once('/').unwrap_or_default();
    (namespace.to_owned(), workflow.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::command::Kind;
    use clawhive_proto::prost::Message;
    use clawhive_proto::{
        Collect, Command, Entry, ErrorCode, ErrorInfo, PutWorkflow, RaiseLevel, Task, Workflow, task,
    };
    use clawhive_statemachine::{MemStore, apply};

    const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

    fn run(store: &mut MemStore, index: u64, day: u64, kind: Kind) {
        let commands = vec![Command { kind: Some(kind) }];
        let entry = Entry { version: 1, time_ms: day * DAY_MS, commands, ..Entry::default() };
        apply(store, index, &entry).unwrap();
    }

    fn put(store: &mut MemStore, index: u64, day: u64) {
        let executor = Some(task::Executor::Run("true".into()));
        let tasks = vec![Task { name: "t".into(), executor, ..Task::default() }];
        let (namespace, name) = ("default".into(), format!("w{index}"));
        let workflow = Some(Workflow { namespace, name, tasks, ..Workflow::default() });
        let hash = index.to_be_bytes().to_vec();
        run(store, index, day, Kind::PutWorkflow(PutWorkflow { workflow, hash }));
    }

    #[test]
    fn a_place_before_what_is_kept_is_an_error_and_says_where() {
        let mut store = MemStore::new();
        let level = clawhive_statemachine::level::LEVEL;
        run(&mut store, 1, 1, Kind::RaiseLevel(RaiseLevel { level }));
        put(&mut store, 5, 1);
        put(&mut store, 6, 2);
        put(&mut store, 7, 20);
        assert_eq!(start(&store, RunId(0), 5).unwrap(), 5);
        run(&mut store, 8, 33, Kind::Collect(Collect { limit: 100 }));
        assert_eq!(read::compacted(&store), 6);
        assert_eq!(start(&store, RunId(0), 0).unwrap(), 6, "no place: what is kept");
        assert_eq!(start(&store, RunId(0), 6).unwrap(), 6);
        let status = Status::from(start(&store, RunId(0), 5).unwrap_err());
        assert!(status.message().starts_with("compacted at 6: "), "{status:?}");
        let info = ErrorInfo::decode(status.details()).unwrap();
        assert_eq!((info.code(), info.compacted_at), (ErrorCode::Compacted, 6));
        assert_eq!(read::events(&store, 6, 10).len(), 1);
    }

    #[test]
    fn kinds_are_words_and_a_wrong_one_names_the_nearest() {
        assert_eq!(kind_of("lock_acquired").unwrap(), EventKind::LockAcquired as i32);
        for bad in ["LOCK_ACQUIRED", "lock_aquired", "unspecified", ""] {
            assert!(kind_of(bad).is_err(), "{bad}");
        }
        let text = Status::from(kind_of("lock_aquired").unwrap_err()).message().to_owned();
        assert_eq!(text, "there is no kind of event \"lock_aquired\"; did you mean lock_acquired?");
    }
}
