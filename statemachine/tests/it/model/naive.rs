//! The model: plain structs, nothing indexed, everything that can be counted is counted anew each time.

use std::collections::BTreeMap;

use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::*;

use RunState as R;
use TaskState as T;

#[derive(Clone, Debug)]
pub struct ModelTask {
    pub needs: Vec<usize>,
    max_attempts: u32,
    queue_ms: u64,
    pub state: T,
    pub attempt: u32,
    tries: u32,
    losses: u32,
    pub fence: u64,
    pub claw: u64,
    held: bool,
    /// Order of becoming ready.
    seq: u64,
    pub due: u64,
    last_fence: u64,
}

#[derive(Clone, Debug)]
pub struct ModelRun {
    pub tasks: Vec<ModelTask>,
    max_parallel: usize,
    stop_on_failure: bool,
    pub priority: u32,
    pub state: R,
    stop: Option<R>,
    pub timeout_due: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub struct ModelClaw {
    pub incarnation: u8,
    pub slots: u32,
    pub renew_seq: u64,
    down: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub runs: Vec<ModelRun>,
    pub claws: BTreeMap<u64, ModelClaw>,
    pub workflows: Vec<Workflow>,
    pub now: u64,
    pub seq: u64,
}

pub fn ended(state: T) -> bool {
    !matches!(state, T::Pending | T::Ready | T::Dispatched | T::Running | T::Retrying)
}

pub fn live(state: T) -> bool {
    matches!(state, T::Dispatched | T::Running)
}

impl Model {
    pub fn used(&self, claw: u64) -> u32 {
        let tasks = self.runs.iter().flat_map(|run| &run.tasks);
        tasks.filter(|task| live(task.state) && task.claw == claw).count() as u32
    }

    /// The answer in short, and the new state.
    pub fn apply(&mut self, kind: &Kind, index: u64) -> String {
        match kind {
            Kind::SubmitRun(it) => self.submit(it),
            Kind::AssignTasks(it) => {
                let taken = it.grants.iter().filter(|grant| self.grant(grant, index)).count();
                format!("{taken} of {}", it.grants.len())
            }
            Kind::StartTask(it) => match self.holder(it.run, it.task, it.attempt, it.fence) {
                Ok(task) => {
                    task.state = T::Running;
                    "done".into()
                }
                Err(code) => code,
            },
            Kind::CompleteTask(it) => match self.holder(it.run, it.task, it.attempt, it.fence) {
                Ok(task) => {
                    task.release(T::Succeeded);
                    self.settle(it.run);
                    "done".into()
                }
                Err(code) => code,
            },
            Kind::FailTask(it) => self.fail(it),
            Kind::CancelRun(it) => match self.runs.get_mut((it.run as usize).wrapping_sub(1)) {
                Some(run) => {
                    run.stop_as(R::Cancelled);
                    self.settle(it.run);
                    "done".into()
                }
                None => "NOT_FOUND".into(),
            },
            Kind::FireTimers(it) => {
                it.timers.iter().for_each(|timer| self.fire(timer));
                "fired".into()
            }
            Kind::RegisterClaw(it) => self.register(it),
            Kind::ExpireClaw(it) => self.expire(it),
            Kind::RenewLeases(it) => {
                for renewal in &it.renewals {
                    let used = self.used(renewal.claw);
                    if let Some(claw) = self.claws.get_mut(&renewal.claw)
                        && renewal.incarnation == vec![claw.incarnation; 16]
                        && used > 0
                    {
                        claw.renew_seq += 1;
                    }
                }
                "done".into()
            }
            other => panic!("not modelled: {other:?}"),
        }
    }

    fn submit(&mut self, it: &SubmitRun) -> String {
        let workflow = &self.workflows[it.version as usize - 1];
        let tasks = workflow.tasks.iter().map(|task| ModelTask {
            needs: task.needs.iter().map(|need| *need as usize).collect(),
            max_attempts: task.retries.as_ref().map_or(1, |retries| retries.max_attempts),
            queue_ms: task.timeout.as_ref().map_or(0, |timeout| timeout.queue_ms),
            state: T::Pending,
            attempt: 0,
            tries: 0,
            losses: 0,
            fence: 0,
            claw: 0,
            held: false,
            seq: 0,
            due: 0,
            last_fence: 0,
        });
        self.runs.push(ModelRun {
            tasks: tasks.collect(),
            max_parallel: workflow.max_parallel as usize,
            stop_on_failure: workflow.on_failure() == OnFailure::Stop,
            priority: workflow.priority,
            state: R::Pending,
            stop: None,
            timeout_due: (workflow.timeout_ms > 0).then(|| self.now + workflow.timeout_ms),
        });
        let run = self.runs.len() as u64;
        self.settle(run);
        format!("run {run}")
    }

    fn grant(&mut self, grant: &Grant, index: u64) -> bool {
        let used = self.used(grant.claw);
        let Some(claw) = self.claws.get_mut(&grant.claw) else { return false };
        let Some(run) = self.runs.get_mut((grant.run as usize).wrapping_sub(1)) else { return false };
        let Some(task) = run.tasks.get_mut(grant.task as usize) else { return false };
        let good = run.stop.is_none()
            && task.state == T::Ready
            && !task.held
            && task.attempt + 1 == grant.attempt
            && task.last_fence < index
            && !claw.down
            && used < claw.slots;
        if good {
            if used == 0 {
                claw.renew_seq += 1;
            }
            run.state = R::Running;
            task.state = T::Dispatched;
            task.attempt += 1;
            task.fence = index;
            task.last_fence = index;
            task.claw = grant.claw;
            task.due = 0;
        }
        good
    }

    fn holder(&mut self, run: u64, task: u32, attempt: u32, fence: u64) -> Result<&mut ModelTask, String> {
        let not_found = || "NOT_FOUND".to_string();
        let run = self.runs.get_mut((run as usize).wrapping_sub(1)).ok_or_else(not_found)?;
        let task = run.tasks.get_mut(task as usize).ok_or_else(not_found)?;
        match live(task.state) && (task.fence, task.attempt) == (fence, attempt) {
            true => Ok(task),
            false => Err("STALE_FENCE".into()),
        }
    }

    fn fail(&mut self, it: &FailTask) -> String {
        if (it.attempt, it.fence) == (0, 0) {
            return self.template_error(it);
        }
        if matches!(it.reason(), Reason::LostClaw | Reason::Unspecified) {
            return "INVALID".into();
        }
        let now = self.now;
        let task = match self.holder(it.run, it.task, it.attempt, it.fence) {
            Ok(task) => task,
            Err(code) => return code,
        };
        if it.reason() == Reason::Cancelled {
            self.lose(it.run, it.task as usize);
            return "done".into();
        }
        let failed = task.tries + 1;
        let again = failed < task.max_attempts && it.reason() != Reason::TemplateError;
        let run = &mut self.runs[it.run as usize - 1];
        let task = &mut run.tasks[it.task as usize];
        if run.stop.is_some() {
            // The counters of a task that ends cancelled are not touched.
            task.release(T::Cancelled);
        } else {
            task.tries = failed;
            task.losses = 0;
            task.release(if again { T::Retrying } else { T::Failed });
            if again {
                task.due = now + 3_000;
            }
        }
        self.settle(it.run);
        "done".into()
    }

    fn template_error(&mut self, it: &FailTask) -> String {
        let Some(run) = self.runs.get_mut((it.run as usize).wrapping_sub(1)) else {
            return "NOT_FOUND".into();
        };
        let Some(task) = run.tasks.get_mut(it.task as usize) else { return "NOT_FOUND".into() };
        if task.state != T::Ready || run.stop.is_some() {
            return "WRONG_STATE".into();
        }
        task.release(T::Failed);
        self.settle(it.run);
        "done".into()
    }

    fn lose(&mut self, run: u64, index: usize) {
        self.seq += 1;
        let (seq, now) = (self.seq, self.now);
        let stopping = self.runs[run as usize - 1].stop.is_some();
        let task = &mut self.runs[run as usize - 1].tasks[index];
        if stopping {
            task.release(T::Cancelled);
        } else if task.losses == 3 {
            task.losses = 4;
            task.release(T::Failed);
        } else {
            task.losses += 1;
            task.release(T::Ready);
            task.seq = seq;
            task.due = if task.queue_ms > 0 { now + task.queue_ms } else { 0 };
        }
        self.settle(run);
    }

    fn fire(&mut self, timer: &TimerKey) {
        if timer.due_ms > self.now {
            return;
        }
        let run = &mut self.runs[timer.run as usize - 1];
        if timer.kind() == TimerKind::RunTimeout {
            if run.timeout_due != Some(timer.due_ms) {
                return;
            }
            run.timeout_due = None;
            run.stop_as(R::Failed);
            self.settle(timer.run);
            return;
        }
        let waits = match timer.kind() {
            TimerKind::Retry => T::Retrying,
            _ => T::Ready,
        };
        let task = &mut run.tasks[timer.task as usize];
        if task.state != waits || task.due != timer.due_ms {
            return;
        }
        if waits == T::Ready {
            task.release(T::Failed);
        } else {
            task.make_ready(&mut self.seq);
        }
        self.settle(timer.run);
    }

    fn register(&mut self, it: &RegisterClaw) -> String {
        let incarnation = it.incarnation[0];
        let used = self.used(it.claw);
        if let Some(old) = self.claws.get(&it.claw).cloned() {
            if old.incarnation == incarnation {
                if it.slots < used {
                    return "INVALID".into();
                }
            } else {
                self.lose_all(it.claw);
                self.claws.get_mut(&it.claw).unwrap().renew_seq += 1;
            }
        }
        let claw = self.claws.entry(it.claw).or_default();
        claw.incarnation = incarnation;
        claw.slots = it.slots;
        claw.down = false;
        "done".into()
    }

    fn expire(&mut self, it: &ExpireClaw) -> String {
        let Some(claw) = self.claws.get(&it.claw) else { return "UNKNOWN_CLAW".into() };
        if it.incarnation != vec![claw.incarnation; 16] || it.renew_seq != claw.renew_seq {
            return "RENEWED".into();
        }
        self.lose_all(it.claw);
        self.claws.get_mut(&it.claw).unwrap().down = true;
        "done".into()
    }

    fn lose_all(&mut self, claw: u64) {
        let mut lost = Vec::new();
        for (run, row) in self.runs.iter().enumerate() {
            for (index, task) in row.tasks.iter().enumerate() {
                if live(task.state) && task.claw == claw {
                    lost.push((task.fence, run as u64 + 1, index));
                }
            }
        }
        lost.sort_unstable();
        for (_, run, index) in lost {
            self.lose(run, index);
        }
    }

    /// Applies the rules until nothing changes any more.
    fn settle(&mut self, run: u64) {
        let now = self.now;
        let run = &mut self.runs[run as usize - 1];
        if run.stop_on_failure && run.tasks.iter().any(|task| task.state == T::Failed) && run.unfinished() > 0
        {
            run.stop_as(R::Failed);
        }
        run.admit();
        loop {
            let mut changed = false;
            for index in 0..run.tasks.len() {
                let needs: Vec<T> =
                    run.tasks[index].needs.iter().map(|need| run.tasks[*need].state).collect();
                let stop = run.stop.is_some();
                let task = &mut run.tasks[index];
                if stop && !ended(task.state) && !live(task.state) {
                    task.release(T::Cancelled);
                    changed = true;
                } else if task.state == T::Pending && needs.iter().all(|state| ended(*state)) {
                    match needs.iter().all(|state| *state == T::Succeeded) {
                        true => task.make_ready(&mut self.seq),
                        false => task.release(T::UpstreamFailed),
                    }
                    changed = true;
                }
            }
            run.admit();
            if !changed {
                break;
            }
        }
        for task in &mut run.tasks {
            if task.state == T::Ready && !task.held && task.queue_ms > 0 && task.due == 0 {
                task.due = now + task.queue_ms;
            }
        }
        if run.unfinished() == 0 && !matches!(run.state, R::Succeeded | R::Failed | R::Cancelled) {
            let failed = run.tasks.iter().any(|task| task.state == T::Failed);
            run.state = run.stop.unwrap_or(if failed { R::Failed } else { R::Succeeded });
            run.timeout_due = None;
        }
    }

    /// What is compared with the rows.
    pub fn print(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, run) in self.runs.iter().enumerate() {
            lines.push(format!("run {} {:?} stop {:?}", number + 1, run.state, run.stop));
            for (index, task) in run.tasks.iter().enumerate() {
                lines.push(format!(
                    "  {index} {:?} attempt {} tries {} losses {} fence {} claw {} held {} due {}",
                    task.state,
                    task.attempt,
                    task.tries,
                    task.losses,
                    task.fence,
                    task.claw,
                    task.held,
                    task.due
                ));
            }
        }
        for (id, claw) in &self.claws {
            let (used, slots) = (self.used(*id), claw.slots);
            lines.push(format!("claw {id} {used}/{slots} renewed {} down {}", claw.renew_seq, claw.down));
        }
        lines.push(format!("ready {:?}", self.ready()));
        lines
    }

    /// The ready tasks, best first.
    pub fn ready(&self) -> Vec<(u64, u32)> {
        let mut ready = Vec::new();
        for (number, run) in self.runs.iter().enumerate() {
            for (index, task) in run.tasks.iter().enumerate() {
                if task.state == T::Ready && !task.held {
                    ready.push((9 - run.priority, task.seq, number as u64 + 1, index as u32));
                }
            }
        }
        ready.sort_unstable();
        ready.into_iter().map(|(_, _, run, task)| (run, task)).collect()
    }
}

impl ModelRun {
    fn unfinished(&self) -> usize {
        self.tasks.iter().filter(|task| !ended(task.state)).count()
    }

    fn stop_as(&mut self, state: R) {
        if self.stop.is_none() && self.unfinished() > 0 {
            self.stop = Some(state);
        }
    }

    /// Lets held tasks in while there is room, the longest waiting first.
    fn admit(&mut self) {
        if self.stop.is_some() {
            return;
        }
        loop {
            let inside = self
                .tasks
                .iter()
                .filter(|task| live(task.state) || task.state == T::Ready && !task.held)
                .count();
            let room = self.max_parallel == 0 || inside < self.max_parallel;
            let waiting = self.tasks.iter_mut().filter(|task| task.state == T::Ready && task.held);
            match waiting.min_by_key(|task| task.seq) {
                Some(first) if room => first.held = false,
                _ => return,
            }
        }
    }
}

impl ModelTask {
    /// Leaves whatever it was in.
    fn release(&mut self, state: T) {
        self.state = state;
        self.fence = 0;
        self.claw = 0;
        self.held = false;
        self.due = 0;
    }

    fn make_ready(&mut self, seq: &mut u64) {
        *seq += 1;
        self.release(T::Ready);
        self.held = true;
        self.seq = *seq;
    }
}
