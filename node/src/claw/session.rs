//! One registered incarnation: reconciles what runs with what is assigned, reports what ended, and ends everything when
//! the lease is lost. Each (run, task, attempt, fence) is started at most once.

use super::attempt::{Attempt, Order, failed, never_started};
use super::deps::{Assignment, Work};
use super::lease::{self, Lease};
use super::reporter::Reporter;
use super::runtime::Shared;
use clawhive_proto::{Delivery, Reason, RegisterClaw, command};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// How a session ended. Nothing runs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    LeaseLost,
    Unknown,
    Drained,
}

/// How long a killed process may take to be gone before the claw goes on without it: only one that hangs in the kernel
/// takes long.
const KILL_WAIT: Duration = Duration::from_secs(30);

/// How long the last reports of a draining claw may take.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// How long the reports of what had ended by itself may hold up a claw that lost its lease.
const LATE_REPORTS: Duration = Duration::from_secs(2);

type Key = (u64, u32, u32, u64);

fn key(assignment: &Assignment) -> Key {
    (assignment.run, assignment.task, assignment.attempt, assignment.fence)
}

enum Known {
    Running(watch::Sender<Order>, Assignment),
    /// Ended; kept as long as the replica shows the assignment.
    Ended,
}

struct Session {
    shared: Arc<Shared>,
    lease: Arc<Lease>,
    /// Log index of the registration: grants before it are of an earlier incarnation.
    registered_at: u64,
    known: HashMap<Key, Known>,
    attempts: JoinSet<Option<command::Kind>>,
    keys: HashMap<Id, Key>,
    started: mpsc::UnboundedSender<command::Kind>,
    reporter: Reporter,
    draining: bool,
    /// Something assigned was left unstarted or was shut down.
    leaves_work: bool,
}

/// Registers, then works until the lease is lost or the claw is drained.
pub(super) async fn run(shared: Arc<Shared>) -> End {
    let mut drain = shared.drain.clone();
    let registered = tokio::select! {
        registered = register(&shared) => registered,
        _ = drain.wait_for(Option::is_some) => return End::Drained,
    };
    let (incarnation, registered_at, lease) = registered;
    tracing::info!(registered_at, slots = shared.config.slots, "the claw is registered");
    shared.status.send_modify(|status| {
        status.incarnation = incarnation;
        status.registered_at = Some(registered_at);
    });
    let (started, starts) = mpsc::unbounded_channel();
    let reporter = Reporter::new(shared.deps.clone(), lease.clone());
    let mut session = Session {
        shared: shared.clone(),
        lease: lease.clone(),
        registered_at,
        known: HashMap::new(),
        attempts: JoinSet::new(),
        keys: HashMap::new(),
        started,
        reporter,
        draining: false,
        leaves_work: false,
    };
    let mut beats = JoinSet::new();
    beats.spawn(lease::beat(shared.deps.clone(), incarnation, lease.clone()));
    let mut guards = JoinSet::new();
    guards.spawn(lease.tell_guards(shared.executors.clone()));
    let end = session.work(starts, beats).await;
    session.end_all(Order::Kill).await;
    session.report_late().await;
    if end == End::Drained && session.leaves_work {
        give_back(&shared).await;
    }
    end
}

/// Until it is registered. Each try is a new incarnation, so that nothing granted to a try whose answer was lost is ever
/// taken for ours.
async fn register(shared: &Shared) -> ([u8; 16], u64, Arc<Lease>) {
    let config = &shared.config;
    let mut pause = Duration::from_millis(50);
    loop {
        let incarnation = shared.deps.new_incarnation();
        let sent = Instant::now();
        match shared.deps.register(registration(shared, incarnation, config.slots)).await {
            // The lease counts from when it was asked for. An answer that took long would leave nothing of it.
            Ok(index) if sent.elapsed() < config.lease / 2 => {
                return (incarnation, index, Arc::new(Lease::new(config.lease, config.margin(), sent)));
            }
            Ok(_) => tracing::warn!("the claw's registration took too long, it is repeated"),
            Err(error) => tracing::warn!(%error, "the claw is not registered yet"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

fn registration(shared: &Shared, incarnation: [u8; 16], slots: u32) -> RegisterClaw {
    let config = &shared.config;
    RegisterClaw {
        claw: config.node_id,
        incarnation: incarnation.to_vec(),
        slots,
        lease_ms: u64::try_from(config.lease.as_millis()).unwrap_or(u64::MAX),
        labels: config.labels.clone(),
        version: config.version.clone(),
    }
}

/// Ends the assignments of this claw at once, instead of when its lease is over: an incarnation without slots.
async fn give_back(shared: &Shared) {
    let farewell = registration(shared, shared.deps.new_incarnation(), 0);
    match timeout(Duration::from_secs(2), shared.deps.register(farewell)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "what the claw had left is given back when its lease is over")
        }
        Err(_) => tracing::warn!("what the claw had left is given back when its lease is over"),
    }
}

impl Session {
    async fn work(
        &mut self,
        mut starts: mpsc::UnboundedReceiver<command::Kind>,
        mut beats: JoinSet<()>,
    ) -> End {
        let shared = self.shared.clone();
        let lease = self.lease.clone();
        let mut lost = std::pin::pin!(lease.lost());
        let mut drain = shared.drain.clone();
        let mut shutdown_at = None;
        let mut last_reports_at = None;
        let mut batch = Vec::new();
        self.reconcile();
        loop {
            self.reporter.flush();
            self.show_status();
            if self.draining && self.attempts.is_empty() {
                let limit = *last_reports_at.get_or_insert_with(|| Instant::now() + LAST_REPORTS);
                if (self.reporter.idle() && starts.is_empty()) || Instant::now() >= limit {
                    return End::Drained;
                }
            }
            tokio::select! {
                biased;
                () = &mut lost => return End::LeaseLost,
                Some(_) = beats.join_next() => return End::Unknown,
                Ok(()) = drain.changed() => {
                    self.draining = true;
                    shutdown_at = *drain.borrow_and_update();
                }
                () = at(shutdown_at) => {
                    shutdown_at = None;
                    self.order_all(Order::Shutdown);
                }
                // Starts before ends: both of a quick task then travel in this order.
                _ = starts.recv_many(&mut batch, 1024) => {
                    batch.drain(..).for_each(|start| self.reporter.push(start));
                }
                Some(end) = self.attempts.join_next_with_id() => {
                    self.ended(end, &mut starts);
                    while let Some(end) = self.attempts.try_join_next_with_id() {
                        self.ended(end, &mut starts);
                    }
                    self.reconcile();
                }
                () = self.reporter.answered() => {}
                () = shared.deps.changed() => self.reconcile(),
                () = at(last_reports_at) => {}
            }
        }
    }

    /// Brings what runs in line with what is assigned.
    fn reconcile(&mut self) {
        let mut assigned = self.shared.deps.assignments();
        assigned.retain(|assignment| assignment.fence > self.registered_at);
        assigned.sort_unstable_by_key(|assignment| (assignment.fence, assignment.run, assignment.task));
        for assignment in &assigned {
            match (self.known.get(&key(assignment)), assignment.stop) {
                (Some(Known::Running(order, _)), Some(reason)) => raise(order, Order::Stop(reason)),
                (Some(_), _) => {}
                (None, Some(reason)) => {
                    self.known.insert(key(assignment), Known::Ended);
                    self.reporter.push(failed(assignment, reason, None, "stopped before it was started"));
                }
                (None, None) => self.start(assignment),
            }
        }
        let assigned: HashSet<Key> = assigned.iter().map(key).collect();
        self.known.retain(|key, known| match known {
            _ if assigned.contains(key) => true,
            Known::Running(order, _) => {
                raise(order, Order::Kill);
                true
            }
            Known::Ended => false,
        });
    }

    fn start(&mut self, assignment: &Assignment) {
        if self.draining {
            self.leave(assignment);
            return;
        }
        // The cluster never grants more than there are slots. Should it ever, the rest waits for one that ends.
        if self.attempts.len() >= self.shared.config.slots as usize || !self.lease.holds() {
            return;
        }
        let (order, ordered) = watch::channel(Order::Run);
        let attempt = Attempt {
            shared: self.shared.clone(),
            lease: self.lease.clone(),
            assignment: assignment.clone(),
            order: ordered,
            started: self.started.clone(),
        };
        let id = self.attempts.spawn(attempt.run()).id();
        self.keys.insert(id, key(assignment));
        self.known.insert(key(assignment), Known::Running(order, assignment.clone()));
    }

    /// Leaves what a draining claw was still given. It goes back as lost when the claw ends; a task that must not run twice
    /// needs to hear now that this attempt never began.
    fn leave(&mut self, assignment: &Assignment) {
        let once = |work: &Work| work.task.delivery() == Delivery::AtMostOnce;
        match self.shared.deps.work(assignment) {
            Ok(Some(work)) if once(&work) => {
                self.known.insert(key(assignment), Known::Ended);
                self.reporter.push(never_started(assignment));
            }
            _ => self.leaves_work = true,
        }
    }

    fn ended(
        &mut self,
        end: Result<(Id, Option<command::Kind>), JoinError>,
        starts: &mut mpsc::UnboundedReceiver<command::Kind>,
    ) {
        while let Ok(start) = starts.try_recv() {
            self.reporter.push(start);
        }
        let (id, report) = match end {
            Ok((id, report)) => (id, Ok(report)),
            Err(error) => (error.id(), Err(error)),
        };
        let Some(key) = self.keys.remove(&id) else { return };
        let Some(Known::Running(order, assignment)) = self.known.insert(key, Known::Ended) else { return };
        let report = report.unwrap_or_else(|error| {
            tracing::error!(?assignment, %error, "the claw's task for an attempt broke off");
            Some(failed(
                &assignment,
                Reason::StartError,
                None,
                "an internal error of the claw ended this attempt",
            ))
        });
        // After a shutdown or a kill nothing is reported: the cluster ends the attempt as lost.
        if matches!(*order.borrow(), Order::Shutdown) {
            self.leaves_work = true;
        }
        if let Some(report) = report
            && !matches!(*order.borrow(), Order::Kill)
        {
            self.reporter.push(report);
        }
    }

    fn order_all(&mut self, order: Order) {
        for known in self.known.values() {
            if let Known::Running(orders, _) = known {
                raise(orders, order);
            }
        }
    }

    async fn end_all(&mut self, order: Order) {
        self.order_all(order);
        let limit = Instant::now() + KILL_WAIT;
        while !self.attempts.is_empty() {
            tokio::select! {
                Some(ended) = self.attempts.join_next() => {
                    // One that broke off has nothing to tell.
                    if let Ok(Some(report)) = ended {
                        self.reporter.push(report);
                    }
                }
                () = sleep_until(limit) => {
                    tracing::error!(attempts = self.attempts.len(), "killed processes are not gone, going on without them");
                    self.attempts.abort_all();
                    return;
                }
            }
        }
    }

    /// What had ended before everything was killed: said once, under the token that it had. The cluster takes it while
    /// nobody else was given the attempt, and refuses it after.
    async fn report_late(&mut self) {
        let reporter = &mut self.reporter;
        let all = async {
            while !reporter.idle() {
                reporter.flush();
                reporter.answered().await;
            }
        };
        if timeout(LATE_REPORTS, all).await.is_err() {
            tracing::warn!("late reports are not answered, they are dropped");
        }
    }

    fn show_status(&self) {
        let running = u32::try_from(self.attempts.len()).unwrap_or(u32::MAX);
        self.shared.status.send_if_modified(|status| {
            let changed = (status.running, status.draining) != (running, self.draining);
            (status.running, status.draining) = (running, self.draining);
            changed
        });
    }
}

/// An order only ever grows: Run, Stop, Shutdown, Kill.
fn raise(orders: &watch::Sender<Order>, order: Order) {
    let rank = |order: &Order| match order {
        Order::Run => 0,
        Order::Stop(_) => 1,
        Order::Shutdown => 2,
        Order::Kill => 3,
    };
    orders.send_if_modified(|current| {
        let higher = rank(&order) > rank(current);
        if higher {
            *current = order;
        }
        higher
    });
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
