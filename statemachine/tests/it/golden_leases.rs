//! The bytes of commands and rows of leases and delivery: see `golden.rs`.

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::*;

use crate::golden::{full_task, golden};

#[test]
fn leases_and_delivery() {
    let id = || (0..16).collect::<Vec<u8>>();
    let left = LeaseLeft { claw: 1, incarnation: id(), renew_seq: 7, remaining_ms: 1_250 };
    let back = FailTask {
        run: 1,
        task: 2,
        attempt: 3,
        fence: 4,
        reason: Reason::Cancelled as i32,
        never_started: true,
        ..FailTask::default()
    };
    for (name, kind) in [
        ("checkpoint_leases", Kind::CheckpointLeases(CheckpointLeases { leases: vec![left] })),
        ("fail_task_never_started", Kind::FailTask(back)),
    ] {
        golden(&format!("command/{name}"), Command { kind: Some(kind) });
    }
    let quiet = ClawRow { lease_ms: 5_000, used: 1, remaining_ms: Some(0), ..ClawRow::default() };
    golden("row/claw_quiet", quiet);
    let strict = Task { delivery: Delivery::StrictSingle as i32, ..full_task() };
    golden("row/spec_delivery", SpecRow { task: Some(strict), dependents: vec![] });
}
