//! Stores a version of a workflow: its head, and a row per task with those that need it. Unchanged: stores nothing.

use alloc::vec::Vec;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{
    Event, EventKind, PutWorkflow, RejectionCode, SpecRow, VersionRow, Workflow, WorkflowPut, WorkflowRow,
};

use crate::command::valid;
use crate::graph::check;
use crate::halt::{Step, rejected};
use crate::ids::{TaskIndex, Version, WorkflowUid};
use crate::work::Work;
use crate::{Table, Touched, key, schedule};

pub(crate) fn apply(work: &mut Work<'_>, command: &PutWorkflow) -> Step<Answer> {
    let Some(workflow) = &command.workflow else {
        return rejected(RejectionCode::Invalid, "there is no workflow in the command");
    };
    if command.hash.is_empty() {
        return rejected(RejectionCode::Invalid, "a workflow needs its hash");
    }
    valid(check::name("the namespace", &workflow.namespace))?;
    valid(check::name("the workflow's name", &workflow.name))?;
    let name_key = key::workflow(&workflow.namespace, &workflow.name);
    let known: Option<WorkflowRow> = work.get(Table::Workflows, &name_key)?;
    if let Some(known) = known.as_ref().filter(|known| known.latest_hash == command.hash) {
        let unchanged = WorkflowPut { version: known.latest_version, created: false };
        // A submit may have stored it before.
        if command.set_schedules {
            valid(check::schedules(workflow))?;
            schedule::sync(work, workflow)?;
        }
        return Ok(Answer::WorkflowPut(unchanged));
    }
    let graph = valid(check::workflow(workflow))?;

    let uid = known.as_ref().map_or(work.meta.next_workflow, |known| known.uid);
    if known.is_none() {
        work.meta.next_workflow += 1;
    }
    let version = known.map_or(1, |known| known.latest_version + 1);
    let row = WorkflowRow { uid, latest_version: version, latest_hash: command.hash.clone() };
    work.put(Table::Workflows, &name_key, &row);
    let (uid, version) = (WorkflowUid(uid), Version(version));
    let head = VersionRow {
        header: Some(header(workflow)),
        hash: command.hash.clone(),
        created_at_ms: work.now,
        tasks: workflow.tasks.len() as u32,
        edges: graph.edges,
    };
    work.put(Table::Versions, &key::version(uid, version), &head);
    for (index, (task, dependents)) in workflow.tasks.iter().zip(graph.dependents).enumerate() {
        let key = key::spec(uid, version, TaskIndex(index as u32));
        work.put(Table::Specs, &key, &SpecRow { task: Some(task.clone()), dependents });
    }
    work.touched.add(Touched::WORKFLOWS);
    work.event(Event {
        kind: EventKind::WorkflowPut as i32,
        detail: alloc::format!("{}/{} version {version}", workflow.namespace, workflow.name),
        ..Event::default()
    });
    if command.set_schedules {
        schedule::sync(work, workflow)?;
    }
    Ok(Answer::WorkflowPut(WorkflowPut { version: version.0, created: true }))
}

/// The workflow without its tasks.
fn header(workflow: &Workflow) -> Workflow {
    Workflow {
        namespace: workflow.namespace.clone(),
        name: workflow.name.clone(),
        title: workflow.title.clone(),
        labels: workflow.labels.clone(),
        params: workflow.params.clone(),
        priority: workflow.priority,
        max_parallel: workflow.max_parallel,
        timeout_ms: workflow.timeout_ms,
        on_failure: workflow.on_failure,
        tasks: Vec::new(),
        schedules: workflow.schedules.clone(),
        overlap: workflow.overlap,
    }
}
