//! A log of entries applied to a store in memory, with every law checked after every entry.

use std::collections::BTreeMap;

use clawhive_statemachine::level::LEVEL;
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::prost::Message;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{Applied, Limits, MemStore, Store, Table, apply_with, dump, invariant, key};

/// 2026-01-01T00:00:00Z.
pub const DAY_MS: u64 = 1_767_225_600_000;

/// The state of a cluster whose level was raised before anything else happened.
pub fn raised_store() -> MemStore {
    let mut store = MemStore::new();
    let meta = Meta {
        next_run: 1,
        next_workflow: 1,
        next_ready: 1,
        next_backlog: 1,
        level: LEVEL,
        ..Meta::default()
    };
    store.put(Table::Meta, &key::META, meta.encode_to_vec().into());
    store
}

/// One replica.
pub struct Cluster {
    pub store: MemStore,
    pub log: Vec<Entry>,
    pub now: u64,
    pub limits: Limits,
    /// Whether to check the laws after each entry; off for the largest graphs.
    pub strict: bool,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster {
            store: raised_store(),
            log: Vec::new(),
            now: DAY_MS,
            limits: Limits::default(),
            strict: true,
        }
    }

    /// Appends and applies one entry.
    pub fn entry(&mut self, request_id: &[u8], commands: Vec<Command>) -> Applied {
        let entry = Entry {
            version: 1,
            time_ms: self.now,
            request_id: request_id.to_vec(),
            actor: "test".into(),
            commands,
        };
        self.log.push(entry);
        let index = self.log.len() as u64;
        let before = (self.log[index as usize - 1].commands.len() == 1).then(|| self.store.clone());
        let applied = apply_with(&mut self.store, index, &self.log[index as usize - 1], self.limits).unwrap();
        if let (Some(before), [Outcome { kind: Some(Answer::Rejected(_)) }]) = (before, &applied.outcomes[..])
            && request_id.is_empty()
        {
            assert_unchanged(&before, &self.store);
        }
        if self.strict {
            self.check();
        }
        applied
    }

    /// Appends and applies one command.
    pub fn run(&mut self, kind: Kind) -> Answer {
        let mut applied = self.entry(&[], vec![Command { kind: Some(kind) }]);
        applied.outcomes.remove(0).kind.unwrap()
    }

    pub fn check(&self) {
        if let Err(violations) = invariant::check(&self.store) {
            let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
            panic!("after entry {}: {:?}\n{}", self.log.len(), self.log.last(), lines.join("\n"));
        }
    }
}

/// A rejected command leaves no trace but the time.
fn assert_unchanged(before: &MemStore, after: &MemStore) {
    let rows = |store: &MemStore| {
        let mut rows = rows(store);
        rows.remove(&(1, Vec::new()));
        rows
    };
    assert_eq!(rows(before), rows(after), "a rejected command changed something");
}

/// All rows, by table number and key.
pub fn rows(store: &MemStore) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
    let mut rows = BTreeMap::new();
    dump(store, &mut |table, key, value| {
        rows.insert((table.number(), key.to_vec()), value.to_vec());
    });
    rows
}

/// A task that runs nothing.
pub fn task(name: &str, needs: &[u32]) -> Task {
    Task {
        name: name.into(),
        needs: needs.to_vec(),
        executor: Some(task::Executor::Run("true".into())),
        ..Task::default()
    }
}

/// A workflow of such tasks.
pub fn workflow(name: &str, tasks: Vec<Task>) -> Workflow {
    Workflow { namespace: "default".into(), name: name.into(), tasks, ..Workflow::default() }
}

/// Stores a workflow; its hash is its encoding.
pub fn put(workflow: Workflow) -> Kind {
    let hash = clawhive_statemachine::proto::prost::Message::encode_to_vec(&workflow);
    Kind::PutWorkflow(PutWorkflow { workflow: Some(workflow), hash, set_schedules: true })
}

/// Submits a run of the newest version.
pub fn submit(name: &str) -> Kind {
    Kind::SubmitRun(SubmitRun {
        namespace: "default".into(),
        workflow: name.into(),
        body_hash: vec![1],
        ..SubmitRun::default()
    })
}

/// Registers an incarnation of a claw.
pub fn register(claw: u64, incarnation: u8, slots: u32) -> Kind {
    Kind::RegisterClaw(RegisterClaw {
        claw,
        incarnation: vec![incarnation; 16],
        slots,
        lease_ms: 5_000,
        ..RegisterClaw::default()
    })
}
