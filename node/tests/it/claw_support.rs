//! A cluster in memory for tests of the claw: grants assignments, takes reports with the fencing token, answers beats, and
//! can be made to fail or to lag.

use async_trait::async_trait;
use clawhive_node::claw::config::BaseEnv;
use clawhive_node::claw::{
    Assignment, BeatError, BeatReply, Claw, ClawConfig, ClawDeps, ClawHandle, LogQuery, ReportError, Work,
};
use clawhive_proto::{
    Command, CompleteTask, Done, EnvVar, FailTask, Outcome, Process, Reason, RegisterClaw, Rejection,
    RejectionCode, Task, Timeouts, command, outcome, task,
};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

pub type Key = (u64, u32, u32, u64);

/// How an attempt ended, as it was reported.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    Succeeded(CompleteTask),
    Failed(FailTask),
    /// By a registration.
    Lost,
}

impl Ended {
    pub fn failure(self) -> FailTask {
        match self {
            Ended::Failed(fail) => fail,
            other => panic!("expected a failure, got {other:?}"),
        }
    }

    pub fn outputs(self) -> String {
        match self {
            Ended::Succeeded(done) => done.outputs_json,
            other => panic!("expected success, got {other:?}"),
        }
    }
}

pub struct State {
    pub index: u64,
    pub registrations: Vec<(u64, RegisterClaw)>,
    pub assigned: BTreeMap<Key, (Assignment, Work)>,
    pub ended: HashMap<Key, Ended>,
    pub started: Vec<Key>,
    /// Every call of `report`, also those that were answered with an error.
    pub reports: Vec<Vec<Command>>,
    /// Fail so many calls of `report`.
    pub failing_reports: u32,
    /// The replica does not show the end of attempts.
    pub lagging: bool,
    pub beats_fail: bool,
    pub unknown: bool,
    /// When the last beat that was confirmed came in.
    pub last_beat_ns: u128,
    pub panic_on_outputs: bool,
    /// Ends that were refused.
    pub rejected: Vec<RejectionCode>,
}

pub struct Cluster {
    pub state: Mutex<State>,
    changed: Notify,
    progress: Notify,
}

pub fn now_ns() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

impl Cluster {
    pub fn new() -> Arc<Self> {
        let state = State {
            index: 10,
            registrations: Vec::new(),
            assigned: BTreeMap::new(),
            ended: HashMap::new(),
            started: Vec::new(),
            reports: Vec::new(),
            failing_reports: 0,
            lagging: false,
            beats_fail: false,
            unknown: false,
            last_beat_ns: 0,
            panic_on_outputs: false,
            rejected: Vec::new(),
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new(), progress: Notify::new() })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn touch(&self) {
        self.changed.notify_one();
        self.progress.notify_waiters();
    }

    /// Waits until the state is like that.
    pub async fn until<T>(&self, what: &str, mut look: impl FnMut(&State) -> Option<T>) -> T {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            let progress = self.progress.notified();
            if let Some(found) = look(&self.state()) {
                return found;
            }
            assert!(Instant::now() < limit, "waited too long for {what}");
            tokio::select! {
                () = progress => {}
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
    }

    pub async fn registered(&self) {
        self.until("a registration", |state| (!state.registrations.is_empty()).then_some(())).await;
    }

    /// Grants a task; the run is new.
    pub async fn assign(&self, task: Task) -> Key {
        self.registered().await;
        let mut state = self.state();
        state.index += 1;
        let fence = state.index;
        let key = (fence, 0, 1, fence);
        let assignment = Assignment { run: fence, task: 0, attempt: 1, fence, stop: None };
        let work = Work { task, namespace: "tests".into(), workflow: "flow".into(), ..Work::default() };
        state.assigned.insert(key, (assignment, work));
        drop(state);
        self.touch();
        key
    }

    pub async fn end(&self, key: Key) -> Ended {
        self.until("the end of an attempt", |state| state.ended.get(&key).cloned()).await
    }

    pub async fn start_of(&self, key: Key) {
        self.until("the start of an attempt", |state| state.started.contains(&key).then_some(())).await;
    }

    pub fn stop(&self, key: Key, reason: Reason) {
        if let Some((assignment, _)) = self.state().assigned.get_mut(&key) {
            assignment.stop = Some(reason);
        }
        self.touch();
    }

    /// Grants a task and waits for its end.
    pub async fn run(&self, task: Task) -> (Key, Ended) {
        let key = self.assign(task).await;
        (key, self.end(key).await)
    }

    fn apply(&self, state: &mut State, command: &Command) -> Outcome {
        state.index += 1;
        let (key, ended) = match command.kind.clone().unwrap() {
            command::Kind::StartTask(start) => ((start.run, start.task, start.attempt, start.fence), None),
            command::Kind::CompleteTask(done) => {
                ((done.run, done.task, done.attempt, done.fence), Some(Ended::Succeeded(done)))
            }
            command::Kind::FailTask(fail) => {
                ((fail.run, fail.task, fail.attempt, fail.fence), Some(Ended::Failed(fail)))
            }
            other => panic!("a claw does not report {other:?}"),
        };
        let known = state.assigned.contains_key(&key) && !state.ended.contains_key(&key);
        if !known {
            // A start may be sent twice.
            if ended.is_some() {
                state.rejected.push(RejectionCode::StaleFence);
            }
            return rejected(RejectionCode::StaleFence);
        }
        if ended.is_none() && state.started.contains(&key) {
            return rejected(RejectionCode::WrongState);
        }
        match ended {
            None => state.started.push(key),
            Some(ended) => {
                state.ended.insert(key, ended);
                if !state.lagging {
                    state.assigned.remove(&key);
                }
            }
        }
        Outcome { kind: Some(outcome::Kind::Done(Done {})) }
    }
}

fn rejected(code: RejectionCode) -> Outcome {
    Outcome {
        kind: Some(outcome::Kind::Rejected(Rejection { code: code.into(), message: "refused".into() })),
    }
}

#[async_trait]
impl ClawDeps for Cluster {
    fn now_ms(&self) -> u64 {
        (now_ns() / 1_000_000) as u64
    }

    fn new_incarnation(&self) -> [u8; 16] {
        let mut state = self.state();
        state.index += 1;
        u128::from(state.index).to_be_bytes()
    }

    fn assignments(&self) -> Vec<Assignment> {
        self.state().assigned.values().map(|(assignment, _)| assignment.clone()).collect()
    }

    fn work(&self, assignment: &Assignment) -> Result<Option<Work>, String> {
        let key = (assignment.run, assignment.task, assignment.attempt, assignment.fence);
        Ok(self.state().assigned.get(&key).map(|(_, work)| work.clone()))
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn report(&self, commands: Vec<Command>) -> Result<Vec<Outcome>, ReportError> {
        // As long as a commit takes.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut state = self.state();
        state.reports.push(commands.clone());
        if state.failing_reports > 0 {
            state.failing_reports -= 1;
            return Err(ReportError("no quorum".into()));
        }
        let outcomes = commands.iter().map(|command| self.apply(&mut state, command)).collect();
        drop(state);
        self.touch();
        Ok(outcomes)
    }

    async fn register(&self, registration: RegisterClaw) -> Result<u64, ReportError> {
        let mut state = self.state();
        if state.beats_fail {
            return Err(ReportError("no quorum".into()));
        }
        state.unknown = false;
        state.index += 1;
        let index = state.index;
        state.registrations.push((index, registration));
        let lost: Vec<Key> = state.assigned.keys().copied().collect();
        for key in lost {
            state.ended.entry(key).or_insert(Ended::Lost);
            if !state.lagging {
                state.assigned.remove(&key);
            }
        }
        drop(state);
        self.touch();
        Ok(index)
    }

    async fn beat(&self, _incarnation: [u8; 16]) -> Result<BeatReply, BeatError> {
        let mut state = self.state();
        if state.beats_fail {
            return Err(BeatError("not reachable".into()));
        }
        if state.unknown {
            return Ok(BeatReply::Unknown);
        }
        state.last_beat_ns = now_ns();
        Ok(BeatReply::Confirmed)
    }

    fn check_outputs(&self, task: &Task, written: &[u8]) -> Result<String, String> {
        assert!(!self.state().panic_on_outputs, "asked for");
        if written.is_empty() {
            return Err(format!("output {:?} is missing", task.outputs[0].name));
        }
        String::from_utf8(written.to_vec()).map_err(|error| error.to_string())
    }
}

pub fn config(dir: &Path) -> ClawConfig {
    let mut config = ClawConfig::new(1, dir);
    config.slots = 8;
    config.host = "testhost".into();
    config.server_addr = "127.0.0.1:7400".into();
    config.base_env = BaseEnv { path: "/usr/bin:/bin".into(), home: "/nowhere".into(), lang: "C".into() };
    config
}

pub struct Setup {
    pub dir: tempfile::TempDir,
    pub cluster: Arc<Cluster>,
    pub claw: ClawHandle,
}

pub fn setup_with(change: impl FnOnce(&mut ClawConfig)) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::new();
    let mut config = config(dir.path());
    change(&mut config);
    let claw = Claw::start(config, cluster.clone()).unwrap();
    Setup { dir, cluster, claw }
}

pub fn setup() -> Setup {
    setup_with(|_| {})
}

impl Setup {
    /// All bytes of the attempt's log, notes of the claw left out.
    pub async fn log(&self, key: Key) -> Vec<u8> {
        self.read(key, 0).await.0
    }

    pub async fn notes(&self, key: Key) -> String {
        self.read(key, 0).await.1
    }

    pub async fn read(&self, key: Key, tail_lines: u32) -> (Vec<u8>, String) {
        let query = LogQuery { run: key.0, task: key.1, attempt: key.2, tail_lines, follow: true, offset: 0 };
        let mut reader = self.claw.logs().read(query).unwrap();
        let (mut bytes, mut notes) = (Vec::new(), String::new());
        while let Some(piece) = reader.next().await.unwrap() {
            if piece.note {
                notes.push_str(&String::from_utf8_lossy(&piece.data));
            } else {
                bytes.extend_from_slice(&piece.data);
            }
        }
        (bytes, notes)
    }
}

pub fn run(text: &str) -> Task {
    Task { name: "t".into(), executor: Some(task::Executor::Run(text.into())), ..Task::default() }
}

pub fn process(command: &[&str]) -> Task {
    let command = command.iter().map(|&word| word.to_owned()).collect();
    let process = Process { command, working_dir: String::new() };
    Task { name: "t".into(), executor: Some(task::Executor::Process(process)), ..Task::default() }
}

pub fn process_in(dir: &str, command: &[&str]) -> Task {
    let mut task = process(command);
    if let Some(task::Executor::Process(process)) = &mut task.executor {
        process.working_dir = dir.into();
    }
    task
}

pub fn limits(mut task: Task, execution_ms: u64, grace_ms: u64) -> Task {
    task.timeout = Some(Timeouts { queue_ms: 0, execution_ms, grace_ms });
    task
}

pub fn env(mut task: Task, name: &str, value: &str) -> Task {
    task.env.push(EnvVar { name: name.into(), value: value.into() });
    task
}

/// Processes whose command line holds this.
pub fn processes(part: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).replace('\0', " ").contains(part) {
            found.push(pid);
        }
    }
    found
}

/// Waits until no process holds this in its command line.
pub async fn gone(part: &str) {
    let limit = Instant::now() + Duration::from_secs(5);
    loop {
        let left = processes(part);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < limit, "{part:?} still runs: {left:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a process holds this in its command line.
pub async fn there(part: &str) {
    let limit = Instant::now() + Duration::from_secs(20);
    while processes(part).is_empty() {
        assert!(Instant::now() < limit, "{part:?} does not run");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
