//! What must hold in every state, checked from scratch: nothing here uses the code that keeps it. Every test calls
//! [`check`] after every entry; so does the simulator.

mod expiry;
mod graph;
mod leases;
mod locks;
mod queues;
mod snapshot;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::ReadStore;
use snapshot::Snapshot;

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Short name of the law.
    pub law: &'static str,
    /// Where, and what was found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.law, self.what)
    }
}

/// Collects violations.
pub(crate) struct Findings(Vec<Violation>);

impl Findings {
    fn expect(&mut self, holds: bool, law: &'static str, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { law, what: what() });
        }
    }
}

/// Checks every law over the whole state.
///
/// # Errors
/// All violations that were found.
pub fn check(view: &dyn ReadStore) -> Result<(), Vec<Violation>> {
    let snapshot = Snapshot::take(view);
    let mut findings = Findings(Vec::new());
    leases::check(&snapshot, &mut findings);
    graph::check(&snapshot, &mut findings);
    queues::check(&snapshot, &mut findings);
    expiry::check(view, &mut findings);
    locks::check(view, &mut findings);
    if findings.0.is_empty() { Ok(()) } else { Err(findings.0) }
}
