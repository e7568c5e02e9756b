//! The commands of a script. A line may start with `at HH:MM:SS` or `+DURATION`, which moves the clock, and may end
//! with `request=N`, which gives its entry a request id.
//!
//! ```text
//! workflow NAME [max_parallel=N] [on_failure=stop] [timeout=D] [priority=N] [chain=N] [fan=N]
//!   TASK [needs=A,B | needs=#0,#1] [retries=N] [max_attempts=N] [delay=D] [backoff=fixed] [jitter=N] [queue=D]
//!        [delivery=at_most_once|strict_single]
//! claw ID slots=N [incarnation=N] [lease=D]
//! submit NAME [key=K] [body=N] [version=N] [times=N]
//! plan [live=1,2] [leader=N] [limit=N]      assign::plan, proposed
//! assign TASK attempt=N claw=N              a grant of one's own
//! start TASK | complete TASK.. | fail TASK REASON | template_error TASK   [token=N|old] [attempt=N]
//!                      `token=old`: that of the attempt with the given number
//! give_back TASK       as fail TASK cancelled, and the claw vouches that it never started
//! handover TASK..                           completions and handover::plan in one entry
//! fire | reap | collect | advance [once]      the plan of that name, proposed
//! lead                 another leader: it counts leases anew, from what the state says
//! checkpoint           the leader's, of leases that nobody renews
//! left CLAW ms=N [seq=N] [incarnation=N]      a checkpoint of one's own
//! renew CLAW [incarnation=N] | expire CLAW [seq=N] [incarnation=N]
//! cancel RUN
//! restore | resume                          the first entry of a restored cluster; the end of its rest
//! show tasks|run|runs|claws|attempts|ready|timers|backlog|counts|locks|keys [..]
//! lock .. | kv ..      see locks.rs
//! ```
//! TASK is `name` (of the newest run), or `RUN/name`.

use std::collections::{BTreeMap, BTreeSet};

use clawhive_statemachine::ids::{AttemptNumber, RunId, TaskIndex, Version, WorkflowUid};
use clawhive_statemachine::plan;
use clawhive_statemachine::plan::assign::AssignInput;
use clawhive_statemachine::plan::leases::Leases;
use clawhive_statemachine::proto::command::Kind;
use clawhive_statemachine::proto::*;
use clawhive_statemachine::read;

use super::{locks, show};
use crate::cluster::{Cluster, DAY_MS, put, register, submit, task, workflow};

pub struct Play {
    pub cluster: Cluster,
    /// As the current leader counts them; it looks after every entry.
    leases: Leases,
    /// Of the leader, as far as locks go.
    pub watch: plan::locks::LockWatch,
}

/// The words of a line: bare ones, and `key=value`.
pub struct Words<'a> {
    pub bare: Vec<&'a str>,
    pairs: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    pub fn new(line: &'a str) -> Words<'a> {
        let (pairs, bare): (Vec<_>, Vec<_>) = line.split_whitespace().partition(|word| word.contains('='));
        Words { bare, pairs: pairs.into_iter().filter_map(|word| word.split_once('=')).collect() }
    }

    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.get(key).copied()
    }

    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key).map(|value| value.parse().unwrap_or_else(|_| panic!("{key}={value}")))
    }

    pub fn duration(&self, key: &str) -> Option<u64> {
        self.get(key).map(duration)
    }
}

fn duration(text: &str) -> u64 {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        other => panic!("no unit {other}"),
    };
    digits.parse::<u64>().unwrap() * unit
}

fn time_of_day(text: &str) -> u64 {
    let (text, millis) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<u64> = text.split(':').map(|part| part.parse().unwrap()).collect();
    DAY_MS + (parts[0] * 3_600 + parts[1] * 60 + parts[2]) * 1_000 + millis.parse::<u64>().unwrap()
}

impl Play {
    pub fn new() -> Play {
        Play { cluster: Cluster::new(), leases: Leases::default(), watch: plan::locks::LockWatch::default() }
    }

    /// Runs the lines of a block and answers with what they print.
    pub fn block(&mut self, lines: &[&str]) -> String {
        let mut printed = String::new();
        let mut index = 0;
        while index < lines.len() {
            let own = lines[index + 1..].iter().take_while(|line| line.starts_with(' ')).count();
            printed += &self.line(lines[index], &lines[index + 1..index + 1 + own]);
            index += 1 + own;
        }
        printed
    }

    fn line(&mut self, line: &str, below: &[&str]) -> String {
        let mut rest = line.trim();
        if let Some(after) = rest.strip_prefix("at ") {
            let (time, after) = after.split_once(' ').unwrap_or((after, ""));
            self.cluster.now = time_of_day(time);
            rest = after;
        } else if rest.starts_with('+') {
            let (step, after) = rest[1..].split_once(' ').unwrap_or((&rest[1..], ""));
            self.cluster.now += duration(step);
            rest = after;
        }
        let words = Words::new(rest);
        let Some(verb) = words.bare.first() else { return String::new() };
        if *verb == "show" {
            return show::show(self, &words);
        }
        if *verb == "lead" {
            self.leases = Leases::default();
            self.leases.look(&self.cluster.store, self.cluster.now);
            return String::new();
        }
        let commands = match *verb {
            "lock" | "kv" => locks::commands(self, &words, below),
            verb => self.commands(verb, &words, below),
        };
        if commands.is_empty() {
            return "nothing\n".into();
        }
        let mut printed = self.entry(&words, commands);
        while *verb == "advance" && words.bare.get(1) != Some(&"once") {
            let Some(more) = plan::advance::plan(&self.cluster.store) else { break };
            printed += &self.entry(&words, vec![Kind::Advance(more)]);
        }
        printed
    }

    fn entry(&mut self, words: &Words<'_>, kinds: Vec<Kind>) -> String {
        let request = words.number("request").map_or_else(Vec::new, |number| vec![number as u8; 16]);
        let commands = kinds.into_iter().map(|kind| Command { kind: Some(kind) }).collect();
        let applied = self.cluster.entry(&request, commands);
        self.leases.look(&self.cluster.store, self.cluster.now);
        show::applied(self, &applied)
    }

    fn commands(&mut self, verb: &str, words: &Words<'_>, below: &[&str]) -> Vec<Kind> {
        let store = &self.cluster.store;
        let now = self.cluster.now;
        let second = words.bare.get(1).copied().unwrap_or_default();
        match verb {
            "workflow" => vec![put(definition(second, words, below))],
            "claw" => vec![claw(second, words)],
            "submit" => {
                let times = words.number("times").unwrap_or(1) as usize;
                vec![submission(second, words); times]
            }
            "plan" => {
                let live = live(words, self);
                let grants = plan::assign::plan(store, &input(words, &live));
                if grants.is_empty() { vec![] } else { vec![Kind::AssignTasks(AssignTasks { grants })] }
            }
            "assign" => {
                let (run, task) = self.place(second);
                let grant = Grant {
                    run,
                    task,
                    attempt: words.number("attempt").unwrap() as u32,
                    claw: words.number("claw").unwrap(),
                    resolved: None,
                };
                vec![Kind::AssignTasks(AssignTasks { grants: vec![grant] })]
            }
            "start" | "complete" | "fail" | "give_back" | "template_error" => self.report(verb, words),
            "handover" => {
                let mut kinds = self.report("complete", words);
                let reports: Vec<Command> =
                    kinds.iter().map(|kind| Command { kind: Some(kind.clone()) }).collect();
                let live = live(words, self);
                let grants = plan::handover::plan(store, &reports, &input(words, &live));
                kinds.push(Kind::AssignTasks(AssignTasks { grants }));
                kinds
            }
            "fire" => plan::fire::plan(store, now, 256).command.map(Kind::FireTimers).into_iter().collect(),
            "reap" => self.leases.expired(now).into_iter().map(Kind::ExpireClaw).collect(),
            "checkpoint" => self.leases.checkpoint(now).map(Kind::CheckpointLeases).into_iter().collect(),
            "collect" => plan::collect::plan(store, now).command.map(Kind::Collect).into_iter().collect(),
            "advance" => plan::advance::plan(store).map(Kind::Advance).into_iter().collect(),
            "renew" | "expire" | "left" => {
                let claw: u64 = second.parse().unwrap();
                let incarnation = vec![words.number("incarnation").unwrap_or(1) as u8; 16];
                if verb == "renew" {
                    let renewals = vec![Renewal { claw, incarnation }];
                    return vec![Kind::RenewLeases(RenewLeases { renewals })];
                }
                let renew_seq = words
                    .number("seq")
                    .unwrap_or_else(|| read::claw(store, claw.into()).map_or(0, |row| row.renew_seq));
                if verb == "left" {
                    let remaining_ms = words.number("ms").unwrap();
                    let leases = vec![LeaseLeft { claw, incarnation, renew_seq, remaining_ms }];
                    return vec![Kind::CheckpointLeases(CheckpointLeases { leases })];
                }
                vec![Kind::ExpireClaw(ExpireClaw { claw, incarnation, renew_seq })]
            }
            "cancel" => {
                vec![Kind::CancelRun(CancelRun { run: second.parse().unwrap(), reason: "by hand".into() })]
            }
            "restore" => vec![Kind::RestoreCluster(RestoreCluster {
                join_id: vec![1; 16],
                from_cluster: vec![2; 16],
                from_index: self.cluster.log.len() as u64,
            })],
            "resume" => vec![Kind::ResumeCluster(ResumeCluster {})],
            other => panic!("no command {other}"),
        }
    }

    fn report(&self, verb: &str, words: &Words<'_>) -> Vec<Kind> {
        let names = if verb == "fail" { &words.bare[1..2] } else { &words.bare[1..] };
        names.iter().map(|name| self.one_report(verb, name, words)).collect()
    }

    fn one_report(&self, verb: &str, name: &str, words: &Words<'_>) -> Kind {
        let (run, task) = self.place(name);
        let row = read::task(&self.cluster.store, RunId(run), TaskIndex(task)).unwrap_or_default();
        let attempt = words.number("attempt").map_or(row.attempt, |attempt| attempt as u32);
        let fence = match words.get("token") {
            Some("old") => {
                let number = AttemptNumber(attempt);
                read::attempt(&self.cluster.store, RunId(run), TaskIndex(task), number).unwrap().fence
            }
            Some(token) => token.parse().unwrap(),
            None => row.fence,
        };
        match verb {
            "start" => Kind::StartTask(StartTask { run, task, attempt, fence }),
            "complete" => {
                let outputs_json = words.get("outputs").unwrap_or_default().into();
                Kind::CompleteTask(CompleteTask { run, task, attempt, fence, outputs_json })
            }
            "template_error" => Kind::FailTask(FailTask {
                run,
                task,
                reason: Reason::TemplateError as i32,
                message: "no such output".into(),
                ..FailTask::default()
            }),
            _ => {
                let never_started = verb == "give_back";
                let usual = if never_started { "cancelled" } else { "exit" };
                let word = words.bare.get(2).unwrap_or(&usual).to_uppercase();
                let reason = Reason::from_str_name(&format!("REASON_{word}")).unwrap();
                let exit_code = (reason == Reason::Exit).then_some(1);
                let message = words.get("message").unwrap_or_default().into();
                let reason = reason as i32;
                Kind::FailTask(FailTask {
                    run,
                    task,
                    attempt,
                    fence,
                    reason,
                    exit_code,
                    signal: None,
                    message,
                    never_started,
                })
            }
        }
    }

    /// Reads `name` or `RUN/name`.
    pub fn place(&self, text: &str) -> (u64, u32) {
        let newest = read::meta(&self.cluster.store).next_run.saturating_sub(1);
        let (run, name) = match text.split_once('/') {
            Some((run, name)) => (run.parse().unwrap(), name),
            None => (newest, text),
        };
        let names = self.names(run);
        let index = names.iter().position(|known| known == name);
        (run, index.map_or_else(|| name.parse().unwrap(), |index| index as u32))
    }

    /// The names of the tasks of a run.
    pub fn names(&self, run: u64) -> Vec<String> {
        let Some(row) = read::run(&self.cluster.store, RunId(run)) else { return Vec::new() };
        read::specs(&self.cluster.store, WorkflowUid(row.workflow_uid), Version(row.version))
            .into_iter()
            .map(|spec| spec.task.unwrap_or_default().name)
            .collect()
    }
}

fn input<'a>(words: &Words<'_>, live: &'a BTreeSet<u64>) -> AssignInput<'a> {
    AssignInput {
        live,
        leader: words.number("leader").unwrap_or(0),
        limit: words.number("limit").unwrap_or(1_000) as usize,
    }
}

fn live(words: &Words<'_>, play: &Play) -> BTreeSet<u64> {
    match words.get("live") {
        Some(list) => list.split(',').map(|id| id.parse().unwrap()).collect(),
        None => read::claws(&play.cluster.store).into_iter().map(|(id, _)| id.0).collect(),
    }
}

fn claw(id: &str, words: &Words<'_>) -> Kind {
    let incarnation = words.number("incarnation").unwrap_or(1) as u8;
    let slots = words.number("slots").unwrap_or(1) as u32;
    let mut kind = register(id.parse().unwrap(), incarnation, slots);
    if let (Kind::RegisterClaw(register), Some(lease)) = (&mut kind, words.duration("lease")) {
        register.lease_ms = lease;
    }
    kind
}

fn submission(name: &str, words: &Words<'_>) -> Kind {
    let mut kind = submit(name);
    if let Kind::SubmitRun(submit) = &mut kind {
        submit.idempotency_key = words.get("key").unwrap_or_default().into();
        submit.body_hash = vec![words.number("body").unwrap_or(1) as u8];
        submit.version = words.number("version").unwrap_or(0);
    }
    kind
}

fn definition(name: &str, words: &Words<'_>, below: &[&str]) -> Workflow {
    let mut tasks: Vec<Task> = Vec::new();
    for line in below {
        let words = Words::new(line);
        let needs: Vec<u32> = words
            .get("needs")
            .map_or_else(Vec::new, |list| list.split(',').map(|need| need_of(&tasks, need)).collect());
        let mut new = task(words.bare[0], &needs);
        new.retries = retries(&words);
        new.set_delivery(match words.get("delivery") {
            Some("at_most_once") => Delivery::AtMostOnce,
            Some("strict_single") => Delivery::StrictSingle,
            _ => Delivery::AtLeastOnce,
        });
        new.timeout = words.duration("queue").map(|queue_ms| Timeouts { queue_ms, ..Timeouts::default() });
        tasks.push(new);
    }
    if let Some(length) = words.number("chain") {
        tasks = (0..length as u32)
            .map(|index| task(&format!("t{index}"), &index.checked_sub(1).into_iter().collect::<Vec<_>>()))
            .collect();
    }
    if let Some(width) = words.number("fan") {
        let width = width as u32;
        tasks = vec![task("source", &[])];
        tasks.extend((0..width).map(|index| task(&format!("f{index}"), &[0])));
        tasks.push(task("sink", &(1..=width).collect::<Vec<_>>()));
    }
    let mut workflow = workflow(name, tasks);
    workflow.max_parallel = words.number("max_parallel").unwrap_or(0) as u32;
    workflow.priority = words.number("priority").unwrap_or(0) as u32;
    workflow.timeout_ms = words.duration("timeout").unwrap_or(0);
    if words.get("on_failure") == Some("stop") {
        workflow.set_on_failure(OnFailure::Stop);
    }
    workflow
}

fn need_of(tasks: &[Task], need: &str) -> u32 {
    match need.strip_prefix('#') {
        Some(number) => number.parse().unwrap(),
        None => tasks.iter().position(|task| task.name == need).unwrap() as u32,
    }
}

fn retries(words: &Words<'_>) -> Option<Retries> {
    let max_attempts = match (words.number("retries"), words.number("max_attempts")) {
        (Some(retries), _) => retries as u32 + 1,
        (None, Some(most)) => most as u32,
        (None, None) => return None,
    };
    let backoff = match words.get("backoff") {
        Some("fixed") => Backoff::Fixed,
        Some("linear") => Backoff::Linear,
        _ => Backoff::Exponential,
    };
    Some(Retries {
        max_attempts,
        delay_ms: words.duration("delay").unwrap_or(30_000),
        backoff: backoff as i32,
        max_delay_ms: words.duration("max_delay").unwrap_or(600_000),
        jitter_permille: words.number("jitter").unwrap_or(0) as u32,
    })
}
