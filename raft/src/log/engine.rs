//! How jobs get to the writer: through a queue to a thread, or straight from the caller.
//!
//! Owns: the threads, and grouping what queues up. Must not: reorder.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pool::Pool;
use super::shared::Shared;
use super::writer::{Job, Op, Writer};

/// The most jobs in one batch: answers must not wait for ever behind a stream of small ones.
const BATCH_JOBS: usize = 4096;

pub(crate) enum Engine {
    Threads { queue: Sender<Job>, threads: Vec<JoinHandle<()>>, pool: Arc<Pool> },
    Inline(Box<Mutex<Writer>>),
}

impl Engine {
    pub(crate) fn inline(writer: Writer) -> Self {
        Engine::Inline(Box::new(Mutex::new(writer)))
    }

    pub(crate) fn threads(
        mut writer: Writer,
        pool: Arc<Pool>,
        shared: Arc<Shared>,
        batch_bytes: usize,
        linger: Duration,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = channel();
        let for_pool = Arc::clone(&pool);
        let mut threads = Vec::new();
        threads.push(std::thread::Builder::new().name("log-writer".to_owned()).spawn(move || {
            write_all(&jobs, &mut writer, batch_bytes, linger);
        })?);
        let pool_thread = std::thread::Builder::new().name("log-files".to_owned()).spawn(move || {
            if let Err(error) = for_pool.run() {
                shared.poison(&error);
            }
        });
        match pool_thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                drop(queue);
                return Err(error);
            }
        }
        Ok(Engine::Threads { queue, threads, pool })
    }

    /// Hands over a job. With threads this must be called under the log's lock, so that the queue has the
    /// order of the state in memory; `unlock` lets go of that lock before a caller writes itself.
    pub(crate) fn submit<G>(&self, job: Job, lock: G) {
        match self {
            Engine::Threads { queue, .. } => {
                // The writer ends only after the queue's other end is gone.
                if let Err(unsent) = queue.send(job)
                    && let Some(done) = unsent.0.done
                {
                    done(Err(super::error::LogError::Closed));
                }
                drop(lock);
            }
            Engine::Inline(writer) => {
                drop(lock);
                let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
                writer.commit(&mut vec![job]);
            }
        }
    }

    /// Lets the threads finish what is queued, and waits for them.
    pub(crate) fn join(self) {
        let Engine::Threads { queue, threads, pool } = self else { return };
        drop(queue);
        pool.stop();
        let me = std::thread::current().id();
        for thread in threads {
            // An answer may hold the last handle: then this is the writer's own thread, which can't wait
            // for itself and ends on its own.
            if thread.thread().id() != me && thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
    }
}

fn weight(job: &Job) -> usize {
    match &job.op {
        Op::Append { bytes, .. } => *bytes,
        _ => 0,
    }
}

fn write_all(jobs: &Receiver<Job>, writer: &mut Writer, batch_bytes: usize, linger: Duration) {
    let mut batch: Vec<Job> = Vec::new();
    let mut busy = false;
    while let Ok(job) = jobs.recv() {
        let mut bytes = weight(&job);
        batch.push(job);
        let deadline = (busy && !linger.is_zero()).then(|| Instant::now() + linger);
        while bytes < batch_bytes && batch.len() < BATCH_JOBS {
            match jobs.try_recv() {
                Ok(job) => {
                    bytes += weight(&job);
                    batch.push(job);
                }
                // A sleep of microseconds takes three times as long; those who would queue more need this
                // core more than we do.
                Err(_) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {
                    std::thread::yield_now();
                }
                Err(_) => break,
            }
        }
        busy = batch.iter().filter(|job| matches!(job.op, Op::Append { .. })).count() > 1;
        writer.commit(&mut batch);
    }
}
