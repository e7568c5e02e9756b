//! The work on one entry: reading and writing rows, with the hot ones (runs, claws) decoded and encoded once per
//! entry, the events of the entry, and the graph work it has freed.
//!
//! Must not: know a command.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use clawhive_proto::backlog_row::Kind as Backlog;
use clawhive_proto::bytes::Bytes;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    BacklogRow, ClawRow, ClusterRow, Event, EventBatch, EventKind, Meta, Reason, RejectionCode, RunRow,
    TaskRow,
};

use crate::halt::{Step, broken, rejected};
use crate::ids::{ClawId, RunId, TaskIndex, Version, WorkflowUid};
use crate::row::{self, SlimSpec};
use crate::{Halt, ReadStore, Store, Table, Touched, Value, key};

/// Rows of one table, decoded once and encoded once per entry.
struct Cache<R> {
    table: Table,
    rows: BTreeMap<u64, Cached<R>>,
}

struct Cached<R> {
    row: R,
    changed: bool,
}

impl<R: Message + Default> Cache<R> {
    fn new(table: Table) -> Self {
        Cache { table, rows: BTreeMap::new() }
    }

    /// Loads the row, when there is one.
    fn load(&mut self, store: &dyn ReadStore, id: u64) -> Result<bool, Halt> {
        if self.rows.contains_key(&id) {
            return Ok(true);
        }
        let Some(row) = row::load(store, self.table, &id.to_be_bytes())? else { return Ok(false) };
        self.rows.insert(id, Cached { row, changed: false });
        Ok(true)
    }

    fn flush(&mut self, store: &mut dyn Store) {
        for (id, cached) in &self.rows {
            if cached.changed {
                store.put(self.table, &id.to_be_bytes(), row::encode(&cached.row));
            }
        }
    }
}

/// See the module.
pub(crate) struct Work<'a> {
    store: &'a mut dyn Store,
    pub log_index: u64,
    /// The entry's time, never below that of an earlier entry.
    pub now: u64,
    pub meta: Meta,
    pub touched: Touched,
    /// Graph steps that this entry may still do.
    pub steps: u32,
    /// Graph work freed by this entry and not done yet; what is left at the end goes to the backlog.
    pub fresh: VecDeque<Backlog>,
    runs: Cache<RunRow>,
    claws: Cache<ClawRow>,
    events: Vec<Event>,
}

impl<'a> Work<'a> {
    pub fn new(store: &'a mut dyn Store, log_index: u64, now: u64, meta: Meta, steps: u32) -> Work<'a> {
        Work {
            store,
            log_index,
            now,
            meta,
            touched: Touched::NONE,
            steps,
            fresh: VecDeque::new(),
            runs: Cache::new(Table::Runs),
            claws: Cache::new(Table::Claws),
            events: Vec::new(),
        }
    }

    /// What the state may hold: see [`crate::level`].
    pub fn level(&self) -> u32 {
        self.meta.level.max(1)
    }

    /// For reading what is neither a run nor a claw: those may have changed in this entry.
    pub fn view(&self) -> &dyn ReadStore {
        self.store
    }

    pub fn raw(&self, table: Table, key: &[u8]) -> Option<Value> {
        self.store.get(table, key)
    }

    pub fn get<R: Message + Default>(&self, table: Table, key: &[u8]) -> Step<Option<R>> {
        Ok(row::load(self.store, table, key)?)
    }

    pub fn put(&mut self, table: Table, key: &[u8], row: &impl Message) {
        self.store.put(table, key, row::encode(row));
    }

    pub fn put_raw(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.store.put(table, key, Bytes::copy_from_slice(value));
    }

    pub fn delete(&mut self, table: Table, key: &[u8]) {
        self.store.delete(table, key);
    }

    /// True when the run exists.
    pub fn has_run(&mut self, run: RunId) -> Step<bool> {
        Ok(self.runs.load(self.store, run.0)?)
    }

    /// The run, or a rejection.
    pub fn known_run(&mut self, run: RunId) -> Step<&RunRow> {
        match self.has_run(run)? {
            true => self.run(run),
            false => rejected(RejectionCode::NotFound, alloc::format!("there is no run {run}")),
        }
    }

    /// A run that must exist.
    pub fn run(&mut self, run: RunId) -> Step<&RunRow> {
        self.runs.load(self.store, run.0)?;
        match self.runs.rows.get(&run.0) {
            Some(cached) => Ok(&cached.row),
            None => Err(broken(alloc::format!("run {run} is gone"))),
        }
    }

    /// A run that must exist, to be changed.
    pub fn run_mut(&mut self, run: RunId) -> Step<&mut RunRow> {
        self.runs.load(self.store, run.0)?;
        self.touched.add(Touched::RUNS);
        match self.runs.rows.get_mut(&run.0) {
            Some(cached) => {
                cached.changed = true;
                Ok(&mut cached.row)
            }
            None => Err(broken(alloc::format!("run {run} is gone"))),
        }
    }

    /// A new run, or none any more.
    pub fn put_run(&mut self, run: RunId, row: RunRow) {
        self.touched.add(Touched::RUNS);
        self.runs.rows.insert(run.0, Cached { row, changed: true });
    }

    pub fn delete_run(&mut self, run: RunId) {
        self.touched.add(Touched::RUNS);
        self.runs.rows.remove(&run.0);
        self.store.delete(Table::Runs, &key::run(run));
    }

    /// The claw, when it has ever registered.
    pub fn claw(&mut self, claw: ClawId) -> Step<Option<&ClawRow>> {
        self.claws.load(self.store, claw.0)?;
        Ok(self.claws.rows.get(&claw.0).map(|cached| &cached.row))
    }

    /// A claw that must exist, to be changed.
    pub fn claw_mut(&mut self, claw: ClawId) -> Step<&mut ClawRow> {
        self.claws.load(self.store, claw.0)?;
        match self.claws.rows.get_mut(&claw.0) {
            Some(cached) => {
                cached.changed = true;
                Ok(&mut cached.row)
            }
            None => Err(broken(alloc::format!("claw {claw} is gone"))),
        }
    }

    pub fn put_claw(&mut self, claw: ClawId, row: ClawRow) {
        self.claws.rows.insert(claw.0, Cached { row, changed: true });
    }

    /// The claw holds nothing any more.
    pub fn delete_claw(&mut self, claw: ClawId) {
        self.touched.add(Touched::CLAWS);
        self.claws.rows.remove(&claw.0);
        self.store.delete(Table::Claws, &key::claw(claw));
    }

    /// True in a restored cluster that was not resumed: nothing starts.
    pub fn suspended(&self) -> Step<bool> {
        let cluster: Option<ClusterRow> = self.get(Table::Cluster, &key::CLUSTER)?;
        Ok(cluster.is_some_and(|row| row.suspended))
    }

    /// A task that must exist.
    pub fn task(&self, run: RunId, task: TaskIndex) -> Step<TaskRow> {
        match self.get(Table::Tasks, &key::task(run, task))? {
            Some(row) => Ok(row),
            None => Err(broken(alloc::format!("task {task} of run {run} is gone"))),
        }
    }

    /// The task, or a rejection. The run must exist.
    pub fn known_task(&mut self, run: RunId, task: TaskIndex) -> Step<TaskRow> {
        if task.0 >= self.run(run)?.tasks {
            return rejected(RejectionCode::NotFound, alloc::format!("run {run} has no task {task}"));
        }
        self.task(run, task)
    }

    pub fn put_task(&mut self, run: RunId, task: TaskIndex, row: &TaskRow) {
        self.touched.add(Touched::RUNS);
        self.put(Table::Tasks, &key::task(run, task), row);
    }

    /// What the graph rules need of the definition of a task.
    pub fn spec(&mut self, run: RunId, task: TaskIndex) -> Step<SlimSpec> {
        let row = self.run(run)?;
        let (uid, version) = (WorkflowUid(row.workflow_uid), Version(row.version));
        Ok(SlimSpec::load(self.store, uid, version, task)?)
    }

    pub fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// An event about a run as a whole.
    pub fn run_event(&mut self, kind: EventKind, run: RunId, reason: Reason, detail: &str) {
        self.event(Event {
            kind: kind as i32,
            run: run.0,
            reason: reason as i32,
            detail: detail.to_string(),
            ..Event::default()
        });
    }

    /// An event about a task and its current attempt.
    pub fn task_event(&mut self, kind: EventKind, run: RunId, task: TaskIndex, row: &TaskRow) {
        self.event(Event {
            kind: kind as i32,
            run: run.0,
            task_plus_1: task.0 + 1,
            attempt: row.attempt,
            claw: row.claw,
            reason: row.reason,
            detail: String::new(),
            ..Event::default()
        });
    }

    /// As [`Work::task_event`], with a text.
    pub fn task_event_because(
        &mut self,
        kind: EventKind,
        run: RunId,
        task: TaskIndex,
        row: &TaskRow,
        detail: &str,
    ) {
        self.task_event(kind, run, task, row);
        if let Some(event) = self.events.last_mut() {
            event.detail = detail.to_string();
        }
    }

    /// Writes what was kept back until the end of the entry.
    pub fn finish(mut self, actor: &str) -> Touched {
        self.runs.flush(self.store);
        self.claws.flush(self.store);
        for kind in core::mem::take(&mut self.fresh) {
            let seq = self.meta.next_backlog;
            self.meta.next_backlog += 1;
            self.store.put(Table::Backlog, &key::backlog(seq), row::encode(&BacklogRow { kind: Some(kind) }));
            self.touched.add(Touched::BACKLOG);
        }
        if !self.events.is_empty() {
            self.touched.add(Touched::EVENTS);
            let runs: BTreeSet<u64> =
                self.events.iter().map(|event| event.run).filter(|run| *run > 0).collect();
            for run in runs {
                self.store.put(Table::RunEvents, &key::run_event(RunId(run), self.log_index), Value::new());
            }
            let batch = EventBatch { time_ms: self.now, actor: actor.to_string(), events: self.events };
            self.store.put(Table::Events, &key::event(self.log_index), row::encode(&batch));
        }
        self.meta.last_time_ms = self.now;
        self.store.put(Table::Meta, &key::META, row::encode(&self.meta));
        self.touched
    }
}
