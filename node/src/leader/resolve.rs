//! Fills the templates of a task that is about to be granted, from its run and the outputs of its upstreams.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::task::Executor;
use clawhive_proto::{Command, FailTask, Grant, Reason, RunRow, Task, TaskState};
use clawhive_statemachine::ids::{RunId, TaskIndex, Version, WorkflowUid};
use clawhive_statemachine::{ReadStore, read};

use crate::template::{self, Context, Moment, RunFacts, scan};

/// The largest resolved task: many of them have to fit into one entry, and one always must.
const MAX_RESOLVED_BYTES: usize = 1 << 20;

/// What became of a planned grant.
pub(super) enum Resolved {
    /// Ready to be proposed.
    Grant(Grant),
    /// A template has no value: the task fails without an attempt.
    Fail(FailTask),
}

/// Resolves a planned grant. `reports` travel in front of it in the same entry: their outputs count as written.
pub(super) fn grant(view: &dyn ReadStore, mut grant: Grant, reports: &[Command]) -> Resolved {
    let (run, index) = (RunId(grant.run), TaskIndex(grant.task));
    // A plan that is stale to this degree is refused by apply.
    let Some(row) = read::run(view, run) else { return Resolved::Grant(grant) };
    let Some(task) = spec(view, &row, index).filter(|task| task.templated) else {
        return Resolved::Grant(grant);
    };
    let context = Context {
        run: RunFacts {
            id: run.0,
            workflow: row.workflow.clone(),
            namespace: row.namespace.clone(),
            moment: Moment {
                created_at_ms: row.created_at_ms,
                nominal_time_ms: (row.nominal_ms > 0).then_some(row.nominal_ms),
            },
        },
        params: row.params.clone(),
        outputs: outputs(view, run, &row, &task, reports),
        attempt: grant.attempt,
    };
    let message = match template::resolve_task(&task, &context) {
        Ok(resolved) if resolved.encoded_len() <= MAX_RESOLVED_BYTES => {
            grant.resolved = Some(resolved);
            return Resolved::Grant(grant);
        }
        Ok(resolved) => {
            let bytes = resolved.encoded_len();
            format!(
                "with its templates resolved the task has {bytes} bytes; the limit is {MAX_RESOLVED_BYTES}"
            )
        }
        Err(error) => error.to_string(),
    };
    Resolved::Fail(FailTask {
        run: run.0,
        task: index.0,
        reason: Reason::TemplateError.into(),
        message: message[..message.floor_char_boundary(1_000)].to_owned(),
        ..FailTask::default()
    })
}

fn spec(view: &dyn ReadStore, row: &RunRow, task: TaskIndex) -> Option<Task> {
    read::spec(view, WorkflowUid(row.workflow_uid), Version(row.version), task).and_then(|spec| spec.task)
}

/// The outputs that the templates of a task can name: of tasks upstream at any distance, nearest first, until all that
/// are named were found.
fn outputs(
    view: &dyn ReadStore,
    run: RunId,
    row: &RunRow,
    task: &Task,
    reports: &[Command],
) -> BTreeMap<String, String> {
    let Some(mut wanted) = Wanted::of(task) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut queue: VecDeque<u32> = task.needs.iter().copied().collect();
    while let Some(position) = queue.pop_front() {
        if !seen.insert(position) {
            continue;
        }
        let index = TaskIndex(position);
        let Some(upstream) = spec(view, row, index) else { continue };
        if wanted.takes(&upstream.name)
            && let Some(json) = outputs_of(view, run, index, reports)
        {
            found.insert(upstream.name.clone(), json);
        }
        if wanted.is_empty() {
            break;
        }
        queue.extend(upstream.needs);
    }
    found
}

/// None when the task has not succeeded.
fn outputs_of(view: &dyn ReadStore, run: RunId, task: TaskIndex, reports: &[Command]) -> Option<String> {
    let reported = reports.iter().find_map(|command| match &command.kind {
        Some(Kind::CompleteTask(report)) if report.run == run.0 && report.task == task.0 => Some(report),
        _ => None,
    });
    if let Some(report) = reported {
        return Some(report.outputs_json.clone());
    }
    let row = read::task(view, run, task)?;
    (row.state() == TaskState::Succeeded).then(|| read::outputs(view, run, task).unwrap_or_default())
}

/// Tasks whose outputs are named.
enum Wanted {
    /// These, and no more.
    Names(BTreeSet<String>),
    /// A name is computed: it could be any.
    Any,
}

impl Wanted {
    /// None when no output is named at all.
    fn of(task: &Task) -> Option<Wanted> {
        let mut names = BTreeSet::new();
        for text in texts(task) {
            for reference in scan::references(text).into_iter().filter(|reference| reference.root == "tasks")
            {
                match reference.path.first() {
                    Some(name) => names.insert(name.to_string()),
                    None => return Some(Wanted::Any),
                };
            }
        }
        if names.is_empty() { None } else { Some(Wanted::Names(names)) }
    }

    /// Whether the outputs of this task are wanted; a name is wanted once.
    fn takes(&mut self, name: &str) -> bool {
        match self {
            Wanted::Names(names) => names.remove(name),
            Wanted::Any => true,
        }
    }

    fn is_empty(&self) -> bool {
        matches!(self, Wanted::Names(names) if names.is_empty())
    }
}

/// Every text of a task that may hold a template.
fn texts(task: &Task) -> impl Iterator<Item = &str> {
    let process = match &task.executor {
        Some(Executor::Process(process)) => Some(process),
        _ => None,
    };
    let words = process.into_iter().flat_map(|process| process.command.iter().chain([&process.working_dir]));
    words.chain(task.env.iter().map(|variable| &variable.value)).map(String::as_str)
}
