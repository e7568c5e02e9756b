//! What must hold of runs on a real cluster, judged from what the API shows and from the counter file. Owns the
//! judgement only; must not ask the cluster anything.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use clawhive_client::proto::{AttemptState, Reason, RunState, RunView, TaskState, TaskView};

use super::flow::Flow;

/// Lines of the counter file: (run, task) to the attempts that wrote one.
pub type Counter = BTreeMap<(u64, usize), Vec<u32>>;

/// Reads a counter file; none there is an empty one.
pub fn read_counter(path: &std::path::Path) -> Result<Counter> {
    let mut counter = Counter::new();
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(counter),
        text => text?,
    };
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().with_context(|| format!("odd line in the counter file: {line}"));
        let run = word()?.parse()?;
        let task = word()?.trim_start_matches('t').parse()?;
        counter.entry((run, task)).or_default().push(word()?.parse()?);
    }
    Ok(counter)
}

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Broken promises.
    pub broken: Vec<String>,
    /// Tasks whose effect happened more than once, each explained by an attempt that was lost with its claw.
    pub repeats: usize,
    /// Attempts that ended as lost.
    pub lost: usize,
    /// Tasks that succeeded.
    pub succeeded: usize,
    /// All attempts.
    pub attempts: usize,
}

impl Findings {
    /// Adds what was found elsewhere.
    pub fn add(&mut self, other: Findings) {
        self.broken.extend(other.broken);
        self.repeats += other.repeats;
        self.lost += other.lost;
        self.succeeded += other.succeeded;
        self.attempts += other.attempts;
    }
}

fn state(task: &TaskView) -> TaskState {
    task.row.as_ref().map_or(TaskState::Unspecified, |row| row.state())
}

/// Judges one run that should have ended.
pub fn judge(flow: &Flow, view: &RunView, counter: &Counter) -> Findings {
    let mut findings = Findings::default();
    let run = view.id;
    let mut broken = |what: String| findings.broken.push(format!("run {run}: {what}"));
    let run_state = view.run.as_ref().map_or(RunState::Unspecified, |row| row.state());
    if !matches!(run_state, RunState::Succeeded | RunState::Failed | RunState::Cancelled) {
        broken(format!("was acknowledged and is {run_state:?}"));
        return findings;
    }
    if view.tasks.len() != flow.steps.len() {
        broken(format!("has {} tasks instead of {}", view.tasks.len(), flow.steps.len()));
        return findings;
    }
    // A task that was lost with its claw too often fails as well; what follows from a failure does not depend on why.
    let failed: BTreeSet<usize> =
        (0..view.tasks.len()).filter(|task| state(&view.tasks[*task]) == TaskState::Failed).collect();
    let blocked = flow.descendants(&failed);
    let expected = if failed.is_empty() { RunState::Succeeded } else { RunState::Failed };
    if run_state != expected {
        broken(format!("ended as {run_state:?} with {} failed tasks", failed.len()));
    }
    let (mut repeats, mut lost, mut succeeded, mut attempts) = (0, 0, 0, 0);
    for (place, task) in view.tasks.iter().enumerate() {
        let ended = state(task);
        let right = match ended {
            TaskState::Succeeded => !blocked.contains(&place) && !flow.steps[place].fails,
            TaskState::UpstreamFailed => blocked.contains(&place),
            TaskState::Failed => {
                let reason = task.row.as_ref().map_or(Reason::Unspecified, |row| row.reason());
                flow.steps[place].fails || reason == Reason::LostClaw
            }
            _ => false,
        };
        if !right {
            broken(format!("{} ended as {ended:?}; blocked: {}", task.name, blocked.contains(&place)));
        }
        attempts += task.attempts.len();
        succeeded += usize::from(ended == TaskState::Succeeded);
        let (of_task, complaints) = judge_attempts(task, ended, counter.get(&(run, place)));
        lost += of_task.lost;
        repeats += of_task.repeats;
        complaints.into_iter().for_each(&mut broken);
        for need in &flow.steps[place].needs {
            let parent_end = view.tasks[*need].row.as_ref().map_or(0, |row| row.ended_at_ms);
            for attempt in task.attempts.iter().filter_map(|attempt| attempt.row.as_ref()) {
                if attempt.dispatched_at_ms < parent_end {
                    broken(format!("{} was dispatched before t{need} ended", task.name));
                }
            }
        }
    }
    findings.repeats = repeats;
    findings.lost = lost;
    findings.succeeded = succeeded;
    findings.attempts = attempts;
    findings
}

fn judge_attempts(task: &TaskView, ended: TaskState, lines: Option<&Vec<u32>>) -> (Findings, Vec<String>) {
    let mut found = Findings::default();
    let mut complaints = Vec::new();
    let mut accepted = Vec::new();
    let mut last_end = 0;
    let mut lost = BTreeSet::new();
    for (position, attempt) in task.attempts.iter().enumerate() {
        let Some(row) = &attempt.row else { continue };
        if attempt.number as usize != position + 1 {
            complaints.push(format!(
                "{} has attempt {} in place {}",
                task.name,
                attempt.number,
                position + 1
            ));
        }
        if row.dispatched_at_ms < last_end {
            complaints.push(format!("attempt {} of {} overlaps the one before", attempt.number, task.name));
        }
        last_end = row.ended_at_ms;
        match row.state() {
            AttemptState::Succeeded => accepted.push(attempt.number),
            AttemptState::Failed if row.reason() == Reason::LostClaw => {
                lost.insert(attempt.number);
            }
            // A claw that stops gives its attempts up: as if it were lost.
            AttemptState::Cancelled => {
                lost.insert(attempt.number);
            }
            AttemptState::Failed => {}
            other => {
                complaints.push(format!("attempt {} of {} rests as {other:?}", attempt.number, task.name))
            }
        }
    }
    found.lost = lost.len();
    if accepted.len() != usize::from(ended == TaskState::Succeeded) {
        complaints.push(format!("{} is {ended:?} with accepted successes {accepted:?}", task.name));
    }
    let lines = lines.map_or(&[][..], Vec::as_slice);
    let unique: BTreeSet<u32> = lines.iter().copied().collect();
    if unique.len() != lines.len() {
        complaints.push(format!("one attempt of {} took effect twice: {lines:?}", task.name));
    }
    for attempt in &accepted {
        if !unique.contains(attempt) {
            complaints.push(format!("{} succeeded with attempt {attempt}, which left no line", task.name));
        }
    }
    for attempt in unique.iter().filter(|attempt| !accepted.contains(attempt)) {
        if !lost.contains(attempt) {
            complaints.push(format!(
                "attempt {attempt} of {} took effect and is neither accepted nor lost",
                task.name
            ));
        }
    }
    found.repeats = unique.len().saturating_sub(1);
    (found, complaints)
}

/// No claw ever held more attempts than it has slots.
pub fn judge_slots(views: &[RunView], slots: &BTreeMap<u64, u32>) -> Vec<String> {
    let mut changes: BTreeMap<u64, Vec<(u64, i64)>> = BTreeMap::new();
    for task in views.iter().flat_map(|view| &view.tasks) {
        for row in task.attempts.iter().filter_map(|attempt| attempt.row.as_ref()) {
            if row.ended_at_ms > row.dispatched_at_ms {
                let of_claw = changes.entry(row.claw).or_default();
                of_claw.extend([(row.dispatched_at_ms, 1), (row.ended_at_ms, -1)]);
            }
        }
    }
    let mut broken = Vec::new();
    for (claw, mut changes) in changes {
        // In the same millisecond ends come first: the entry that ends one may start the next.
        changes.sort_unstable();
        let mut held = 0;
        let most = changes
            .iter()
            .map(|(_, change)| {
                held += change;
                held
            })
            .max()
            .unwrap_or(0);
        match slots.get(&claw) {
            Some(slots) if most <= i64::from(*slots) => {}
            slots => broken.push(format!("claw {claw} held {most} attempts at once; its slots: {slots:?}")),
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use clawhive_client::proto::{AttemptRow, AttemptView, RunRow, TaskRow};

    use super::super::flow::Step;
    use super::*;

    fn flow() -> Flow {
        let step = |needs: &[usize]| Step { needs: needs.to_vec(), ..Step::default() };
        Flow { name: "f".to_owned(), steps: vec![step(&[]), step(&[0])], max_attempts: 1 }
    }

    fn attempt(number: u32, state: AttemptState, reason: Reason, from: u64, until: u64) -> AttemptView {
        let row = AttemptRow {
            state: state.into(),
            reason: reason.into(),
            claw: 1,
            dispatched_at_ms: from,
            ended_at_ms: until,
            ..AttemptRow::default()
        };
        AttemptView { number, row: Some(row) }
    }

    fn task(name: &str, state: TaskState, attempts: Vec<AttemptView>) -> TaskView {
        let ended_at_ms = attempts.last().and_then(|it| it.row.as_ref()).map_or(0, |row| row.ended_at_ms);
        let row = Some(TaskRow { state: state.into(), ended_at_ms, ..TaskRow::default() });
        TaskView { name: name.to_owned(), row, attempts, ..TaskView::default() }
    }

    fn good() -> RunView {
        let (lost, done) = (AttemptState::Failed, AttemptState::Succeeded);
        let first =
            vec![attempt(1, lost, Reason::LostClaw, 10, 20), attempt(2, done, Reason::Unspecified, 21, 30)];
        let second = vec![attempt(1, done, Reason::Unspecified, 30, 40)];
        let run = Some(RunRow { state: RunState::Succeeded.into(), ..RunRow::default() });
        let tasks = vec![task("t0", TaskState::Succeeded, first), task("t1", TaskState::Succeeded, second)];
        RunView { id: 5, run, tasks, ..RunView::default() }
    }

    fn counter(of_first: &[u32], of_second: &[u32]) -> Counter {
        BTreeMap::from([((5, 0), of_first.to_vec()), ((5, 1), of_second.to_vec())])
    }

    #[test]
    fn a_repeat_by_a_lost_attempt_is_counted_and_forgiven() {
        let findings = judge(&flow(), &good(), &counter(&[1, 2], &[1]));
        assert_eq!(
            (findings.broken.len(), findings.repeats, findings.lost),
            (0, 1, 1),
            "{:?}",
            findings.broken
        );
    }

    #[test]
    fn every_promise_can_be_broken() {
        let complains = |change: &dyn Fn(&mut RunView), counter: Counter, word: &str| {
            let mut view = good();
            change(&mut view);
            let broken = judge(&flow(), &view, &counter).broken;
            assert!(broken.iter().any(|line| line.contains(word)), "{word}: {broken:?}");
        };
        let right = || counter(&[2], &[1]);
        complains(&|_| {}, counter(&[2, 2], &[1]), "took effect twice");
        complains(&|_| {}, counter(&[2], &[]), "left no line");
        complains(&|_| {}, counter(&[2], &[1, 7]), "neither accepted nor lost");
        complains(&|view| view.tasks[1].attempts[0].number = 2, right(), "in place 1");
        complains(
            &|view| view.tasks[0].attempts[1].row.as_mut().unwrap().dispatched_at_ms = 15,
            right(),
            "overlaps",
        );
        complains(
            &|view| view.tasks[1].attempts[0].row.as_mut().unwrap().dispatched_at_ms = 29,
            right(),
            "before t0",
        );
        complains(
            &|view| view.tasks[0].row.as_mut().unwrap().set_state(TaskState::Cancelled),
            right(),
            "Cancelled",
        );
        complains(&|view| view.run.as_mut().unwrap().set_state(RunState::Running), right(), "acknowledged");
        complains(&|view| view.run.as_mut().unwrap().set_state(RunState::Failed), right(), "0 failed tasks");
        complains(
            &|view| view.tasks[0].attempts[0].row.as_mut().unwrap().set_state(AttemptState::Succeeded),
            counter(&[1, 2], &[1]),
            "accepted successes",
        );
    }

    #[test]
    fn slots_are_counted_over_all_runs() {
        let slots = BTreeMap::from([(1, 1)]);
        assert!(judge_slots(&[good()], &slots).is_empty());
        assert_eq!(judge_slots(&[good(), good()], &slots).len(), 1);
        assert_eq!(judge_slots(&[good()], &BTreeMap::new()).len(), 1);
    }
}
