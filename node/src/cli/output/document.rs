//! Views of the protocol as documents, with the fields that programs rely on. Numbers that can pass 2^53 are text.

use clawhive_proto::{
    AttemptRow, AttemptState, AttemptView, ClusterStatusResponse, Diagnostic, EventView, Freshness, NodeView,
    Reason, RunView, TaskView,
};
use clawhive_statemachine::names;
use serde_json::{Map, Value, json};

use super::text::escape;
use super::time::rfc3339;

/// A run; with its tasks when the view has them.
pub(in crate::cli) fn run_json(view: &RunView) -> Value {
    let row = view.run.clone().unwrap_or_default();
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
        "nominal_time": null,
        "schedule": null,
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
        "skew_ms": node.skew_ms,
    })
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
        "answered_by": status.node.to_string(),
        "suspended": status.suspended,
        "nodes": status.nodes.iter().map(node_json).collect::<Value>(),
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
