//! One seed from its first event to its verdict.

use std::collections::BTreeMap;

use clawhive_proto::command::Kind;
use clawhive_proto::{AddNode, RaiseLevel, RunState};
use clawhive_statemachine::level::LEVEL;
use clawhive_statemachine::{invariant, read};

use super::history::{Fact, run_ended};
use super::invariants::Broken;
use super::profile::{Effects, Profile};
use super::replica::Replica;
use super::world::{Event, Node, Proposal, Reply, World};

/// How long everything may take once all faults have ended. The longest honest wait: a clock that was an hour ahead
/// stamped the log and is now an hour behind, so that timers and leases stand still for two hours.
const REST_MS: u64 = 4 * 3_600_000;
/// How often the invariants of the state machine are checked in full, in entries.
const CHECK_EVERY: u64 = 150;

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The seed.
    pub seed: u64,
    /// The first broken law.
    pub broken: Option<Broken>,
    /// Events handled.
    pub steps: u64,
    /// Entries in the log.
    pub entries: u64,
    /// Virtual time.
    pub simulated_ms: u64,
    /// Hash of the trace: the same for each replay.
    pub hash: u64,
    /// Runs made.
    pub runs: usize,
    /// Runs that succeeded.
    pub succeeded: usize,
    /// Nothing succeeded while there were faults, or no run at all: the seed proves nothing.
    pub vacuous: bool,
    /// What the faults did.
    pub effects: Effects,
    /// The faults that were on.
    pub profile: Profile,
}

/// Runs a seed; with `print`, its trace goes to standard output.
pub fn run_seed(seed: u64, print: bool) -> Verdict {
    let mut world = World::new(seed, print);
    world.note(format_args!("seed {seed}: {}", world.profile.names().join(" ")));
    found(&mut world);
    let chaos_ms = world.profile.chaos_ms;
    let mut checked = 0;
    let mut rested = false;
    while world.judge.broken.is_none() {
        let Some(event) = world.next_event() else { break };
        if !world.calm && world.now >= chaos_ms {
            world.calm_down();
        }
        handle(&mut world, event);
        let entries = world.log.len() as u64;
        if entries >= checked + CHECK_EVERY {
            checked = entries;
            check(&mut world);
        }
        if world.calm && at_rest(&world) {
            rested = true;
            break;
        }
        if world.now > chaos_ms + REST_MS {
            break;
        }
    }
    if world.judge.broken.is_none() {
        if rested { last_look(&mut world) } else { stuck(&mut world) }
    }
    Verdict {
        seed,
        broken: world.judge.broken.clone(),
        steps: world.steps,
        entries: world.log.len() as u64,
        simulated_ms: world.now,
        hash: world.trace.hash(),
        runs: world.audit.runs.len(),
        succeeded: world.audit.succeeded(),
        vacuous: world.succeeded_in_chaos == 0 || world.audit.succeeded() == 0,
        effects: world.effects,
        profile: world.profile,
    }
}

/// Three nodes, whose ids are the log indexes of their joining.
fn found(world: &mut World) {
    for number in 1..=3u64 {
        let id = number;
        world.nodes.push(Node {
            id,
            up: false,
            life: 0,
            replica: Replica::default(),
            snapshot: Replica::default(),
            lags_until: 0,
            applying: false,
            clock_offset_ms: 0,
            leader: None,
            claw: Default::default(),
            waiting: Vec::new(),
        });
    }
    world.lead = Some(0);
    let raise = clawhive_proto::Command { kind: Some(Kind::RaiseLevel(RaiseLevel { level: LEVEL })) };
    let proposal = Proposal { request: Vec::new(), actor: "node:1".to_owned(), commands: vec![raise] };
    world.arrive(&proposal, Reply::None);
    for number in 1..=3u8 {
        let add = Kind::AddNode(AddNode {
            join_id: vec![number; 16],
            listen: format!("10.0.0.{number}:7400"),
            peer_listen: format!("10.0.0.{number}:7401"),
            version: "0.1.0".to_owned(),
            ..AddNode::default()
        });
        let commands = vec![clawhive_proto::Command { kind: Some(add) }];
        let proposal = Proposal { request: Vec::new(), actor: "node:1".to_owned(), commands };
        world.arrive(&proposal, Reply::None);
    }
    for node in 0..3 {
        world.start(node);
    }
    world.starts_leading(0);
    world.after(500, Event::ClientActs);
    let pause_ms = world.profile.pause_ms;
    world.after(pause_ms, Event::Fault);
}

fn handle(world: &mut World, event: Event) {
    match event {
        Event::Arrive { proposal, reply } => world.arrive(&proposal, reply),
        Event::Answer { reply, answer } => world.answer(reply, answer),
        Event::Apply { node, life } => world.apply(node, life),
        Event::LeaderTick { node, life, number } => world.leader_tick(node, life, number),
        Event::StepDown { node, life, since } => world.step_down(node, life, since),
        Event::BeatSend { node, life } => world.beat_send(node, life),
        Event::BeatArrives { node, life, beat } => world.beat_arrives(node, life, beat),
        Event::Confirmed { node, life, sent_ms } => world.confirmed(node, life, sent_ms),
        Event::Unknown { node, life } => world.unknown_claw(node, life),
        Event::Register { node, life } => world.register(node, life),
        Event::LeaseCheck { node, life } => world.lease_check(node, life),
        Event::ProcessEnds { node, life, key } => world.process_ends(node, life, key),
        Event::SendReport { node, life, key } => world.send_report(node, life, key),
        Event::ClawResumes { node, life } => {
            if world.alive(node, life).is_some() {
                world.claw_looks(node);
            }
        }
        Event::ClientActs => world.client_acts(),
        Event::ClientRetries { request } => world.client_retries(request),
        Event::Fault => world.fault(),
        Event::Restart { node } => world.start(node),
        Event::Elect => {
            if world.lead.is_none() {
                world.elect();
            }
        }
        Event::Snapshot { node, life } => world.snapshot(node, life),
    }
}

/// The state machine's own invariants, and the presence of what was acknowledged, on one replica in turn.
fn check(world: &mut World) {
    let which = world.rng.index(world.nodes.len());
    let replica = &world.nodes[which].replica;
    if let Err(violations) = invariant::check(&replica.store) {
        let what = format!("replica {} at {}: {}", which + 1, replica.applied, violations[0]);
        world.judge.fail("state-invariants", what);
    }
    let runs = runs_of(replica);
    world.judge.see(&Fact::Runs { replica: which + 1, applied: replica.applied, runs: &runs });
}

fn runs_of(replica: &Replica) -> BTreeMap<u64, RunState> {
    let filter = read::RunFilter { limit: usize::MAX, ..Default::default() };
    read::list_runs(&replica.store, &filter).runs.into_iter().map(|(id, row)| (id.0, row.state())).collect()
}

/// Nothing is left to do: every run ended, every request answered, every replica at the head.
fn at_rest(world: &World) -> bool {
    let head = world.log.len() as u64;
    world.audit.active.is_empty()
        && world.clients.requests.iter().all(|request| request.over)
        && world.nodes.iter().all(|node| node.replica.applied == head)
}

fn last_look(world: &mut World) {
    for which in 0..world.nodes.len() {
        let replica = world.nodes[which].replica.clone();
        if replica.store != world.audit.reference.store {
            world
                .judge
                .fail("equal-dumps", format!("replica {} differs from the reference at rest", which + 1));
        }
        if replica.dumped() != replica.digest {
            world.judge.fail("equal-dumps", format!("the dump of replica {} is not its digest", which + 1));
        }
        if let Err(violations) = invariant::check(&replica.store) {
            world.judge.fail("state-invariants", format!("replica {} at rest: {}", which + 1, violations[0]));
        }
        let runs = runs_of(&replica);
        world.judge.see(&Fact::Runs { replica: which + 1, applied: replica.applied, runs: &runs });
    }
    let runs = runs_of(&world.audit.reference);
    world.judge.see(&Fact::Rest { runs: &runs });
}

/// Everything must come to rest once faults have ended; this did not.
fn stuck(world: &mut World) {
    let mut what = format!("not at rest {} s after all faults ended:", REST_MS / 1000);
    for run in world.audit.active.iter().take(3) {
        let id = clawhive_statemachine::ids::RunId(*run);
        let tasks = read::tasks(&world.audit.reference.store, id);
        let open: Vec<String> = tasks
            .iter()
            .filter(|(_, row)| !super::history::task_ended(row.state()))
            .take(4)
            .map(|(task, row)| format!("task {task} {:?} attempt {}", row.state(), row.attempt))
            .collect();
        what += &format!(" run {run} [{}]", open.join(", "));
    }
    let open = world.clients.requests.iter().filter(|request| !request.over).count();
    let ended = world.audit.runs.values().filter(|state| run_ended(**state)).count();
    what += &format!(" ({ended} runs ended, {open} requests open)");
    world.judge.fail("comes-to-rest", what);
}
