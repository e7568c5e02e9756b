//! Fires schedules when they are due. Sleeps until the first one is, by the index of due times.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{Command, FireSchedule};
use clawhive_statemachine::ids::{Version, WorkflowUid};
use clawhive_statemachine::plan::schedule;
use clawhive_statemachine::{ReadStore, Touched, names, read};
use tokio::time::sleep;

use super::{Leadership, Over, over, pace};
use crate::calendar;
use crate::context::rejection;
use crate::definition::is_workflow_name;
use crate::template::{self, Moment};

/// Schedules in one entry, and their bytes.
const BATCH: usize = 200;
const BATCH_BYTES: usize = 1 << 20;

/// The loop looks up at least this often, so that `Health` can tell one that sleeps from one that hangs.
const LOOK_UP: Duration = Duration::from_secs(5);

/// The longest pause after plans that were refused.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(super) async fn run(leadership: Leadership) -> Over {
    report_old_names(&leadership.ctx.replica.view());
    match fire(&leadership).await {
        Ok(never) => match never {},
        Err(over) => over,
    }
}

async fn fire(leadership: &Leadership) -> Result<Infallible, Over> {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    let mut pause = Duration::ZERO;
    loop {
        feed.look();
        ctx.health.looked(ctx.clock.monotonic());
        let now_ms = ctx.clock.now_ms();
        let (commands, next_due_ms) = plan(&ctx.replica.view(), now_ms);
        if commands.is_empty() {
            let until = pace::until(now_ms, next_due_ms);
            tokio::select! {
                tick = feed.touched(Touched::SCHEDULES.with(Touched::WORKFLOWS)) => { tick?; }
                () = until => {}
                () = sleep(LOOK_UP) => {}
            }
            continue;
        }
        let planned = commands.len();
        match ctx.propose_leading(commands).await.map_err(over) {
            Ok(committed) => {
                let refused = committed.outcomes.iter().filter_map(rejection);
                let refused: Vec<&str> = refused.map(|rejection| rejection.message.as_str()).collect();
                // A plan that is stale is made again at once; one that is refused again and again must not spin.
                pause = match refused.len() == planned {
                    false => Duration::ZERO,
                    true => (pause * 2).clamp(Duration::from_millis(10), LONGEST_PAUSE),
                };
                if let Some(first) = refused.first() {
                    tracing::debug!(planned, refused = refused.len(), first, "schedules were not fired");
                }
            }
            Err(error) => {
                tracing::warn!(error = %error?, "firing schedules is not answered");
                pause = Duration::from_millis(50);
            }
        }
        if !pause.is_zero() {
            sleep(pause).await;
        }
    }
}

/// What to propose now, complete, and when the next one is due.
fn plan(view: &dyn ReadStore, now_ms: u64) -> (Vec<Command>, Option<u64>) {
    let plan = schedule::plan(view, now_ms, BATCH, &calendar::next);
    let mut commands = Vec::with_capacity(plan.commands.len());
    let mut bytes = 0;
    for mut kind in plan.commands {
        if let Kind::FireSchedule(fire) = &mut kind {
            give_params(view, fire, now_ms);
        }
        let command = Command { kind: Some(kind) };
        bytes += command.encoded_len();
        commands.push(command);
        // What is left over is planned again, on the state after this entry.
        if bytes >= BATCH_BYTES {
            break;
        }
    }
    (commands, plan.next_due_ms)
}

/// The parameters of the run: all defaults, of the occurrence.
fn give_params(view: &dyn ReadStore, fire: &mut FireSchedule, now_ms: u64) {
    let Some(of) = &fire.of else { return };
    let Some(workflow) = read::workflow(view, &of.namespace, &of.workflow) else { return };
    let version = read::version(view, WorkflowUid(workflow.uid), Version(fire.version));
    let header = version.and_then(|version| version.header).unwrap_or_default();
    let moment = Moment { created_at_ms: now_ms, nominal_time_ms: Some(fire.nominal_ms) };
    match template::resolve_params(&header, &BTreeMap::new(), moment) {
        Ok(params) => fire.params = params,
        Err(errors) => {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            fire.params_error = texts.join("; ");
        }
    }
}

/// Names that the rule of today would not take were stored by an older version. Their schedules go on; nobody is left
/// to wonder.
fn report_old_names(view: &dyn ReadStore) {
    for (of, _) in read::schedules(view, "", "") {
        if !is_workflow_name(&of.namespace) || !is_workflow_name(&of.workflow) {
            let schedule = names::schedule(&of.namespace, &of.workflow, &of.schedule);
            tracing::warn!(
                schedule,
                "this name breaks the rule that holds for new workflows; its schedule goes on all the same"
            );
        }
    }
}
