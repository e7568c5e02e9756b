//! Which faults a seed has, and which took effect. Owns the drawing of profiles and the count of effects; must not
//! inject anything itself.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// The faults of one seed. Each seed switches a random part of them off, so that bugs which a fault hides still show.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The leader changes at any moment.
    pub leaders_change: bool,
    /// A deposed leader goes on believing for a while, plans on old views, and its proposals still land.
    pub leaders_overlap: bool,
    /// A loop plans again before its last proposal is answered.
    pub loops_impatient: bool,
    /// Proposals, answers and heartbeats are lost; callers do not know whether a write was applied.
    pub messages_lost: bool,
    /// Proposals arrive twice.
    pub messages_repeated: bool,
    /// Wall clocks of nodes jump ahead and back.
    pub clocks_jump: bool,
    /// Nodes are killed; they replay from an earlier snapshot of their store, and their claws come back as new ones.
    pub nodes_crash: bool,
    /// Replicas stop applying for a while.
    pub replicas_lag: bool,
    /// Claws stand still past their lease, then go on and report late.
    pub claws_pause: bool,
    /// Attempts end in other ways than success.
    pub tasks_fail: bool,
    /// Clients cancel runs.
    pub clients_cancel: bool,
    /// Clients repeat requests that were answered, and use idempotency keys with other bodies.
    pub clients_repeat: bool,
    /// How long faults go on, in virtual time.
    pub chaos_ms: u64,
    /// Mean time between faults.
    pub pause_ms: u64,
    /// Runs that clients may submit at most.
    pub runs: u32,
    /// The leader grants in the entry of the report that allows it.
    pub hands_over: bool,
    /// Every claw has one slot only.
    pub narrow: bool,
    /// How long a claw's lease is.
    pub lease_ms: u64,
    /// Steps of the graph that one entry does; small numbers make the backlog busy.
    pub steps: u32,
}

impl Profile {
    /// The profile of a seed.
    pub fn of(seed: u64) -> Profile {
        let mut rng = Rng::of(seed, &[1]);
        let mut on = || rng.chance(650);
        let mut profile = Profile {
            leaders_change: on(),
            leaders_overlap: on(),
            loops_impatient: on(),
            messages_lost: on(),
            messages_repeated: on(),
            clocks_jump: on(),
            nodes_crash: on(),
            replicas_lag: on(),
            claws_pause: on(),
            tasks_fail: on(),
            clients_cancel: on(),
            clients_repeat: on(),
            ..Profile::default()
        };
        // A third of the seeds keep time honest altogether, and have claws that never stand still: only with those the law
        // of one process is judged.
        if rng.chance(330) {
            profile.clocks_jump = false;
            profile.claws_pause = false;
        }
        profile.chaos_ms = rng.between(30_000, 240_000);
        profile.pause_ms = rng.between(500, 8_000);
        profile.runs = rng.between(4, 30) as u32;
        profile.hands_over = rng.chance(700);
        profile.narrow = rng.chance(250);
        profile.lease_ms = rng.between(2_000, 8_000);
        profile.steps = *rng.pick(&[1, 3, 20, 1_000]);
        profile
    }

    /// The names of the faults that are on, for the report.
    pub fn names(&self) -> Vec<&'static str> {
        [
            (self.leaders_change, "leaders-change"),
            (self.leaders_overlap, "leaders-overlap"),
            (self.loops_impatient, "loops-impatient"),
            (self.messages_lost, "messages-lost"),
            (self.messages_repeated, "messages-repeated"),
            (self.clocks_jump, "clocks-jump"),
            (self.nodes_crash, "nodes-crash"),
            (self.replicas_lag, "replicas-lag"),
            (self.claws_pause, "claws-pause"),
            (self.tasks_fail, "tasks-fail"),
            (self.clients_cancel, "clients-cancel"),
            (self.clients_repeat, "clients-repeat"),
        ]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect()
    }
}

/// An effect of a fault that the state machine had to deal with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Another node leads.
    LeaderChanged,
    /// A node that had lost the lead proposed.
    DeposedProposed,
    /// A grant of an outdated plan was refused.
    StaleGrant,
    /// A report under an outdated token was refused.
    StaleReport,
    /// An expiry was refused, since the lease had been renewed.
    StaleExpiry,
    /// A proposal or an answer was lost.
    MessageLost,
    /// A request came a second time and was answered as the first time.
    RequestRepeated,
    /// An entry carried a time before the last one.
    TimeWentBack,
    /// A node lost what it had applied since its snapshot and replayed it.
    ReplayedAfterCrash,
    /// A leader planned on a view that was ten entries or more behind.
    PlannedOnOldView,
    /// An attempt ended as lost.
    AttemptLost,
    /// A claw ended its own attempts since its lease ran out.
    LeaseRanOut,
    /// An attempt failed and was tried again.
    Retried,
    /// A task failed for good.
    TaskFailed,
    /// A run was cancelled.
    RunCancelled,
    /// Work was left to Advance.
    Advanced,
    /// A grant travelled in the entry of the report that allowed it.
    HandedOver,
    /// A submit with a known idempotency key was answered with the earlier run.
    KeyReplayed,
}

impl Effect {
    /// Every effect. A long series of seeds in which one never occurred proves too little.
    pub const ALL: [Effect; 18] = [
        Effect::LeaderChanged,
        Effect::DeposedProposed,
        Effect::StaleGrant,
        Effect::StaleReport,
        Effect::StaleExpiry,
        Effect::MessageLost,
        Effect::RequestRepeated,
        Effect::TimeWentBack,
        Effect::ReplayedAfterCrash,
        Effect::PlannedOnOldView,
        Effect::AttemptLost,
        Effect::LeaseRanOut,
        Effect::Retried,
        Effect::TaskFailed,
        Effect::RunCancelled,
        Effect::Advanced,
        Effect::HandedOver,
        Effect::KeyReplayed,
    ];

    /// As the report prints it.
    pub fn name(self) -> String {
        let mut name = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
        }
        name
    }
}

/// How often each effect occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects(BTreeMap<Effect, u64>);

impl Effects {
    /// Counts an effect.
    pub fn count(&mut self, effect: Effect, times: u64) {
        if times > 0 {
            *self.0.entry(effect).or_default() += times;
        }
    }

    /// How often an effect occurred.
    pub fn of(&self, effect: Effect) -> u64 {
        self.0.get(&effect).copied().unwrap_or(0)
    }

    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Effects) {
        for (effect, times) in &other.0 {
            self.count(*effect, *times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_differ_and_each_fault_is_on_in_some_seeds_and_off_in_others() {
        let profiles: Vec<_> = (0..200).map(Profile::of).collect();
        let all = Profile {
            leaders_change: true,
            leaders_overlap: true,
            loops_impatient: true,
            messages_lost: true,
            messages_repeated: true,
            clocks_jump: true,
            nodes_crash: true,
            replicas_lag: true,
            claws_pause: true,
            tasks_fail: true,
            clients_cancel: true,
            clients_repeat: true,
            ..Profile::default()
        };
        for name in all.names() {
            let on = profiles.iter().filter(|profile| profile.names().contains(&name)).count();
            assert!((50..180).contains(&on), "{name}: {on} of 200");
        }
    }

    #[test]
    fn effects_are_named_by_words() {
        assert_eq!(Effect::StaleGrant.name(), "stale-grant");
        assert_eq!(Effect::ALL.len(), Effect::KeyReplayed as usize + 1);
    }
}
