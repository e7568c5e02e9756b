//! Entries and outcomes in few words, for the trace.

use std::fmt::Write as _;

use clawhive_proto::command::Kind;
use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Entry, Outcome};

/// An entry with its outcomes on one line.
pub fn entry(entry: &Entry, outcomes: &[Outcome]) -> String {
    let mut line = format!("t={} {}", entry.time_ms, entry.actor);
    for (position, command) in entry.commands.iter().enumerate() {
        let outcome = outcomes.get(position).and_then(|outcome| outcome.kind.as_ref());
        // Writing to a String cannot fail.
        let _ = write!(
            line,
            " | {} -> {}",
            command.kind.as_ref().map_or_else(String::new, kind),
            answer(outcome)
        );
    }
    line
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::PutWorkflow(it) => {
            let workflow = it.workflow.as_ref();
            format!(
                "put {} ({} tasks)",
                workflow.map_or("", |w| &w.name),
                workflow.map_or(0, |w| w.tasks.len())
            )
        }
        Kind::SubmitRun(it) => format!("submit {}@{} key={}", it.workflow, it.version, it.idempotency_key),
        Kind::AssignTasks(it) => {
            let grants = it.grants.iter().map(|g| format!("{}/{}#{}@{}", g.run, g.task, g.attempt, g.claw));
            format!("assign {}", grants.collect::<Vec<_>>().join(","))
        }
        Kind::StartTask(it) => format!("start {}/{}#{} f={}", it.run, it.task, it.attempt, it.fence),
        Kind::CompleteTask(it) => format!("complete {}/{}#{} f={}", it.run, it.task, it.attempt, it.fence),
        Kind::FailTask(it) => {
            format!("fail {}/{}#{} f={} {:?}", it.run, it.task, it.attempt, it.fence, it.reason())
        }
        Kind::ExpireClaw(it) => format!("expire claw={} seq={}", it.claw, it.renew_seq),
        Kind::RegisterClaw(it) => {
            format!(
                "register claw={} slots={} inc={:02x}",
                it.claw,
                it.slots,
                it.incarnation.first().unwrap_or(&0)
            )
        }
        Kind::RenewLeases(it) => {
            format!("renew {:?}", it.renewals.iter().map(|renewal| renewal.claw).collect::<Vec<_>>())
        }
        Kind::CancelRun(it) => format!("cancel {}", it.run),
        Kind::FireTimers(it) => {
            let timers = it.timers.iter().map(|t| format!("{}/{}:{:?}", t.run, t.task, t.kind()));
            format!("fire {}", timers.collect::<Vec<_>>().join(","))
        }
        other => format!("{other:?}"),
    }
}

fn answer(answer: Option<&Answer>) -> String {
    match answer {
        None => "nothing".to_owned(),
        Some(Answer::Done(_)) => "done".to_owned(),
        Some(Answer::Rejected(rejection)) => format!("{:?}: {}", rejection.code(), rejection.message),
        Some(Answer::RunSubmitted(it)) => format!("run {} replayed={}", it.run, it.replayed),
        Some(Answer::Granted(it)) => format!("granted {} stale {}", it.granted, it.stale),
        Some(other) => format!("{other:?}"),
    }
}
