//! The node as its own claw sees it: the local replica, proposals, beats to whoever leads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{
    ClawBeat, ClawBeatReply, Command, FrameKind, Outcome, Proposal, Reason, RegisterClaw, Task,
    claw_beat_reply,
};
use clawhive_raft::{Feed, Transport};
use clawhive_statemachine::ids::{ClawId, Fence, RunId, TaskIndex, Version, WorkflowUid};
use clawhive_statemachine::read::AssignmentKey;
use clawhive_statemachine::{Touched, names, read};

use crate::claw::{Assignment, BeatError, BeatReply, ClawDeps, ReportError, Work};
use crate::context::{Context, rejection};
use crate::{env, template};

/// How long a report may take before the claw tries again.
const REPORT: Duration = Duration::from_secs(5);

/// How long one beat may take, in which the leader commits a renewal.
const BEAT: Duration = Duration::from_secs(2);

pub(super) struct NodeClaw {
    ctx: Arc<Context>,
    feed: tokio::sync::Mutex<Feed>,
    draining: AtomicBool,
    /// Of the newest beat: an extra beat goes out when another node starts to lead.
    incarnation: Mutex<Option<[u8; 16]>>,
}

impl NodeClaw {
    pub(super) fn new(ctx: Arc<Context>) -> NodeClaw {
        let feed = tokio::sync::Mutex::new(ctx.replica.feed());
        NodeClaw { ctx, feed, draining: AtomicBool::new(false), incarnation: Mutex::new(None) }
    }

    /// From now on beats say that the claw wants nothing new.
    pub(super) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// A beat beside the claw's own ones, so that the leader knows at once what has changed. Its answer counts for
    /// nothing.
    pub(super) async fn extra_beat(&self) {
        let incarnation = *self.incarnation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(incarnation) = incarnation
            && let Err(error) = self.beat(incarnation).await
        {
            tracing::debug!(%error, "an extra beat is not answered");
        }
    }

    async fn ask_leader(&self, beat: &ClawBeat) -> Result<ClawBeatReply, BeatError> {
        let status = self.ctx.status();
        let leader = status.leader.ok_or_else(|| BeatError("no leader is known".to_owned()))?;
        if leader == self.ctx.me.node {
            return Ok(self.ctx.beats.beat(&self.ctx, beat.clone()).await);
        }
        let peer = self.ctx.peer(leader).ok_or_else(|| BeatError(format!("node {leader} has no address")))?;
        let payload = beat.encode_to_vec().into();
        let answer = self.ctx.links.call(&peer, FrameKind::ClawBeat, payload, BEAT).await;
        let answer = answer.map_err(|error| BeatError(error.to_string()))?;
        ClawBeatReply::decode(answer).map_err(|error| BeatError(error.to_string()))
    }
}

#[async_trait]
impl ClawDeps for NodeClaw {
    fn now_ms(&self) -> u64 {
        self.ctx.clock.now_ms()
    }

    fn new_incarnation(&self) -> [u8; 16] {
        env::random_id()
    }

    fn assignments(&self) -> Vec<Assignment> {
        let view = self.ctx.replica.view();
        let rows = read::assignments_of(&view, ClawId(self.ctx.me.node));
        rows.into_iter()
            .map(|(key, row)| Assignment {
                run: key.run.0,
                task: key.task.0,
                attempt: row.attempt,
                fence: key.fence.0,
                // Whatever stops the run, its attempts are given up as cancelled; the run says why.
                stop: row.stop.then_some(Reason::Cancelled),
            })
            .collect()
    }

    fn work(&self, assignment: &Assignment) -> Result<Option<Work>, String> {
        let view = self.ctx.replica.view();
        let (run, task) = (RunId(assignment.run), TaskIndex(assignment.task));
        let key = AssignmentKey { fence: Fence(assignment.fence), run, task };
        let Some(row) = read::assignment(&view, ClawId(self.ctx.me.node), key) else { return Ok(None) };
        let Some(run_row) = read::run(&view, run) else { return Ok(None) };
        let task = match row.resolved {
            Some(task) => task,
            None => {
                let (uid, version) = (WorkflowUid(run_row.workflow_uid), Version(run_row.version));
                let spec = read::spec(&view, uid, version, task).and_then(|spec| spec.task);
                spec.ok_or_else(|| format!("version {version} of the workflow has no task {task}"))?
            }
        };
        let run_deadline_ms = match run_row.timeout_ms {
            0 => None,
            timeout_ms => Some(run_row.created_at_ms.saturating_add(timeout_ms)),
        };
        let nominal_time = (run_row.nominal_ms > 0).then(|| names::time(run_row.nominal_ms));
        let (namespace, workflow) = (run_row.namespace, run_row.workflow);
        Ok(Some(Work { task, namespace, workflow, run_deadline_ms, nominal_time, ..Work::default() }))
    }

    async fn changed(&self) {
        if self.feed.lock().await.touched(Touched::ASSIGNMENTS).await.is_err() {
            // The replica has stopped; the claw is stopped with it.
            std::future::pending::<()>().await;
        }
    }

    async fn report(&self, commands: Vec<Command>) -> Result<Vec<Outcome>, ReportError> {
        let asked = commands.len();
        let proposal = Proposal { request_id: env::request_id().to_vec(), actor: self.ctx.actor(), commands };
        let committed = self.ctx.replica.propose(proposal, REPORT).await;
        let mut outcomes = committed.map_err(|error| ReportError(error.to_string()))?.outcomes;
        // The leader may have added grants of its own behind ours.
        outcomes.truncate(asked);
        Ok(outcomes)
    }

    async fn register(&self, registration: RegisterClaw) -> Result<u64, ReportError> {
        let proposal = Proposal {
            request_id: env::request_id().to_vec(),
            actor: self.ctx.actor(),
            commands: vec![Command { kind: Some(Kind::RegisterClaw(registration)) }],
        };
        let committed = self.ctx.replica.propose(proposal, REPORT).await;
        let committed = committed.map_err(|error| ReportError(error.to_string()))?;
        match committed.outcomes.first().and_then(rejection) {
            Some(rejection) => Err(ReportError(rejection.message.clone())),
            None => Ok(committed.log_index),
        }
    }

    async fn beat(&self, incarnation: [u8; 16]) -> Result<BeatReply, BeatError> {
        *self.incarnation.lock().unwrap_or_else(PoisonError::into_inner) = Some(incarnation);
        let beat = ClawBeat {
            claw: self.ctx.me.node,
            incarnation: incarnation.to_vec(),
            draining: self.draining.load(Ordering::Relaxed) || self.ctx.storage.trouble().is_some(),
            wall_ms: env::wall_ms(),
        };
        match self.ask_leader(&beat).await?.result {
            Some(claw_beat_reply::Result::Confirmed(_)) => Ok(BeatReply::Confirmed),
            Some(claw_beat_reply::Result::Unknown(_)) => Ok(BeatReply::Unknown),
            Some(claw_beat_reply::Result::NotLeader(_)) => Err(BeatError("it does not lead".to_owned())),
            Some(claw_beat_reply::Result::Error(error)) => Err(BeatError(error.message)),
            None => Err(BeatError("an empty answer".to_owned())),
        }
    }

    fn check_outputs(&self, task: &Task, written: &[u8]) -> Result<String, String> {
        template::check_outputs(task, written).map_err(|error| error.to_string())
    }
}
