//! One file per command. Each checks everything before it changes anything: a rejected command leaves no trace, and a
//! plan made from a stale view is a rejection, never a fault.

pub(crate) mod acquire_lock;
pub(crate) mod add_node;
pub(crate) mod advance;
pub(crate) mod assign_tasks;
pub(crate) mod cancel_run;
pub(crate) mod checkpoint_leases;
pub(crate) mod checkpoint_locks;
pub(crate) mod collect;
pub(crate) mod complete_task;
pub(crate) mod delete_key;
pub(crate) mod expire_claw;
pub(crate) mod expire_locks;
pub(crate) mod fail_task;
pub(crate) mod fire_timers;
pub(crate) mod key_txn;
pub(crate) mod put_key;
pub(crate) mod put_workflow;
pub(crate) mod raise_level;
pub(crate) mod register_claw;
pub(crate) mod release_lock;
pub(crate) mod renew_leases;
pub(crate) mod renew_lock;
pub(crate) mod restore_cluster;
pub(crate) mod resume_cluster;
pub(crate) mod start_task;
pub(crate) mod submit_run;

use alloc::string::String;
use clawhive_proto::RejectionCode;

use crate::graph::check;
use crate::halt::{Step, rejected};

/// Texts that become part of a key.
pub(crate) fn check_name(what: &str, text: &str) -> Step<()> {
    valid(check::name(what, text))
}

/// Turns a fault of shape into a rejection.
fn valid<T>(checked: Result<T, String>) -> Step<T> {
    checked.or_else(|message| rejected(RejectionCode::Invalid, message))
}
