//! The simulated world: virtual time, the queue of events, one ordered log, and the messages on their way to it. Owns
//! time and order; the actors (leaders, claws, clients, faults) are files of their own that work on it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use clawhive_proto::{Command, Entry, Outcome, command::Kind};

use super::audit::Audit;
use super::claw::{Claw, ProcessKey};
use super::client::Clients;
use super::history::Fact;
use super::invariants::Judge;
use super::leader::{Beat, Leader, Loop};
use super::profile::{Effect, Effects, Profile};
use super::replica::Replica;
use super::trace::Trace;
use crate::rng::Rng;

/// Where wall clocks start.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// A write on its way to the log.
pub struct Proposal {
    pub request: Vec<u8>,
    pub actor: String,
    pub commands: Vec<Command>,
}

/// Who waits for the answer to a proposal.
#[derive(Clone, Debug)]
pub enum Reply {
    None,
    Client { request: usize },
    Loop { node: usize, life: u32, which: Loop },
    Renew { node: usize, life: u32, beats: Rc<Vec<Beat>> },
    Register { node: usize, life: u32 },
    Report { node: usize, life: u32, key: ProcessKey },
}

/// The answer; none when the proposer cannot know whether it was applied.
pub type Answer = Option<(u64, Rc<Vec<Outcome>>)>;

/// What will happen.
pub enum Event {
    Arrive { proposal: Rc<Proposal>, reply: Reply },
    Answer { reply: Reply, answer: Answer },
    Apply { node: usize, life: u32 },
    LeaderTick { node: usize, life: u32, number: u64 },
    StepDown { node: usize, life: u32, since: u64 },
    BeatSend { node: usize, life: u32 },
    BeatArrives { node: usize, life: u32, beat: Beat },
    Confirmed { node: usize, life: u32, sent_ms: u64 },
    Unknown { node: usize, life: u32 },
    Register { node: usize, life: u32 },
    LeaseCheck { node: usize, life: u32 },
    ProcessEnds { node: usize, life: u32, key: ProcessKey },
    SendReport { node: usize, life: u32, key: ProcessKey },
    ClawResumes { node: usize, life: u32 },
    ClientActs,
    ClientRetries { request: usize },
    Fault,
    Restart { node: usize },
    Elect,
    Snapshot { node: usize, life: u32 },
}

struct Queued {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Queued {}
impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// One node: a replica, perhaps a leader, and a claw.
pub struct Node {
    pub id: u64,
    pub up: bool,
    /// Counts its processes; what belongs to an earlier one is dropped.
    pub life: u32,
    pub replica: Replica,
    pub snapshot: Replica,
    pub lags_until: u64,
    pub applying: bool,
    pub clock_offset_ms: i64,
    pub leader: Option<Leader>,
    pub claw: Claw,
    /// Answers that wait until this node has applied their index.
    pub waiting: Vec<(Reply, Answer)>,
}

/// Everything.
pub struct World {
    pub seed: u64,
    pub rng: Rng,
    pub profile: Profile,
    pub now: u64,
    pub steps: u64,
    /// True once all faults have ended.
    pub calm: bool,
    /// Tasks that succeeded before that.
    pub succeeded_in_chaos: u64,
    pub log: Vec<Rc<Entry>>,
    pub outcome_hashes: Vec<u64>,
    pub audit: Audit,
    pub judge: Judge,
    pub effects: Effects,
    pub trace: Trace,
    pub nodes: Vec<Node>,
    /// The node whose proposals get through at once; none during an election.
    pub lead: Option<usize>,
    pub clients: Clients,
    queue: BinaryHeap<Reverse<Queued>>,
    queued: u64,
}

impl World {
    pub fn new(seed: u64, print: bool) -> World {
        let profile = Profile::of(seed);
        let clients = Clients::new(seed, &profile);
        let mut audit = Audit::default();
        audit.known.extend(clients.graphs());
        World {
            seed,
            rng: Rng::of(seed, &[2]),
            judge: Judge::new(&profile),
            clients,
            profile,
            now: 0,
            steps: 0,
            calm: false,
            succeeded_in_chaos: 0,
            log: Vec::new(),
            outcome_hashes: Vec::new(),
            audit,
            effects: Effects::default(),
            trace: Trace::new(print),
            nodes: Vec::new(),
            lead: None,
            queue: BinaryHeap::new(),
            queued: 0,
        }
    }

    /// Puts an event `delay` milliseconds ahead.
    pub fn after(&mut self, delay: u64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse(Queued { at: self.now + delay, number: self.queued, event }));
    }

    /// Takes the next event and moves time to it.
    pub fn next_event(&mut self) -> Option<Event> {
        let Reverse(next) = self.queue.pop()?;
        self.now = next.at;
        self.steps += 1;
        Some(next.event)
    }

    pub fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, what);
    }

    /// The node when it is up and still the same process.
    pub fn alive(&mut self, node: usize, life: u32) -> Option<&mut Node> {
        self.nodes.get_mut(node).filter(|node| node.up && node.life == life)
    }

    /// The wall clock of a node.
    pub fn clock(&self, node: usize) -> u64 {
        (EPOCH_MS + self.now).saturating_add_signed(self.nodes[node].clock_offset_ms)
    }

    /// How long a message is on its way.
    pub fn delay(&mut self) -> u64 {
        if self.calm || !self.rng.chance(50) { self.rng.between(1, 8) } else { self.rng.between(8, 1_500) }
    }

    pub fn lost(&mut self) -> bool {
        let lost = !self.calm && self.profile.messages_lost && self.rng.chance(60);
        self.effects.count(Effect::MessageLost, u64::from(lost));
        lost
    }

    /// Sends a write to the log. It may be lost, come late, or come twice; the answer may be lost.
    pub fn propose(&mut self, request: Vec<u8>, actor: String, commands: Vec<Kind>, reply: Reply) {
        let commands = commands.into_iter().map(|kind| Command { kind: Some(kind) }).collect();
        let proposal = Rc::new(Proposal { request, actor, commands });
        if self.lost() {
            let patience = self.rng.between(500, 5_000);
            self.after(patience, Event::Answer { reply, answer: None });
            return;
        }
        if !self.calm && self.profile.messages_repeated && !proposal.request.is_empty() && self.rng.chance(80)
        {
            let delay = self.rng.between(1, 5_000);
            self.after(delay, Event::Arrive { proposal: proposal.clone(), reply: Reply::None });
        }
        let delay = self.delay();
        self.after(delay, Event::Arrive { proposal, reply });
    }

    /// A write reaches the log: it is stamped by the clock of whoever leads, and committed at once.
    pub fn arrive(&mut self, proposal: &Proposal, reply: Reply) {
        let Some(lead) = self.lead else {
            let patience = self.rng.between(200, 3_000);
            return self.after(patience, Event::Answer { reply, answer: None });
        };
        if let Reply::Loop { node, .. } | Reply::Renew { node, .. } = &reply {
            self.effects.count(Effect::DeposedProposed, u64::from(*node != lead));
        }
        let mut commands = proposal.commands.clone();
        if self.profile.hands_over && matches!(&reply, Reply::Report { .. }) {
            commands.extend(self.grants_behind(lead, &proposal.commands));
        }
        let entry = Rc::new(Entry {
            version: 1,
            time_ms: self.clock(lead),
            request_id: proposal.request.clone(),
            actor: proposal.actor.clone(),
            commands,
        });
        let answer = self.append(&entry);
        if self.lost() {
            let patience = self.rng.between(500, 5_000);
            self.after(patience, Event::Answer { reply, answer: None });
        } else {
            let delay = self.delay();
            self.after(delay, Event::Answer { reply, answer });
        }
        self.wake_replicas();
    }

    /// Appends an entry and applies it to the reference, which the oracles watch.
    fn append(&mut self, entry: &Rc<Entry>) -> Answer {
        self.log.push(entry.clone());
        let index = self.log.len() as u64;
        self.audit.at_ms = self.now;
        match self.audit.apply(entry, &mut self.judge, &mut self.effects, self.profile.steps) {
            Ok((outcomes, hash)) => {
                let digest = self.audit.reference.digest;
                self.trace.numbers(&[index, entry.time_ms, digest, hash]);
                self.trace.line(self.now, format_args!("{index} {}", super::words::entry(entry, &outcomes)));
                self.outcome_hashes.push(hash);
                self.judge.see(&Fact::Applied { replica: 0, index, digest });
                Some((index, Rc::new(outcomes)))
            }
            Err(halt) => {
                self.judge.fail("never-halts", format!("entry {index}: {halt}"));
                self.outcome_hashes.push(0);
                None
            }
        }
    }

    fn wake_replicas(&mut self) {
        for node in 0..self.nodes.len() {
            let at = &mut self.nodes[node];
            if !at.up || at.applying {
                continue;
            }
            at.applying = true;
            let (life, behind) = (at.life, at.lags_until.saturating_sub(self.now));
            let delay = behind + if self.calm { 1 } else { self.rng.between(1, 30) };
            self.after(delay, Event::Apply { node, life });
        }
    }

    /// A node applies some of what it has not.
    pub fn apply(&mut self, node: usize, life: u32) {
        let most = if self.rng.chance(300) { self.rng.between(1, 5) } else { u64::MAX };
        let at = &mut self.nodes[node];
        if !at.up || at.life != life {
            return;
        }
        at.applying = false;
        let mut touched = clawhive_statemachine::Touched::NONE;
        let until = (self.log.len() as u64).min(at.replica.applied.saturating_add(most));
        while at.replica.applied < until {
            let index = at.replica.applied + 1;
            match at.replica.apply(&self.log[index as usize - 1], self.profile.steps, None) {
                Ok(done) => {
                    touched.add(done.touched);
                    let digest = at.replica.digest;
                    self.judge.see(&Fact::Applied { replica: node + 1, index, digest });
                    if done.outcomes_hash != self.outcome_hashes[index as usize - 1] {
                        self.judge.fail("equal-outcomes", format!("replica {} at entry {index}", node + 1));
                    }
                }
                Err(halt) => {
                    self.judge.fail("never-halts", format!("replica {} at entry {index}: {halt}", node + 1));
                    return;
                }
            }
        }
        let (applied, mut ready) = (at.replica.applied, Vec::new());
        at.waiting.retain(|waiting| {
            let done = waiting.1.as_ref().is_none_or(|(index, _)| *index <= applied);
            if done {
                ready.push(waiting.clone());
            }
            !done
        });
        for (reply, answer) in ready {
            self.answer(reply, answer);
        }
        if applied < self.log.len() as u64 {
            self.wake_replicas();
        }
        self.leader_wakes(node, touched);
        self.claw_looks(node);
    }

    /// An answer reaches whoever waits; those on a node first wait for their own replica.
    pub fn answer(&mut self, reply: Reply, answer: Answer) {
        let here = match &reply {
            Reply::None => return,
            Reply::Client { request } => return self.client_answered(*request, answer),
            Reply::Loop { node, life, .. }
            | Reply::Renew { node, life, .. }
            | Reply::Register { node, life }
            | Reply::Report { node, life, .. } => (*node, *life),
        };
        let Some(at) = self.alive(here.0, here.1) else { return };
        if answer.as_ref().is_some_and(|(index, _)| *index > at.replica.applied) {
            at.waiting.push((reply, answer));
            return;
        }
        match reply {
            Reply::Loop { node, which, .. } => self.loop_answered(node, which),
            Reply::Renew { node, beats, .. } if answer.is_some() => self.renewed(node, &beats),
            Reply::Register { node, life } => self.registered(node, life, answer.is_some()),
            Reply::Report { node, life, key } => self.reported(node, life, key, answer.is_some()),
            _ => {}
        }
    }
}
