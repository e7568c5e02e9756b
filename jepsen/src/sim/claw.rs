//! A claw: it watches its own assignments in its own replica, runs them in virtual time, renews its lease, stops its
//! processes when the lease runs out, and reports with the token it was given. Owns processes; must not look at the
//! log or another replica.

use std::collections::{BTreeMap, BTreeSet};

use clawhive_proto::command::Kind;
use clawhive_proto::{CompleteTask, FailTask, Reason, RegisterClaw, StartTask};
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::read;

use super::history::Fact;
use super::leader::Beat;
use super::profile::Effect;
use super::world::{Event, Reply, World};
use crate::rng::Rng;

/// Names a process: token, run, task.
pub type ProcessKey = (u64, u64, u32);

/// How a process ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Success,
    Failure(Reason, i32),
}

/// A process of a claw.
pub struct Process {
    attempt: u32,
    end: End,
    running: bool,
    stopping: bool,
    request: [u8; 16],
}

/// The claw of one node's process.
#[derive(Default)]
pub struct Claw {
    incarnation: [u8; 16],
    slots: u32,
    /// When the newest confirmed heartbeat was sent.
    confirmed_ms: Option<u64>,
    processes: BTreeMap<ProcessKey, Process>,
    /// Reported, but perhaps still in an old view.
    ended: BTreeSet<ProcessKey>,
    paused_until: u64,
    registering: bool,
}

impl Claw {
    /// A claw of a new process.
    pub fn new(rng: &mut Rng, slots: u32) -> Claw {
        Claw { incarnation: rng.id(), slots, ..Claw::default() }
    }

    fn lease_until(&self, lease_ms: u64) -> u64 {
        self.confirmed_ms.map_or(0, |sent| sent + lease_ms)
    }
}

impl World {
    fn paused(&self, node: usize) -> bool {
        self.nodes[node].claw.paused_until > self.now
    }

    /// Announces the claw, until it is answered.
    pub fn register(&mut self, node: usize, life: u32) {
        let lease_ms = self.profile.lease_ms;
        let paused_until = self.nodes[node].claw.paused_until;
        let Some(at) = self.alive(node, life) else { return };
        at.claw.registering = true;
        let kind = Kind::RegisterClaw(RegisterClaw {
            claw: at.id,
            incarnation: at.claw.incarnation.to_vec(),
            slots: at.claw.slots,
            lease_ms,
            ..RegisterClaw::default()
        });
        if self.now < paused_until {
            let delay = paused_until - self.now;
            return self.after(delay, Event::Register { node, life });
        }
        let actor = format!("node:{}", self.nodes[node].id);
        let request = self.rng.id().to_vec();
        self.propose(request, actor, vec![kind], Reply::Register { node, life });
    }

    /// The answer to a registration: registered, or try again.
    pub fn registered(&mut self, node: usize, life: u32, yes: bool) {
        if yes {
            self.nodes[node].claw.registering = false;
            self.claw_looks(node);
        } else {
            self.after(300, Event::Register { node, life });
        }
    }

    /// A leader does not know this claw: register again.
    pub fn unknown_claw(&mut self, node: usize, life: u32) {
        if self.alive(node, life).is_some_and(|at| !at.claw.registering) {
            self.register(node, life);
        }
    }

    /// A heartbeat each second, to whom the claw takes for the leader.
    pub fn beat_send(&mut self, node: usize, life: u32) {
        if self.alive(node, life).is_none() {
            return;
        }
        let next = self.rng.between(900, 1_100);
        self.after(next, Event::BeatSend { node, life });
        if self.paused(node) {
            return;
        }
        let believers: Vec<usize> =
            (0..self.nodes.len()).filter(|other| self.nodes[*other].leader.is_some()).collect();
        let to = match self.lead {
            Some(lead) if self.calm || self.rng.chance(700) => lead,
            _ if believers.is_empty() => return,
            _ => *self.rng.pick(&believers),
        };
        let at = &self.nodes[node];
        let beat =
            Beat { claw: at.id, from: node, life, incarnation: at.claw.incarnation, sent_ms: self.now };
        if !self.lost() {
            let delay = self.delay();
            let to_life = self.nodes[to].life;
            self.after(delay, Event::BeatArrives { node: to, life: to_life, beat });
        }
    }

    /// A renewal is confirmed: the lease runs from when the heartbeat was sent.
    pub fn confirmed(&mut self, node: usize, life: u32, sent_ms: u64) {
        let lease_ms = self.profile.lease_ms;
        let now = self.now;
        let Some(at) = self.alive(node, life) else { return };
        if at.claw.confirmed_ms.is_some_and(|known| known >= sent_ms) {
            return;
        }
        at.claw.confirmed_ms = Some(sent_ms);
        let (claw, incarnation, until_ms) = (at.id, at.claw.incarnation, sent_ms + lease_ms);
        self.judge.see(&Fact::LeaseTold { claw, incarnation: &incarnation, until_ms });
        let left = until_ms.saturating_sub(now);
        self.after(left, Event::LeaseCheck { node, life });
        self.claw_looks(node);
    }

    /// The lease may have run out: then every process is stopped before anyone else may start its task.
    pub fn lease_check(&mut self, node: usize, life: u32) {
        let (lease_ms, now) = (self.profile.lease_ms, self.now);
        let paused_until = self.nodes[node].claw.paused_until;
        let Some(at) = self.alive(node, life) else { return };
        if paused_until > now {
            return self.after(paused_until + 5 - now, Event::LeaseCheck { node, life });
        }
        if at.claw.lease_until(lease_ms) > now {
            return;
        }
        let stopped: Vec<ProcessKey> =
            at.claw.processes.iter().filter(|(_, process)| process.running).map(|(key, _)| *key).collect();
        self.effects.count(Effect::LeaseRanOut, stopped.len() as u64);
        for key in stopped {
            let reason = if self.rng.chance(500) { Reason::Signal } else { Reason::Cancelled };
            if let Some(process) = self.nodes[node].claw.processes.get_mut(&key) {
                process.end = End::Failure(reason, 9);
            }
            self.process_ends(node, life, key);
        }
    }

    /// Compares the assignments in the own replica with the processes: starts, stops, forgets.
    pub fn claw_looks(&mut self, node: usize) {
        let at = &self.nodes[node];
        if !at.up || self.paused(node) {
            return;
        }
        let (life, claw) = (at.life, ClawId(at.id));
        let view = &at.replica.store;
        let registered = read::claw(view, claw).is_some_and(|row| row.incarnation == at.claw.incarnation);
        // Before the own registration is applied, the view shows what an earlier process was given.
        let mut assigned = if registered { read::assignments_of(view, claw) } else { Vec::new() };
        let given: BTreeSet<ProcessKey> =
            assigned.iter().map(|(key, _)| (key.fence.0, key.run.0, key.task.0)).collect();
        let leased = at.claw.lease_until(self.profile.lease_ms) > self.now;
        let gone: Vec<ProcessKey> = at
            .claw
            .processes
            .iter()
            .filter(|(key, process)| process.running && !given.contains(*key))
            .map(|(key, _)| *key)
            .collect();
        self.nodes[node].claw.ended.retain(|key| given.contains(key));
        for key in gone {
            self.nodes[node].claw.processes.remove(&key);
            self.process_gone(key);
        }
        assigned.sort_by_key(|(key, _)| *key);
        for (key, row) in assigned {
            let key = (key.fence.0, key.run.0, key.task.0);
            let claw = &mut self.nodes[node].claw;
            match claw.processes.get_mut(&key) {
                Some(process) if row.stop && process.running && !process.stopping => {
                    process.stopping = true;
                    let grace = self.rng.between(1, 800);
                    let quick = self.rng.chance(200);
                    if !quick {
                        let process = self.nodes[node].claw.processes.get_mut(&key);
                        process.into_iter().for_each(|it| it.end = End::Failure(Reason::Cancelled, 15));
                    }
                    self.after(grace, Event::ProcessEnds { node, life, key });
                }
                Some(_) => {}
                None if leased && !claw.ended.contains(&key) => self.begin(node, life, key, row.attempt),
                None => {}
            }
        }
    }

    fn begin(&mut self, node: usize, life: u32, key: ProcessKey, attempt: u32) {
        let (fence, run, task) = key;
        let (end, lasts) = self.fate(run, task, attempt);
        let request = self.rng.id();
        let claw = self.nodes[node].id;
        self.note(format_args!("claw {claw} begins {run}/{task}#{attempt} f={fence}"));
        let process = Process { attempt, end, running: true, stopping: false, request };
        self.nodes[node].claw.processes.insert(key, process);
        self.judge.see(&Fact::Began { place: (run, task), fence, at_ms: self.now });
        if self.rng.chance(900) {
            let actor = format!("node:{}", self.nodes[node].id);
            let start = Kind::StartTask(StartTask { run, task, attempt, fence });
            let request = self.rng.id().to_vec();
            self.propose(request, actor, vec![start], Reply::None);
        }
        self.after(lasts, Event::ProcessEnds { node, life, key });
    }

    /// How an attempt goes depends on nothing but the seed and its name.
    fn fate(&self, run: u64, task: u32, attempt: u32) -> (End, u64) {
        let mut rng = Rng::of(self.seed, &[3, run, u64::from(task), u64::from(attempt)]);
        let graph = self.audit.graphs.get(&run);
        let longest = graph.map_or(1_000, |graph| graph.longest_ms);
        let doomed = graph.is_some_and(|graph| graph.doomed[task as usize]);
        let lasts = rng.between(1, longest);
        let may_fail = self.profile.tasks_fail && !graph.is_some_and(|graph| graph.healthy);
        if !(doomed || may_fail && rng.chance(120)) {
            return (End::Success, lasts);
        }
        match rng.below(6) {
            0 => (End::Failure(Reason::StartError, 0), 1),
            1 => (End::Failure(Reason::Signal, 11), lasts),
            2 => (End::Failure(Reason::Timeout, 0), longest),
            3 => (End::Failure(Reason::OutputError, 0), lasts),
            4 => (End::Failure(Reason::OutOfMemory, 0), lasts),
            _ => (End::Failure(Reason::Exit, rng.between(1, 255) as i32), lasts),
        }
    }

    fn process_gone(&mut self, key: ProcessKey) {
        self.judge.see(&Fact::Gone { place: (key.1, key.2), fence: key.0 });
    }

    /// A process ends; a claw that stands still sees it when it goes on.
    pub fn process_ends(&mut self, node: usize, life: u32, key: ProcessKey) {
        let (now, paused_until) = (self.now, self.nodes[node].claw.paused_until);
        let Some(at) = self.alive(node, life) else { return };
        let Some(process) = at.claw.processes.get_mut(&key).filter(|process| process.running) else { return };
        if paused_until > now {
            return self.after(paused_until - now, Event::ProcessEnds { node, life, key });
        }
        process.running = false;
        self.process_gone(key);
        self.send_report(node, life, key);
    }

    /// Reports how a process ended, under one request id until it is answered.
    pub fn send_report(&mut self, node: usize, life: u32, key: ProcessKey) {
        let Some(at) = self.alive(node, life) else { return };
        let Some(process) = at.claw.processes.get(&key) else { return };
        let ((fence, run, task), attempt) = (key, process.attempt);
        let kind = match process.end {
            End::Success => {
                let outputs_json = if task % 3 == 0 { "{\"n\":1}".to_owned() } else { String::new() };
                Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json })
            }
            End::Failure(reason, code) => {
                let exit_code = (reason == Reason::Exit).then_some(code);
                let signal = (reason == Reason::Signal).then_some(code);
                let mut fail =
                    FailTask { run, task, attempt, fence, exit_code, signal, ..FailTask::default() };
                fail.set_reason(reason);
                Kind::FailTask(fail)
            }
        };
        let (request, actor) = (process.request.to_vec(), format!("node:{}", at.id));
        self.propose(request, actor, vec![kind], Reply::Report { node, life, key });
    }

    /// A report was answered, whatever the answer: the process is over. Without an answer it is sent again.
    pub fn reported(&mut self, node: usize, life: u32, key: ProcessKey, answered: bool) {
        if !answered {
            let delay = self.rng.between(100, 1_000);
            return self.after(delay, Event::SendReport { node, life, key });
        }
        let claw = &mut self.nodes[node].claw;
        claw.processes.remove(&key);
        claw.ended.insert(key);
        self.claw_looks(node);
    }

    /// The claw stands still.
    pub fn pause_claw(&mut self, node: usize, for_ms: u64) {
        let life = self.nodes[node].life;
        self.nodes[node].claw.paused_until = self.now + for_ms;
        self.after(for_ms + 10, Event::ClawResumes { node, life });
    }

    /// The node is killed, and its processes with it.
    pub fn claw_dies(&mut self, node: usize) {
        let processes = std::mem::take(&mut self.nodes[node].claw.processes);
        for (key, _) in processes.iter().filter(|(_, process)| process.running) {
            self.process_gone(*key);
        }
    }
}
