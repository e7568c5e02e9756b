//! Clients: they put workflows, submit runs, cancel, repeat themselves, and retry under one request id what was not
//! answered. Owns what clients were told; must not look at any replica.

use std::collections::BTreeMap;
use std::rc::Rc;

use clawhive_proto::command::Kind;
use clawhive_proto::outcome::Kind as Told;
use clawhive_proto::{CancelRun, PutWorkflow, SubmitRun};

use super::graphs::Graph;
use super::history::Fact;
use super::profile::Profile;
use super::world::{Answer, Event, Reply, World};
use crate::rng::Rng;

/// A write of a client.
pub struct Request {
    id: [u8; 16],
    commands: Vec<Kind>,
    made_ms: u64,
    /// Answered, or given up since its id may be forgotten by now.
    pub over: bool,
    key: Option<(String, String)>,
    body: Vec<u8>,
}

/// All clients together.
pub struct Clients {
    rng: Rng,
    pool: Vec<Rc<Graph>>,
    /// Everything ever asked.
    pub requests: Vec<Request>,
    submitted: u32,
    /// The first body of each key.
    keys: BTreeMap<String, usize>,
    /// Runs that a client was told of.
    pub told: Vec<u64>,
}

/// A request id is remembered for ten minutes of log time; a careful client stops retrying well before.
const PATIENCE_MS: u64 = 5 * 60 * 1000;

impl Clients {
    /// Clients with a handful of workflows.
    pub fn new(seed: u64, profile: &Profile) -> Clients {
        let mut rng = Rng::of(seed, &[4]);
        let mut pool = vec![Rc::new(Graph::healthy(&mut rng))];
        for number in 0..rng.between(3, 7) {
            // Some share a name: they become versions of one workflow.
            let name = format!("w{}", number % 4);
            pool.push(Rc::new(Graph::random(&mut rng, &name, profile.tasks_fail)));
        }
        Clients { rng, pool, requests: Vec::new(), submitted: 0, keys: BTreeMap::new(), told: Vec::new() }
    }

    /// Every graph with its hash.
    pub fn graphs(&self) -> impl Iterator<Item = (Vec<u8>, Rc<Graph>)> + '_ {
        self.pool.iter().map(|graph| (graph.hash.clone(), graph.clone()))
    }

    fn request(&mut self, now: u64, commands: Vec<Kind>) -> usize {
        let id = self.rng.id();
        self.requests.push(Request { id, commands, made_ms: now, over: false, key: None, body: Vec::new() });
        self.requests.len() - 1
    }

    fn put(&self, graph: usize) -> Kind {
        let graph = &self.pool[graph];
        Kind::PutWorkflow(PutWorkflow {
            workflow: Some(graph.workflow.clone()),
            hash: graph.hash.clone(),
            ..PutWorkflow::default()
        })
    }

    fn submit(&mut self, now: u64, repeats: bool) -> usize {
        let mut graph = if self.submitted == 0 { 0 } else { self.rng.index(self.pool.len()) };
        let mut key = String::new();
        if self.rng.chance(400) {
            key = format!("k{}", self.rng.below(12));
            let first = *self.keys.entry(key.clone()).or_insert(graph);
            if !(repeats && self.rng.chance(150)) {
                graph = first;
            }
        }
        // The definition travels with the submit, as when a file is run.
        let put = self.put(graph);
        let body_hash = self.pool[graph].hash.clone();
        let submit = Kind::SubmitRun(SubmitRun {
            namespace: "default".to_owned(),
            workflow: self.pool[graph].workflow.name.clone(),
            idempotency_key: key.clone(),
            body_hash: body_hash.clone(),
            ..SubmitRun::default()
        });
        self.submitted += 1;
        let request = self.request(now, vec![put, submit]);
        self.requests[request].body = body_hash;
        self.requests[request].key = (!key.is_empty()).then(|| ("default".to_owned(), key));
        request
    }

    fn cancel(&mut self, now: u64) -> Option<usize> {
        if self.told.is_empty() {
            return None;
        }
        // Mostly one of the newest: the others have ended.
        let back = self.rng.below(4).min(self.told.len() as u64 - 1) as usize;
        let run = self.told[self.told.len() - 1 - back];
        let kind = Kind::CancelRun(CancelRun { run, reason: "a client asked".to_owned() });
        Some(self.request(now, vec![kind]))
    }
}

impl World {
    /// A client does something.
    pub fn client_acts(&mut self) {
        if self.calm {
            return;
        }
        let (now, profile) = (self.now, self.profile.clone());
        let pause = self.rng.between(50, profile.chaos_ms / u64::from(profile.runs));
        self.after(pause, Event::ClientActs);
        let clients = &mut self.clients;
        let request = match clients.rng.below(100) {
            0..60 if clients.submitted < profile.runs => Some(clients.submit(now, profile.clients_repeat)),
            60..68 => {
                let graph = clients.rng.index(clients.pool.len());
                let put = clients.put(graph);
                Some(clients.request(now, vec![put]))
            }
            68..82 if profile.clients_cancel => clients.cancel(now),
            82..100 if profile.clients_repeat && !clients.requests.is_empty() => {
                let again = clients.rng.index(clients.requests.len());
                let young = now - clients.requests[again].made_ms < PATIENCE_MS;
                young.then_some(again)
            }
            _ => None,
        };
        if let Some(request) = request {
            self.client_sends(request);
        }
    }

    /// After all faults: one more run, which must succeed like any other day.
    pub fn client_checks(&mut self) {
        let now = self.now;
        self.clients.submitted = 0;
        let request = self.clients.submit(now, false);
        self.client_sends(request);
    }

    /// Sends a request, the first time or again.
    pub fn client_sends(&mut self, request: usize) {
        let it = &self.clients.requests[request];
        let (id, commands) = (it.id.to_vec(), it.commands.clone());
        self.propose(id, "client".to_owned(), commands, Reply::Client { request });
    }

    /// A client tries again what was not answered.
    pub fn client_retries(&mut self, request: usize) {
        if !self.clients.requests[request].over {
            self.client_sends(request);
        }
    }

    /// A client gets an answer, or gives up waiting for it.
    pub fn client_answered(&mut self, request: usize, answer: Answer) {
        let now = self.now;
        let Some((index, outcomes)) = answer else {
            let it = &mut self.clients.requests[request];
            if now - it.made_ms >= PATIENCE_MS {
                it.over = true;
            } else if !it.over {
                let delay = self.rng.between(100, 2_000);
                self.after(delay, Event::ClientRetries { request });
            }
            return;
        };
        let it = &mut self.clients.requests[request];
        it.over = true;
        let (key, body) = (it.key.clone(), it.body.clone());
        if let Some(Told::RunSubmitted(told)) = outcomes.last().and_then(|outcome| outcome.kind.as_ref()) {
            let run = told.run;
            self.note(format_args!("client told: run {run}"));
            if !self.clients.told.contains(&run) {
                self.clients.told.push(run);
            }
            self.judge.see(&Fact::Acknowledged { run, index, key, body });
        }
    }
}
