//! The laws of scheduling, one file each, checked against facts by oracles that know nothing of the state machine.
//! Owns the list of laws; a law must hold no state that the facts did not give it.

use super::history::Fact;
use super::profile::Profile;

mod acknowledged_present;
mod at_most_once;
mod blocked_exactly;
mod equal_dumps;
mod lease_kept;
mod max_parallel;
mod one_completion;
mod one_lease;
mod one_process;
mod one_run_per_key;
mod repeats;
mod retries;
mod slots;
mod stopping;
mod terminal_stays;
mod upstreams_first;

/// One law. It sees every fact in order and says so when one breaks it.
pub trait Law {
    /// A short name, as the report prints it.
    fn name(&self) -> &'static str;

    /// Looks at a fact; the error says what was seen and what should have been.
    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String>;
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The law's name.
    pub law: String,
    /// What was seen.
    pub what: String,
}

/// All laws that hold under a profile.
pub fn laws(profile: &Profile) -> Vec<Box<dyn Law>> {
    let mut laws: Vec<Box<dyn Law>> = vec![
        Box::new(acknowledged_present::AcknowledgedPresent::default()),
        Box::new(at_most_once::AtMostOnce::default()),
        Box::new(blocked_exactly::BlockedExactly::default()),
        Box::new(equal_dumps::EqualDumps::default()),
        Box::new(max_parallel::MaxParallel::default()),
        Box::new(one_completion::OneCompletion::default()),
        Box::new(one_lease::OneLease::default()),
        Box::new(one_run_per_key::OneRunPerKey::default()),
        Box::new(repeats::Repeats::default()),
        Box::new(retries::Retries::default()),
        Box::new(slots::Slots::default()),
        Box::new(stopping::Stopping::default()),
        Box::new(terminal_stays::TerminalStays),
        Box::new(upstreams_first::UpstreamsFirst::default()),
    ];
    // A stopped claw cannot end its processes in time; there the fencing token is what protects, and the other laws judge
    // it. Wall clocks that jump are no excuse: leases are counted on monotonic ones.
    if !profile.claws_pause {
        laws.push(Box::new(one_process::OneProcess::default()));
    }
    laws.push(Box::new(lease_kept::LeaseKept::default()));
    laws
}

/// Shows facts to laws and keeps the first break.
pub struct Judge {
    laws: Vec<Box<dyn Law>>,
    /// The first broken law.
    pub broken: Option<Broken>,
}

impl Judge {
    /// A judge with the laws of a profile.
    pub fn new(profile: &Profile) -> Judge {
        Judge { laws: laws(profile), broken: None }
    }

    /// Shows a fact to every law.
    pub fn see(&mut self, fact: &Fact<'_>) {
        for law in &mut self.laws {
            if let Err(what) = law.see(fact) {
                let law = law.name().to_owned();
                self.broken.get_or_insert(Broken { law, what });
            }
        }
    }

    /// Records a break found outside the laws.
    pub fn fail(&mut self, law: &str, what: String) {
        self.broken.get_or_insert(Broken { law: law.to_owned(), what });
    }
}

#[cfg(test)]
mod tests;
