//! Gives ready tasks to claws with a free slot.

use std::collections::BTreeSet;
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{AssignTasks, ClawRow, ClawState, Command, outcome};
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::plan::assign::{self, AssignInput};
use clawhive_statemachine::{ReadStore, Touched, read};

use super::resolve::{self, Resolved};
use super::{Leadership, Over, over, pace};

/// Grants in one entry: enough to fill many claws, few enough that the next entry is not held up.
const BATCH: usize = 500;

/// Bytes of resolved tasks in one entry.
const BATCH_BYTES: usize = 1 << 20;

/// A new leader waits so long for the claws to be heard of, before it gives everything to its own.
const GREETINGS: Duration = Duration::from_millis(100);

pub(super) async fn run(leadership: Leadership) -> Over {
    match schedule(&leadership).await {
        Ok(never) => match never {},
        Err(over) => over,
    }
}

async fn schedule(leadership: &Leadership) -> Result<std::convert::Infallible, Over> {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    // Out of time means: some claw is not there, and the others are.
    let _ = tokio::time::timeout(GREETINGS, all_heard_of(leadership)).await;
    loop {
        feed.look();
        let seen_beats = ctx.beats.arrivals();
        while assign_once(leadership).await? {}
        tokio::select! {
            tick = feed.touched(Touched::READY.with(Touched::CLAWS)) => { tick?; }
            () = ctx.beats.newcomer(seen_beats) => {}
        }
    }
}

/// Returns when every claw that could be given work was heard of.
async fn all_heard_of(leadership: &Leadership) {
    let ctx = &leadership.ctx;
    loop {
        let seen = ctx.beats.arrivals();
        let view = ctx.replica.view();
        let live = ctx.beats.live(&view, ctx.clock.monotonic());
        let silent =
            |(id, row): &(ClawId, ClawRow)| row.state() == ClawState::Active && !live.contains(&id.0);
        if !read::claws(&view).iter().any(silent) {
            return;
        }
        drop(view);
        ctx.beats.newcomer(seen).await;
    }
}

/// Plans once and proposes what came out. True when it is worth to plan again at once.
async fn assign_once(leadership: &Leadership) -> Result<bool, Over> {
    let ctx = &leadership.ctx;
    let view = ctx.replica.view();
    let live: BTreeSet<u64> = ctx.beats.live(&view, ctx.clock.monotonic());
    let input = AssignInput { live: &live, leader: ctx.me.node, limit: BATCH };
    let grants = assign::plan(&view, &input);
    if grants.is_empty() {
        return Ok(false);
    }
    let planned = grants.len();
    let commands = commands(&view, grants);
    match ctx.propose_leading(commands).await.map_err(over) {
        Ok(committed) => {
            let taken = committed.outcomes.iter().any(|outcome| match &outcome.kind {
                Some(outcome::Kind::Granted(granted)) => granted.granted > 0,
                Some(outcome::Kind::Done(_)) => true,
                _ => false,
            });
            tracing::debug!(planned, taken, log_index = committed.log_index, "assigned");
            // When nothing of a plan was taken the state has changed, and the feed says so.
            Ok(taken)
        }
        Err(error) => {
            tracing::warn!(error = %error?, "an assignment is not answered");
            pace::breathe().await;
            Ok(true)
        }
    }
}

/// The grants with their templates resolved; a task whose template does not resolve fails instead.
fn commands(view: &dyn ReadStore, grants: Vec<clawhive_proto::Grant>) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut taken = Vec::with_capacity(grants.len());
    let mut bytes = 0;
    for grant in grants {
        match resolve::grant(view, grant, &[]) {
            Resolved::Grant(grant) => {
                bytes += grant.resolved.as_ref().map_or(0, Message::encoded_len);
                taken.push(grant);
            }
            Resolved::Fail(fail) => commands.push(Command { kind: Some(Kind::FailTask(fail)) }),
        }
        // What is left over is planned again, on the state after this entry.
        if bytes >= BATCH_BYTES {
            break;
        }
    }
    if !taken.is_empty() {
        commands.push(Command { kind: Some(Kind::AssignTasks(AssignTasks { grants: taken })) });
    }
    commands
}
