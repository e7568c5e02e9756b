//! A node that believes to lead: it runs the production plans on its own view, however old, and proposes what they say.
//! Owns the loops of a leader; must not decide what the plans decide.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use clawhive_proto::command::Kind;
use clawhive_proto::{AssignTasks, ClawState, Command, FailTask, Grant, Reason, RenewLeases, Renewal};
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::plan::assign::AssignInput;
use clawhive_statemachine::{Touched, plan, read};

use super::profile::Effect;
use super::world::{Event, Reply, World};

/// The loops of a leader, each with at most one proposal under way (when patient).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loop {
    Assign,
    Expire,
    Checkpoint,
    Fire,
    Collect,
    Advance,
}

/// A heartbeat of a claw.
#[derive(Clone, Debug)]
pub struct Beat {
    pub claw: u64,
    pub from: usize,
    pub life: u32,
    pub incarnation: [u8; 16],
    /// Virtual time at which it was sent.
    pub sent_ms: u64,
}

/// What a leader knows beside its view.
pub struct Leader {
    /// Leases as it counts them, in virtual time: the monotonic clock of its machine.
    leases: plan::leases::Leases,
    /// Since when it leads, in virtual time; names this stay.
    pub since: u64,
    /// The newest heartbeat of each claw.
    beats: BTreeMap<u64, u64>,
    pending: Vec<Beat>,
    renewed_at: u64,
    under_way: BTreeSet<Loop>,
    /// Of the tick that counts; those scheduled before an earlier one are dropped.
    tick: u64,
    tick_at: u64,
}

impl Leader {
    /// Claws with a fresh heartbeat.
    fn live(&self, now: u64) -> BTreeSet<u64> {
        let fresh = self.beats.iter().filter(|(_, seen)| now.saturating_sub(**seen) < FRESH_MS);
        fresh.map(|(claw, _)| *claw).collect()
    }
}

/// A claw without a heartbeat for so long is given nothing.
const FRESH_MS: u64 = 3_000;
/// The longest sleep of a leader.
const TICK_MS: u64 = 250;

impl World {
    /// A node comes to believe that it leads.
    pub fn starts_leading(&mut self, node: usize) {
        let leader = Leader {
            leases: plan::leases::Leases::default(),
            since: self.now,
            beats: BTreeMap::new(),
            pending: Vec::new(),
            renewed_at: 0,
            under_way: BTreeSet::new(),
            tick: 0,
            tick_at: u64::MAX,
        };
        self.nodes[node].leader = Some(leader);
        self.leader_tick_in(node, 1);
    }

    fn leader_tick_in(&mut self, node: usize, delay: u64) {
        let (at, life) = (self.now + delay, self.nodes[node].life);
        let Some(leader) = &mut self.nodes[node].leader else { return };
        if leader.tick_at <= at {
            return;
        }
        leader.tick_at = at;
        leader.tick += 1;
        let number = leader.tick;
        self.after(delay, Event::LeaderTick { node, life, number });
    }

    /// The feed of a node's replica says that something changed.
    pub fn leader_wakes(&mut self, node: usize, touched: Touched) {
        let of = Touched::READY.with(Touched::CLAWS).with(Touched::TIMERS).with(Touched::BACKLOG);
        if touched.any(of) && self.nodes[node].leader.is_some() {
            let delay = self.rng.between(1, 5);
            self.leader_tick_in(node, delay);
        }
    }

    /// All loops of a leader, once.
    pub fn leader_tick(&mut self, node: usize, life: u32, number: u64) {
        let Some(at) = self.alive(node, life) else { return };
        let Some(leader) = at.leader.as_mut().filter(|leader| leader.tick == number) else { return };
        leader.tick_at = u64::MAX;
        let behind = self.log.len() as u64 - self.nodes[node].replica.applied;
        self.effects.count(Effect::PlannedOnOldView, u64::from(behind >= 10));
        self.renews(node, life);
        let plans = self.plans(node);
        for (which, kinds) in plans {
            let patient = self.calm || !self.profile.loops_impatient || !self.rng.chance(400);
            let leader = self.nodes[node].leader.as_mut();
            let Some(leader) = leader.filter(|leader| !(patient && leader.under_way.contains(&which))) else {
                continue;
            };
            leader.under_way.insert(which);
            let actor = format!("node:{}", self.nodes[node].id);
            self.propose(Vec::new(), actor, kinds, Reply::Loop { node, life, which });
        }
        self.leader_tick_in(node, TICK_MS);
    }

    /// What the leader adds to an entry of reports: the grants that their completions allow.
    pub fn grants_behind(&mut self, node: usize, reports: &[Command]) -> Vec<Command> {
        let at = &self.nodes[node];
        let Some(leader) = at.leader.as_ref().filter(|_| at.up) else { return Vec::new() };
        let live = leader.live(self.now);
        let input = AssignInput { live: &live, leader: at.id, limit: 32 };
        let grants = plan::handover::plan(&at.replica.store, reports, &input);
        self.effects.count(Effect::HandedOver, u64::from(!grants.is_empty()));
        let kinds = self.resolve(grants);
        kinds.into_iter().map(|kind| Command { kind: Some(kind) }).collect()
    }

    fn plans(&mut self, node: usize) -> Vec<(Loop, Vec<Kind>)> {
        let now_ms = self.clock(node);
        let limit = self.rng.between(1, 40) as usize;
        let now = self.now;
        let at = &mut self.nodes[node];
        let Some(leader) = &mut at.leader else { return Vec::new() };
        leader.leases.look(&at.replica.store, now);
        let at = &self.nodes[node];
        let Some(leader) = &at.leader else { return Vec::new() };
        let view = &at.replica.store;
        let live = leader.live(now);
        let mut plans = Vec::new();
        let grants =
            plan::assign::plan(view, &plan::assign::AssignInput { live: &live, leader: at.id, limit });
        if !grants.is_empty() {
            plans.push((Loop::Assign, self.resolve(grants)));
        }
        let expired: Vec<_> = leader.leases.expired(now).into_iter().map(Kind::ExpireClaw).collect();
        if !expired.is_empty() {
            plans.push((Loop::Expire, expired));
        }
        if let Some(left) = leader.leases.checkpoint(now) {
            plans.push((Loop::Checkpoint, vec![Kind::CheckpointLeases(left)]));
        }
        if let Some(fire) = plan::fire::plan(view, now_ms, limit).command {
            plans.push((Loop::Fire, vec![Kind::FireTimers(fire)]));
        }
        if let Some(collect) = plan::collect::plan(view, now_ms).command {
            plans.push((Loop::Collect, vec![Kind::Collect(collect)]));
        }
        if let Some(advance) = plan::advance::plan(view) {
            plans.push((Loop::Advance, vec![Kind::Advance(advance)]));
        }
        plans
    }

    /// Templates are resolved by the leader; one that does not resolve fails the task without an attempt.
    fn resolve(&self, grants: Vec<Grant>) -> Vec<Kind> {
        let mut kinds = Vec::new();
        let mut granted = Vec::new();
        for mut grant in grants {
            let graph = self.audit.graphs.get(&grant.run);
            let position = grant.task as usize;
            let Some(spec) = graph.and_then(|graph| graph.workflow.tasks.get(position)) else { continue };
            if graph.is_some_and(|graph| graph.unresolvable[position]) {
                let (run, task) = (grant.run, grant.task);
                let mut fail =
                    FailTask { run, task, message: "no such value".to_owned(), ..FailTask::default() };
                fail.set_reason(Reason::TemplateError);
                kinds.push(Kind::FailTask(fail));
                continue;
            }
            if spec.templated {
                grant.resolved = Some(spec.clone());
            }
            granted.push(grant);
        }
        if !granted.is_empty() {
            kinds.push(Kind::AssignTasks(AssignTasks { grants: granted }));
        }
        kinds
    }

    /// A loop's proposal was answered, or given up.
    pub fn loop_answered(&mut self, node: usize, which: Loop) {
        if let Some(leader) = &mut self.nodes[node].leader {
            leader.under_way.remove(&which);
            self.leader_tick_in(node, 1);
        }
    }

    /// A heartbeat reaches a node. One that does not lead drops it.
    pub fn beat_arrives(&mut self, node: usize, life: u32, beat: Beat) {
        let (head, lead) = (self.log.len() as u64, self.lead);
        let now = self.now;
        let Some(at) = self.alive(node, life) else { return };
        let Some(leader) = &mut at.leader else { return };
        let row = read::claw(&at.replica.store, ClawId(beat.claw));
        let (from, from_life) = (beat.from, beat.life);
        match row {
            Some(row) if row.incarnation == beat.incarnation && row.state() == ClawState::Active => {
                leader.beats.insert(beat.claw, now);
                if row.used == 0 && at.replica.applied == head && lead == Some(node) {
                    // Nothing is leased at the head of the log, so no lease can start before this beat was sent.
                    let sent_ms = beat.sent_ms;
                    self.say(Event::Confirmed { node: from, life: from_life, sent_ms });
                } else {
                    leader.pending.push(beat);
                }
            }
            _ => self.say(Event::Unknown { node: from, life: from_life }),
        }
        self.leader_tick_in(node, TICK_MS);
    }

    /// All heartbeats of a tick become one entry.
    fn renews(&mut self, node: usize, life: u32) {
        let now = self.now;
        let at = &mut self.nodes[node];
        let Some(leader) = at.leader.as_mut().filter(|leader| now >= leader.renewed_at + 200) else { return };
        if leader.pending.is_empty() {
            return;
        }
        leader.renewed_at = now;
        let beats = Rc::new(std::mem::take(&mut leader.pending));
        let renewals = beats
            .iter()
            .map(|beat| Renewal { claw: beat.claw, incarnation: beat.incarnation.to_vec() })
            .collect();
        let actor = format!("node:{}", at.id);
        let kind = Kind::RenewLeases(RenewLeases { renewals });
        self.propose(Vec::new(), actor, vec![kind], Reply::Renew { node, life, beats });
    }

    /// The renewals are committed and this node has applied them: claws that are still known may count on them.
    pub fn renewed(&mut self, node: usize, beats: &[Beat]) {
        for beat in beats {
            let row = read::claw(&self.nodes[node].replica.store, ClawId(beat.claw));
            let known = row
                .is_some_and(|row| row.incarnation == beat.incarnation && row.state() == ClawState::Active);
            let (node, life, sent_ms) = (beat.from, beat.life, beat.sent_ms);
            self.say(match known {
                true => Event::Confirmed { node, life, sent_ms },
                false => Event::Unknown { node, life },
            });
        }
    }

    /// Sends a message that may be lost.
    fn say(&mut self, event: Event) {
        if !self.lost() {
            let delay = self.delay();
            self.after(delay, event);
        }
    }
}
