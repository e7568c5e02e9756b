//! The faults of a seed, drawn one after the other until chaos ends; and the end of all faults. Owns when what breaks;
//! what a fault does to an actor stands with the actor.

use super::claw::Claw;
use super::profile::Effect;
use super::world::{Event, World};

impl World {
    /// Draws a fault and the time of the next one.
    pub fn fault(&mut self) {
        if self.calm {
            return;
        }
        let pause = self.rng.between(100, 2 * self.profile.pause_ms);
        self.after(pause, Event::Fault);
        let node = self.rng.index(self.nodes.len());
        let profile = self.profile.clone();
        match self.rng.below(5) {
            0 if profile.leaders_change => self.elect(),
            1 if profile.nodes_crash && self.nodes[node].up => self.crash(node),
            2 if profile.clocks_jump => self.clock_jumps(node),
            3 if profile.replicas_lag => {
                let until = self.now + self.rng.between(500, 20_000);
                self.note(format_args!("node {} lags until {until}", node + 1));
                self.nodes[node].lags_until = until;
            }
            4 if profile.claws_pause && self.nodes[node].up => {
                let pause = self.rng.between(500, 30_000);
                self.note(format_args!("claw of node {} stands still for {pause} ms", node + 1));
                self.pause_claw(node, pause);
            }
            _ => {}
        }
    }

    /// Another node that is up leads from now on. The one before may not know it for a while.
    pub fn elect(&mut self) {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].up).collect();
        if up.is_empty() {
            self.after(500, Event::Elect);
            return;
        }
        let next = *self.rng.pick(&up);
        if self.lead == Some(next) {
            return;
        }
        if let Some(old) = self.lead {
            let since = self.nodes[old].leader.as_ref().map_or(0, |leader| leader.since);
            let lingers = match !self.calm && self.profile.leaders_overlap {
                true => self.rng.between(1, 20_000),
                false => 0,
            };
            let life = self.nodes[old].life;
            if lingers == 0 {
                self.nodes[old].leader = None;
            } else {
                self.after(lingers, Event::StepDown { node: old, life, since });
            }
            self.effects.count(Effect::LeaderChanged, 1);
        }
        self.note(format_args!("node {} leads", next + 1));
        self.lead = Some(next);
        self.starts_leading(next);
    }

    /// A deposed leader finds out.
    pub fn step_down(&mut self, node: usize, life: u32, since: u64) {
        let leads = self.lead == Some(node);
        let Some(at) = self.alive(node, life) else { return };
        if !leads && at.leader.as_ref().is_some_and(|leader| leader.since == since) {
            at.leader = None;
        }
    }

    fn clock_jumps(&mut self, node: usize) {
        let far = match self.rng.below(10) {
            0 => 3_600_000,
            1..4 => 120_000,
            _ => 5_000,
        };
        let jump = self.rng.between(0, 2 * far) as i64 - far as i64;
        let at = &mut self.nodes[node];
        at.clock_offset_ms = (at.clock_offset_ms + jump).clamp(-3_600_000, 3_600_000);
        self.note(format_args!("the clock of node {} jumps by {jump} ms", node + 1));
    }

    /// kill -9: the process, its claw and what was applied since the snapshot are gone.
    fn crash(&mut self, node: usize) {
        self.claw_dies(node);
        let at = &mut self.nodes[node];
        let replays = at.replica.applied - at.snapshot.applied;
        at.up = false;
        at.leader = None;
        at.life += 1;
        at.applying = false;
        at.waiting.clear();
        at.replica = at.snapshot.clone();
        self.effects.count(Effect::ReplayedAfterCrash, u64::from(replays > 0));
        self.note(format_args!("node {} is killed, will replay {replays} entries", node + 1));
        let down = self.rng.between(100, 15_000);
        self.after(down, Event::Restart { node });
        if self.lead == Some(node) {
            self.lead = None;
            self.effects.count(Effect::LeaderChanged, 1);
            let election = self.rng.between(300, 2_000);
            self.after(election, Event::Elect);
        }
    }

    /// A node comes up: it replays, registers its claw anew, and sends heartbeats.
    pub fn start(&mut self, node: usize) {
        let narrow = self.profile.narrow;
        let at = &mut self.nodes[node];
        if at.up {
            return;
        }
        at.up = true;
        at.lags_until = 0;
        let life = at.life;
        let slots = if narrow { 1 } else { self.rng.between(1, 4) as u32 };
        self.nodes[node].claw = Claw::new(&mut self.rng, slots);
        self.note(format_args!("node {} starts with {slots} slots", node + 1));
        let delay = self.rng.between(1, 50);
        self.after(delay, Event::Apply { node, life });
        self.nodes[node].applying = true;
        self.after(delay + 20, Event::Register { node, life });
        self.after(delay + 60, Event::BeatSend { node, life });
        self.after(2_000, Event::Snapshot { node, life });
    }

    /// What the node holds becomes what it would fall back to.
    pub fn snapshot(&mut self, node: usize, life: u32) {
        if !self.profile.nodes_crash || self.calm {
            return;
        }
        let next = self.rng.between(1_000, 30_000);
        let Some(at) = self.alive(node, life) else { return };
        if at.replica.applied > at.snapshot.applied + 50 {
            at.snapshot = at.replica.clone();
        }
        self.after(next, Event::Snapshot { node, life });
    }

    /// All faults end: nodes come up, claws go on, one leader leads, nothing is lost any more.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.note(format_args!("all faults end"));
        for node in 0..self.nodes.len() {
            self.start(node);
            self.nodes[node].lags_until = 0;
            if self.lead != Some(node) {
                self.nodes[node].leader = None;
            }
        }
        if self.lead.is_none() {
            self.after(300, Event::Elect);
        }
        self.succeeded_in_chaos = self.audit.tasks_succeeded;
        self.client_checks();
    }
}
