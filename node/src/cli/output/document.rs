//! Views of the protocol as documents, with the fields that programs rely on. Numbers that can pass 2^53 are text.

use clawhive_node::definition::duration_text;
use clawhive_proto::schedule::When;
use clawhive_proto::{
    AttemptRow, AttemptState, AttemptView, ClusterStatusResponse, Diagnostic, EventView, Freshness,
    HealthFinding, ListNodesResponse, MissedPolicy, NodeView, OccurrenceView, Overlap, Reason, RunView,
    ScheduleView, TaskView,
};
use clawhive_statemachine::names;
use serde_json::{Map, Value, json};

use super::text::escape;
use super::time::rfc3339;

/// A run; with its tasks when the view has them.
pub(in crate::cli) fn run_json(view: &RunView) -> Value {
    let row = view.run.clone().unwrap_or_default();
    let schedule = match row.schedule_uid {
        0 => Value::Null,
        _ => json!(names::schedule(&row.namespace, &row.workflow, &row.schedule)),
    };
    let counts = view.counts.iter().map(|one| (names::task_state(one.state()), json!(one.count)));
    json!({
        "id": view.id.to_string(),
        "namespace": row.namespace,
        "workflow": row.workflow,
        "version": row.version,
        "state": names::run_state(row.state()),
        "reason": run_reason(row.reason()),
        "message": row.stop.as_ref().map_or(Value::Null, |stop| text(&stop.message)),
        "params": row.params.iter().map(|(name, value)| (name.clone(), json_or_text(value))).collect::<Map<_, _>>(),
        "labels": row.labels,
        "created_at": rfc3339(row.created_at_ms),
        "started_at": rfc3339(row.started_at_ms),
        "ended_at": rfc3339(row.ended_at_ms),
        "nominal_time": rfc3339(row.nominal_ms),
        "schedule": schedule,
        "idempotency_key": text(&row.idempotency_key),
        "log_index": row.log_index.to_string(),
        "task_count": row.tasks,
        "tasks_unfinished": row.unfinished,
        "tasks_failed": row.failed,
        "counts": counts.collect::<Map<_, _>>(),
        "tasks": view.tasks.iter().map(task_json).collect::<Value>(),
        "freshness": freshness_json(view.freshness.as_ref()),
    })
}

/// A task with its attempts.
pub(in crate::cli) fn task_json(task: &TaskView) -> Value {
    let row = task.row.clone().unwrap_or_default();
    json!({
        "name": task.name,
        "index": null,
        "state": names::task_state(row.state()),
        "reason": reason(row.reason()),
        "message": text(&row.message),
        "needs": task.needs,
        "outputs": if task.outputs_json.is_empty() { Value::Null } else { json_or_text(&task.outputs_json) },
        "max_attempts": task.max_attempts,
        "started_at": rfc3339(row.started_at_ms),
        "ended_at": rfc3339(row.ended_at_ms),
        "attempts": task.attempts.iter().map(attempt_json).collect::<Value>(),
    })
}

/// An attempt.
pub(in crate::cli) fn attempt_json(attempt: &AttemptView) -> Value {
    let row = attempt.row.clone().unwrap_or_default();
    // Success is exit code 0 by definition and is not stored.
    let exit_code = row.exit_code.or((row.state() == AttemptState::Succeeded).then_some(0));
    json!({
        "number": attempt.number,
        "state": names::attempt_state(row.state()),
        "reason": reason(row.reason()),
        "message": text(&row.message),
        "claw": row.claw.to_string(),
        "fence": row.fence.to_string(),
        "exit_code": exit_code,
        "signal": row.signal,
        "started_at": rfc3339(row.started_at_ms),
        "ended_at": rfc3339(row.ended_at_ms),
    })
}

/// A node.
pub(in crate::cli) fn node_json(node: &NodeView) -> Value {
    let row = node.row.clone().unwrap_or_default();
    json!({
        "id": node.id.to_string(),
        "listen": row.listen,
        "peer_listen": row.peer_listen,
        "role": node.role,
        "state": node.state,
        "leader": node.leader,
        "term": node.term,
        "applied_index": node.applied_index.to_string(),
        "slots": node.slots,
        "running": node.running,
        "labels": node.labels,
        "version": row.version,
        "digest": (node.digest_index > 0).then(|| json!({
            "log_index": node.digest_index.to_string(),
            "value": clawhive_node::identity::format_id(&node.digest),
        })),
        "health": node.health,
        "lag": node.lag.to_string(),
        "note": text(&node.note),
        "skew_ms": node.skew_ms,
    })
}

/// The nodes; `stale` without a quorum, when they are what the node asked knew at `applied_index`.
pub(in crate::cli) fn nodes_json(list: &ListNodesResponse) -> Value {
    json!({
        "freshness": freshness_json(list.freshness.as_ref()),
        "nodes": list.nodes.iter().map(node_json).collect::<Value>(),
    })
}

/// How a cluster is. Without a quorum it is an error as well.
pub(in crate::cli) fn health_json(status: &ClusterStatusResponse) -> Value {
    let node = |node: &NodeView| {
        json!({
            "id": node.id.to_string(),
            "role": node.role,
            "state": node.state,
            "health": node.health,
            "lag": node.lag.to_string(),
            "note": text(&node.note),
        })
    };
    let finding = |found: &HealthFinding| {
        json!({
            "code": found.code,
            "message": found.message,
            "help": text(&found.help),
            "node": if found.node == 0 { Value::Null } else { json!(found.node.to_string()) },
        })
    };
    let mut document = json!({
        "health": status.health,
        "cluster_id": status.cluster_id,
        "leader": if status.leader == 0 { Value::Null } else { json!(status.leader.to_string()) },
        "quorum": status.quorum,
        "voters": status.voters,
        "reachable": status.reachable,
        "tolerates": status.tolerates,
        "findings": status.findings.iter().map(finding).collect::<Value>(),
        "nodes": status.nodes.iter().map(node).collect::<Value>(),
    });
    if !status.quorum {
        let message = status.findings.first().map(|found| found.message.clone()).unwrap_or_default();
        document["error"] =
            json!({ "code": "no_quorum", "message": message, "may_have_been_applied": false });
    }
    document
}

/// A cluster, as the node asked sees it.
pub(in crate::cli) fn cluster_json(status: &ClusterStatusResponse) -> Value {
    json!({
        "cluster_id": status.cluster_id,
        "level": status.level,
        "leader": if status.leader == 0 { Value::Null } else { json!(status.leader.to_string()) },
        "term": status.term,
        "committed_index": status.committed_index.to_string(),
        "quorum": status.quorum,
        "voters": status.voters,
        "reachable": status.reachable,
        "tolerates": status.tolerates,
        "health": status.health,
        "changing": status.changing,
        "last_log_index": status.last_log_index.to_string(),
        "scheduler": status.scheduler,
        "answered_by": status.node.to_string(),
        "suspended": status.suspended,
        "nodes": status.nodes.iter().map(node_json).collect::<Value>(),
    })
}

/// A schedule, with the records of its occurrences.
pub(in crate::cli) fn schedule_json(view: &ScheduleView) -> Value {
    let (of, row) = (view.of.clone().unwrap_or_default(), view.row.clone().unwrap_or_default());
    let definition = row.definition.clone().unwrap_or_default();
    let (cron, every) = match &definition.when {
        Some(When::Cron(expression)) => (json!(expression), Value::Null),
        Some(When::EveryMs(ms)) => (Value::Null, json!(duration_text(*ms))),
        None => (Value::Null, Value::Null),
    };
    let missed = match definition.missed() {
        MissedPolicy::None => "none",
        MissedPolicy::Latest => "latest",
    };
    let window = match definition.missed_window_ms {
        0 => Value::Null,
        ms => json!(duration_text(ms)),
    };
    json!({
        "schedule": names::schedule(&of.namespace, &of.workflow, &of.schedule),
        "namespace": of.namespace,
        "workflow": of.workflow,
        "name": text(&of.schedule),
        "cron": cron,
        "every": every,
        "timezone": text(&definition.timezone),
        "overlap": if row.overlap() == Overlap::Skip { "skip" } else { "allow" },
        "missed": {"policy": missed, "window": window},
        "state": names::schedule_state(row.state()),
        "message": text(&row.message),
        "next_time": rfc3339(row.next_ms),
        "never_again": row.never,
        "fired": row.fired.to_string(),
        "skipped": row.skipped.to_string(),
        "active_runs": row.active,
        "last_run": if row.last_run == 0 { Value::Null } else { json!(row.last_run.to_string()) },
        "occurrences": view.occurrences.iter().map(occurrence_json).collect::<Value>(),
    })
}

fn occurrence_json(one: &OccurrenceView) -> Value {
    let row = one.row.clone().unwrap_or_default();
    json!({
        "nominal_time": rfc3339(one.nominal_ms),
        "run": if row.run == 0 { Value::Null } else { json!(row.run.to_string()) },
        "skipped": text(&names::skip_reason(row.skipped())),
        "detail": text(&row.detail),
        "until": rfc3339(row.last_ms),
        "count": row.count.to_string(),
        "recorded_at": rfc3339(row.recorded_at_ms),
    })
}

/// An event.
pub(in crate::cli) fn event_json(event: &EventView) -> Value {
    let number = |of: u64| if of == 0 { Value::Null } else { json!(of.to_string()) };
    json!({
        "log_index": event.log_index.to_string(),
        "time": rfc3339(event.time_ms),
        "kind": event.kind,
        "namespace": text(&event.namespace),
        "workflow": text(&event.workflow),
        "run": number(event.run),
        "task": text(&event.task),
        "attempt": if event.attempt == 0 { Value::Null } else { json!(event.attempt) },
        "claw": number(event.claw),
        "reason": text(&event.reason),
        "actor": event.actor,
        "detail": text(&event.detail),
    })
}

/// How new an answer is; null for a part of one.
pub(in crate::cli) fn freshness_json(freshness: Option<&Freshness>) -> Value {
    freshness.map_or(Value::Null, |freshness| {
        json!({
            "applied_index": freshness.applied_index.to_string(),
            "stale": freshness.stale,
            "age_ms": freshness.age_ms,
        })
    })
}

/// `stale: applied 123, up to 0.4 s old`.
pub(in crate::cli) fn stale_text(freshness: &Freshness) -> String {
    let age = match freshness.age_ms {
        // Rounded up: it is a promise.
        Some(age_ms) => {
            let tenths = age_ms.div_ceil(100);
            format!("up to {}.{} s old", tenths / 10, tenths % 10)
        }
        None => "of unknown age".to_owned(),
    };
    format!("stale: applied {}, {age}", freshness.applied_index)
}

/// A fault of a definition.
pub(in crate::cli) fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    json!({
        "code": diagnostic.code,
        "message": diagnostic.message,
        "help": text(&diagnostic.help),
        "line": diagnostic.line,
        "column": diagnostic.column,
        "path": text(&diagnostic.path),
        "offset": diagnostic.offset,
        "length": diagnostic.length,
    })
}

/// Why an attempt ended as it did, in words: `exit 3`, `signal 9`, `timeout`, and what there is to say besides.
pub(in crate::cli) fn why_text(attempt: &AttemptView) -> String {
    let row = attempt.row.clone().unwrap_or_default();
    let why = why_word(&row);
    // An exit and a signal say it all; their message would say it again.
    match row.message.as_str() {
        message if message.is_empty() || matches!(row.reason(), Reason::Exit | Reason::Signal) => why,
        message if why.is_empty() => escape(message),
        message => format!("{why}: {}", escape(message)),
    }
}

fn why_word(row: &AttemptRow) -> String {
    match (row.reason(), row.exit_code, row.signal) {
        (Reason::Exit, Some(code), _) => format!("exit {code}"),
        (Reason::Signal, _, Some(signal)) => format!("signal {signal}"),
        (Reason::Unspecified, ..) if row.state() == AttemptState::Failed => "failed".to_owned(),
        (reason, ..) => names::reason(reason),
    }
}

/// The reason of a run: a run timeout is `timeout`.
fn run_reason(of: Reason) -> Value {
    match of {
        Reason::RunTimeout => json!("timeout"),
        other => reason(other),
    }
}

fn reason(of: Reason) -> Value {
    text(&names::reason(of))
}

/// Null instead of the empty text.
fn text(of: &str) -> Value {
    if of.is_empty() { Value::Null } else { json!(of) }
}

/// A JSON text as its value; whatever is none, as text.
fn json_or_text(of: &str) -> Value {
    serde_json::from_str(of).unwrap_or_else(|_| json!(of))
}

#[cfg(test)]
mod tests;
