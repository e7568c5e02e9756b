//! Turns random operations into commands that make sense, or nearly, applies them to the state machine and the model,
//! and compares.

use std::collections::BTreeSet;

use clawhive_statemachine::ids::RunId;
use clawhive_statemachine::plan;
use clawhive_statemachine::plan::assign::AssignInput;
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::outcome::Kind as Answer;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::{ReadStore, Table, key, read, state};

use super::naive::{Model, live};
use crate::cluster::{Cluster, put, register, submit};

/// A random operation; its numbers pick among what there is.
#[derive(Clone, Debug)]
pub enum Op {
    Submit(u8),
    Assign { limit: u8, lie: u8 },
    Start(u8),
    Complete(u8),
    Fail { task: u8, reason: u8 },
    Stale { task: u8, fence: u8, what: u8 },
    Template(u8),
    Cancel(u8),
    Wait(u16),
    Fire { lie: bool },
    Register { claw: u64, new: bool, slots: u32 },
    Expire { claw: u64, lie: bool },
    Renew { claw: u64, lie: bool },
    Handover(u8),
}

pub struct Driver {
    pub cluster: Cluster,
    /// False: the model is left out.
    pub compared: bool,
    model: Model,
    /// Commands of the entry that is being filled, with the model's answers.
    pending: Vec<(Kind, String)>,
    incarnations: u8,
}

const REASONS: [Reason; 8] = [
    Reason::Exit,
    Reason::Signal,
    Reason::Timeout,
    Reason::OutOfMemory,
    Reason::Cancelled,
    Reason::TemplateError,
    Reason::LostClaw,
    Reason::StartError,
];

impl Driver {
    pub fn new(mut cluster: Cluster, workflows: Vec<Workflow>) -> Driver {
        let mut known = Vec::new();
        for (index, mut workflow) in workflows.into_iter().enumerate() {
            // Otherwise two equal ones would be one version.
            workflow.title = index.to_string();
            cluster.run(put(workflow.clone()));
            known.push(workflow);
        }
        let model = Model { workflows: known, now: cluster.now, ..Model::default() };
        let mut driver = Driver { cluster, compared: true, model, pending: Vec::new(), incarnations: 1 };
        for claw in 1..=2 {
            driver.push(register(claw, 1, 2));
        }
        driver.flush();
        driver
    }

    /// Adds a command; `joined` keeps the entry open for the next one.
    pub fn step(&mut self, op: &Op, joined: bool) {
        if !self.compared {
            // Without the model the commands are made from the rows.
            self.model_from_rows();
        }
        for kind in self.commands(op) {
            self.push(kind);
        }
        if !joined {
            self.flush();
        }
    }

    fn push(&mut self, kind: Kind) {
        let index = self.cluster.log.len() as u64 + 1;
        let answer = if self.compared { self.model.apply(&kind, index) } else { String::new() };
        self.pending.push((kind, answer));
    }

    /// Applies the open entry, and compares.
    pub fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let (kinds, expected): (Vec<Kind>, Vec<String>) = self.pending.drain(..).unzip();
        self.cluster.now = self.model.now;
        let commands = kinds.iter().map(|kind| Command { kind: Some(kind.clone()) }).collect();
        let applied = self.cluster.entry(&[], commands);
        if self.compared {
            let found: Vec<String> = applied.outcomes.iter().map(short).collect();
            assert_eq!(expected, found, "answers to {kinds:?}");
            self.compare();
        }
    }

    fn pick_live(&self, pick: u8) -> Option<(u64, u32, u32, u64)> {
        let mut found = Vec::new();
        for (run, row) in self.model.runs.iter().enumerate() {
            for (index, task) in row.tasks.iter().enumerate() {
                if live(task.state) {
                    found.push((run as u64 + 1, index as u32, task.attempt, task.fence));
                }
            }
        }
        (!found.is_empty()).then(|| found[usize::from(pick) % found.len()])
    }

    fn pick_any(&self, pick: u8) -> (u64, u32) {
        let run = u64::from(pick) % (self.model.runs.len() as u64 + 2);
        (run, u32::from(pick / 7) % 9)
    }

    fn commands(&mut self, op: &Op) -> Vec<Kind> {
        match *op {
            Op::Submit(pick) => {
                let mut kind = submit("random");
                if let Kind::SubmitRun(submit) = &mut kind {
                    submit.version = u64::from(pick) % self.model.workflows.len() as u64 + 1;
                }
                vec![kind]
            }
            Op::Assign { limit, lie } => {
                vec![Kind::AssignTasks(AssignTasks { grants: self.grants(limit, lie) })]
            }
            Op::Start(pick) => self
                .pick_live(pick)
                .map(|(run, task, attempt, fence)| Kind::StartTask(StartTask { run, task, attempt, fence }))
                .into_iter()
                .collect(),
            Op::Complete(pick) => self.complete(pick).into_iter().collect(),
            Op::Fail { task, reason } => {
                let Some((run, task, attempt, fence)) = self.pick_live(task) else { return Vec::new() };
                let reason = REASONS[usize::from(reason)] as i32;
                vec![Kind::FailTask(FailTask { run, task, attempt, fence, reason, ..FailTask::default() })]
            }
            Op::Stale { task, fence, what } => vec![self.stale(task, fence, what)],
            Op::Template(pick) => {
                let (run, task) = match self.model.ready().first() {
                    Some(first) if pick % 2 == 0 => *first,
                    _ => self.pick_any(pick),
                };
                let reason = Reason::TemplateError as i32;
                vec![Kind::FailTask(FailTask { run, task, reason, ..FailTask::default() })]
            }
            Op::Cancel(pick) => {
                vec![Kind::CancelRun(CancelRun { run: self.pick_any(pick).0, reason: String::new() })]
            }
            Op::Wait(ms) => {
                // An entry has one time.
                self.flush();
                self.model.now += u64::from(ms);
                Vec::new()
            }
            Op::Fire { lie } => {
                self.flush();
                // A lie fires what is not due.
                let now = self.model.now + if lie { 4_000 } else { 0 };
                plan::fire::plan(&self.cluster.store, now, 8)
                    .command
                    .map(Kind::FireTimers)
                    .into_iter()
                    .collect()
            }
            Op::Register { claw, new, slots } => {
                self.incarnations = self.incarnations.wrapping_add(u8::from(new)).max(1);
                let known = self.model.claws.get(&claw).map_or(1, |claw| claw.incarnation);
                vec![register(claw, if new { self.incarnations } else { known }, slots)]
            }
            Op::Expire { claw, lie } => {
                let known = self.model.claws.get(&claw).cloned().unwrap_or_default();
                let renew_seq = known.renew_seq.wrapping_sub(u64::from(lie));
                vec![Kind::ExpireClaw(ExpireClaw {
                    claw,
                    incarnation: vec![known.incarnation; 16],
                    renew_seq,
                })]
            }
            Op::Renew { claw, lie } => {
                let known = self.model.claws.get(&claw).map_or(0, |claw| claw.incarnation);
                let incarnation = vec![known.wrapping_add(u8::from(lie)); 16];
                vec![Kind::RenewLeases(RenewLeases { renewals: vec![Renewal { claw, incarnation }] })]
            }
            Op::Handover(pick) => {
                self.flush();
                let Some(report) = self.complete(pick) else { return Vec::new() };
                let reports = [Command { kind: Some(report.clone()) }];
                let live: BTreeSet<u64> = (1..=3).collect();
                let input = AssignInput { live: &live, leader: 1, limit: 4 };
                let grants = plan::handover::plan(&self.cluster.store, &reports, &input);
                if self.compared {
                    // Nothing came between: every grant must be taken.
                    let index = self.cluster.log.len() as u64 + 1;
                    let mut trial = self.model.clone();
                    trial.apply(&report, index);
                    let taken =
                        trial.apply(&Kind::AssignTasks(AssignTasks { grants: grants.clone() }), index);
                    assert_eq!(taken, format!("{0} of {0}", grants.len()), "{grants:?} after {report:?}");
                }
                vec![report, Kind::AssignTasks(AssignTasks { grants })]
            }
        }
    }

    fn complete(&self, pick: u8) -> Option<Kind> {
        let (run, task, attempt, fence) = self.pick_live(pick)?;
        let outputs_json = if pick.is_multiple_of(3) { "{\"x\":1}".into() } else { String::new() };
        Some(Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json }))
    }

    fn grants(&self, limit: u8, lie: u8) -> Vec<Grant> {
        let ready = self.model.ready();
        let claws: Vec<u64> = self.model.claws.keys().copied().collect();
        let take = usize::from(limit) + 1;
        let mut grants: Vec<Grant> = ready
            .iter()
            .take(take)
            .enumerate()
            .map(|(index, (run, task))| Grant {
                run: *run,
                task: *task,
                attempt: self.model.runs[*run as usize - 1].tasks[*task as usize].attempt + 1,
                claw: claws[(index + usize::from(lie)) % claws.len()],
                resolved: None,
            })
            .collect();
        if lie.is_multiple_of(4) {
            let (run, task) = self.pick_any(lie);
            grants.push(Grant {
                run,
                task,
                attempt: u32::from(lie % 3),
                claw: u64::from(lie % 5),
                resolved: None,
            });
        }
        grants
    }

    /// A report that is mostly not current.
    fn stale(&self, pick: u8, fence: u8, what: u8) -> Kind {
        let (run, task) = self.pick_any(pick);
        let attempt = u32::from(fence % 3) + 1;
        let fence = u64::from(fence);
        match what {
            0 => Kind::StartTask(StartTask { run, task, attempt, fence }),
            1 => Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json: String::new() }),
            _ => {
                let reason = Reason::Exit as i32;
                Kind::FailTask(FailTask { run, task, attempt, fence, reason, ..FailTask::default() })
            }
        }
    }

    /// Compares every run, task, claw and the order of the ready index.
    pub fn compare(&self) {
        let (model, rows) = (self.model.print(), self.print_rows());
        let differ = model.iter().zip(&rows).find(|(model, row)| model != row);
        assert!(differ.is_none() && model.len() == rows.len(), "model and rows: {differ:#?}");
    }

    fn print_rows(&self) -> Vec<String> {
        let store = &self.cluster.store;
        let mut lines = Vec::new();
        for run in 1..read::meta(store).next_run {
            let row = read::run(store, RunId(run)).unwrap();
            let stop = row.stop.as_ref().map(Stop::state);
            lines.push(format!("run {run} {:?} stop {stop:?}", row.state()));
            for (index, task) in read::tasks(store, RunId(run)) {
                lines.push(format!(
                    "  {index} {:?} attempt {} tries {} losses {} fence {} claw {} held {} due {}",
                    task.state(),
                    task.attempt,
                    task.tries,
                    task.losses,
                    task.fence,
                    task.claw,
                    task.held,
                    task.timer_due_ms
                ));
            }
        }
        for (id, claw) in read::claws(store) {
            let down = claw.state() == ClawState::Down;
            lines.push(format!(
                "claw {id} {}/{} renewed {} down {down}",
                claw.used, claw.slots, claw.renew_seq
            ));
        }
        let mut ready = Vec::new();
        store.scan(Table::Ready, &[], None, &mut |_, value| {
            let (run, task) = key::parse_task(value).unwrap();
            ready.push((run.0, task.0));
            std::ops::ControlFlow::Continue(())
        });
        lines.push(format!("ready {ready:?}"));
        lines
    }

    /// Fills the model with what the operations look at.
    fn model_from_rows(&mut self) {
        let store = &self.cluster.store;
        let mut trial =
            Model { workflows: self.model.workflows.clone(), now: self.model.now, ..Model::default() };
        for run in 1..read::meta(store).next_run {
            let row = read::run(store, RunId(run)).unwrap();
            let mut kind = submit("random");
            if let Kind::SubmitRun(submit) = &mut kind {
                submit.version = row.version;
            }
            trial.apply(&kind, 0);
            for (index, task) in read::tasks(store, RunId(run)) {
                let copy = &mut trial.runs[run as usize - 1].tasks[index.0 as usize];
                copy.state = task.state();
                copy.attempt = task.attempt;
                copy.fence = task.fence;
                copy.claw = task.claw;
            }
        }
        for (id, row) in read::claws(store) {
            let copy = trial.claws.entry(id.0).or_default();
            (copy.incarnation, copy.slots, copy.renew_seq) = (row.incarnation[0], row.slots, row.renew_seq);
        }
        self.model = trial;
    }

    /// Faults end; a diligent leader and one good claw bring every run to its end.
    pub fn finish_all(&mut self) {
        self.cluster.now = self.cluster.now.max(self.model.now);
        self.cluster.run(register(9, 99, 1_000));
        let live: BTreeSet<u64> = BTreeSet::from([9]);
        let mut leases = plan::leases::Leases::default();
        for round in 0.. {
            let store = &self.cluster.store;
            if store.len(Table::Active) == 0 && store.len(Table::Backlog) == 0 {
                break;
            }
            assert!(round < 500, "runs do not end: {:#?}", self.print_rows());
            let now = self.cluster.now;
            let input = AssignInput { live: &live, leader: 0, limit: 100 };
            let grants = plan::assign::plan(store, &input);
            let renewals = vec![Renewal { claw: 9, incarnation: vec![99; 16] }];
            let mut kinds = vec![Kind::RenewLeases(RenewLeases { renewals })];
            kinds.extend(plan::advance::plan(store).map(Kind::Advance));
            leases.look(store, now);
            kinds.extend(leases.expired(now).into_iter().map(Kind::ExpireClaw));
            kinds.extend(plan::fire::plan(store, now, 100).command.map(Kind::FireTimers));
            kinds.push(Kind::AssignTasks(AssignTasks { grants }));
            for (at, row) in read::assignments_of(store, 9.into()) {
                let (run, task, attempt, fence) = (at.run.0, at.task.0, row.attempt, at.fence.0);
                let outputs_json = String::new();
                kinds.push(Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json }));
            }
            for kind in kinds {
                self.cluster.run(kind);
            }
            self.cluster.now += 1_000;
        }
        let page =
            read::list_runs(&self.cluster.store, &read::RunFilter { limit: 1_000, ..Default::default() });
        assert!(page.runs.iter().all(|(_, row)| state::run_ended(row.state())));
        assert!(self.cluster.store.len(Table::Timers) == 0);
    }
}

fn short(outcome: &Outcome) -> String {
    match outcome.kind.as_ref().unwrap() {
        Answer::Done(_) => "done".into(),
        Answer::Rejected(it) => it.code().as_str_name().trim_start_matches("REJECTION_CODE_").into(),
        Answer::RunSubmitted(it) => format!("run {}", it.run),
        Answer::Granted(it) => format!("{} of {}", it.granted, it.granted + it.stale),
        // Not how many: of a run that the first of its timers stops, the others fire as cancellations, or are gone before,
        // as the sweep comes by. The state that follows is the same and is compared.
        Answer::Progress(_) => "fired".into(),
        other => panic!("not modelled: {other:?}"),
    }
}
