//! Leases as several leaders count them, each on its own clock and on a view that may be old: never ended before the claw
//! itself takes its lease to be over, and not prolonged for ever by changes of leader.

use std::collections::BTreeSet;

use clawhive_statemachine::plan::assign::{self, AssignInput};
use clawhive_statemachine::plan::leases::Leases;
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{MemStore, read};
use proptest::prelude::*;

use crate::cluster::{Cluster, put, register, submit, task, workflow};

const CLAW: u64 = 7;

/// One leader, or one that still believes to be.
struct Leader {
    leases: Leases,
    /// How many entries its view has.
    applied: usize,
}

/// The claw, as it sees itself.
struct Claw {
    incarnation: u8,
    /// When its newest confirmed beat was sent, plus the lease.
    until: u64,
}

struct World {
    cluster: Cluster,
    now: u64,
    lease: u64,
    claw: Claw,
    beats: Vec<u64>,
    leaders: Vec<Leader>,
    /// Proposed and not in the log yet.
    under_way: Vec<Kind>,
    /// The state after each entry.
    views: Vec<MemStore>,
    expiries: u32,
}

impl World {
    fn new(lease: u64) -> World {
        let mut cluster = Cluster::new();
        cluster.strict = false;
        cluster.run(put(workflow("w", vec![task("t", &[])])));
        for _ in 0..40 {
            cluster.run(submit("w"));
        }
        let claw = Claw { incarnation: 0, until: 0 };
        let (beats, leaders, views) = (Vec::new(), Vec::new(), vec![MemStore::new()]);
        let under_way = Vec::new();
        let mut world =
            World { cluster, now: 1_000, lease, claw, beats, leaders, under_way, views, expiries: 0 };
        world.register();
        world.change_leader(usize::MAX);
        world
    }

    fn commit(&mut self, kind: Kind) {
        self.cluster.run(kind);
        self.views.push(self.cluster.store.clone());
    }

    /// The claw comes (back) as another process and is given something to do.
    fn register(&mut self) {
        self.claw.incarnation += 1;
        let mut kind = register(CLAW, self.claw.incarnation, 1);
        if let Kind::RegisterClaw(it) = &mut kind {
            it.lease_ms = self.lease;
        }
        self.beats.clear();
        self.claw.until = self.now + self.lease;
        self.commit(kind);
        let live = BTreeSet::from([CLAW]);
        let input = AssignInput { live: &live, leader: 0, limit: 1 };
        let grants = assign::plan(&self.cluster.store, &input);
        assert_eq!(grants.len(), 1);
        self.commit(Kind::AssignTasks(AssignTasks { grants }));
    }

    fn change_leader(&mut self, behind: usize) {
        let applied = self.views.len().saturating_sub(1).saturating_sub(behind.min(self.views.len()));
        self.leaders.push(Leader { leases: Leases::default(), applied });
        if self.leaders.len() > 3 {
            self.leaders.remove(0);
        }
    }

    /// A leader applies some more of the log and looks at it.
    fn look(&mut self, which: usize, entries: usize) {
        let count = self.leaders.len();
        let leader = &mut self.leaders[which % count];
        leader.applied = (leader.applied + entries).min(self.views.len() - 1);
        leader.leases.look(&self.views[leader.applied], self.now);
    }

    fn propose(&mut self, which: usize) {
        let leader = &self.leaders[which % self.leaders.len()];
        self.under_way.extend(leader.leases.expired(self.now).into_iter().map(Kind::ExpireClaw));
        self.under_way.extend(leader.leases.checkpoint(self.now).map(Kind::CheckpointLeases));
    }

    /// One proposal that is under way reaches the log, in any order.
    fn land(&mut self, which: usize) {
        if self.under_way.is_empty() {
            return;
        }
        let kind = self.under_way.remove(which % self.under_way.len());
        let expiry = matches!(kind, Kind::ExpireClaw(_));
        self.commit(kind);
        let row = read::claw(&self.cluster.store, CLAW.into()).unwrap();
        if expiry && row.state() == ClawState::Down {
            assert!(self.now >= self.claw.until, "ended {} ms early", self.claw.until - self.now);
            self.expiries += 1;
            self.register();
        }
    }

    /// A beat that was sent is committed, and the claw hears of it.
    fn renew(&mut self, which: usize) {
        if self.beats.is_empty() {
            return;
        }
        let sent = self.beats.remove(which % self.beats.len());
        let incarnation = vec![self.claw.incarnation; 16];
        self.commit(Kind::RenewLeases(RenewLeases { renewals: vec![Renewal { claw: CLAW, incarnation }] }));
        self.claw.until = self.claw.until.max(sent + self.lease);
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    Beat,
    Renew(usize),
    Look(usize, usize),
    Propose(usize),
    Land(usize),
    Change(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1u64..700).prop_map(Op::Wait),
        2 => Just(Op::Beat),
        2 => (0usize..9).prop_map(Op::Renew),
        4 => (0usize..3, 0usize..6).prop_map(|(which, entries)| Op::Look(which, entries)),
        4 => (0usize..3).prop_map(Op::Propose),
        4 => (0usize..9).prop_map(Op::Land),
        1 => (0usize..12).prop_map(Op::Change),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_lease_ends_before_its_claw_says_so(ops in prop::collection::vec(op(), 1..250)) {
        let mut world = World::new(2_000);
        for op in ops {
            // Each expiry takes a run of the backlog.
            if world.expiries > 30 {
                break;
            }
            match op {
                Op::Wait(ms) => world.now += ms,
                Op::Beat => world.beats.push(world.now),
                Op::Renew(which) => world.renew(which),
                Op::Look(which, entries) => world.look(which, entries),
                Op::Propose(which) => world.propose(which),
                Op::Land(which) => world.land(which),
                Op::Change(behind) => world.change_leader(behind),
            }
        }
    }

    /// The claw is dead; the leader changes all the time. What each leader that lives for a quarter of a lease writes
    /// down adds up.
    #[test]
    fn a_dead_claw_expires_although_leaders_change(lease in 500u64..20_000, stay in 260u64..1_000) {
        let stay = lease * stay / 1_000;
        let mut world = World::new(lease);
        let start = world.now;
        while world.expiries == 0 {
            world.change_leader(0);
            let until = world.now + stay;
            while world.now < until && world.expiries == 0 {
                let newest = world.leaders.len() - 1;
                world.look(newest, usize::MAX / 2);
                world.propose(newest);
                while !world.under_way.is_empty() && world.expiries == 0 {
                    world.land(0);
                }
                world.now += 1 + lease / 200;
            }
            prop_assert!(world.now - start < 5 * stay + lease, "still leased after {} ms", world.now - start);
        }
        let took = world.now - start;
        prop_assert!(took >= lease);
        if (495..=505).contains(&(stay * 1_000 / lease)) {
            prop_assert!(took <= 2 * lease, "{took} ms with a leader each half of {lease}");
        }
    }
}
