//! A bad wire on purpose: forwards connections to an address, and flips a byte, cuts, or slows down when told to.
//!
//! Must not: know what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is to go wrong. All counted in bytes of one connection, on the way to the address.
#[derive(Debug, Default)]
struct Plan {
    /// Flip a byte once so many have passed; 0: none.
    flip_after: AtomicU64,
    /// Break the connection once so many have passed; 0: never.
    cut_after: AtomicU64,
    /// Bytes a second, for each connection; 0: as fast as they come.
    rate: AtomicU64,
    flipped: AtomicU64,
    cuts: AtomicU64,
    passed: AtomicU64,
    closed: AtomicBool,
}

/// See the module. Stops with the value; open connections end then.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub address: String,
    plan: Arc<Plan>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Forwards from a free port to an address, where nobody need listen yet.
    pub async fn start(to: String) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let plan = Arc::new(Plan::default());
        let shared = plan.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, to.clone(), shared.clone()));
            }
        });
        Ok(Proxy { address, plan, task })
    }

    /// Flips one byte, once, in a connection that has carried so many.
    pub fn flip_after(&self, bytes: u64) {
        self.plan.flip_after.store(bytes, Ordering::SeqCst);
    }

    /// Breaks one connection, once, that has carried so many.
    pub fn cut_after(&self, bytes: u64) {
        self.plan.cut_after.store(bytes, Ordering::SeqCst);
    }

    /// Lets at most so many bytes a second through each connection; 0 is no limit.
    pub fn limit(&self, bytes_per_second: u64) {
        self.plan.rate.store(bytes_per_second, Ordering::SeqCst);
    }

    /// How many bytes were flipped.
    pub fn flipped(&self) -> u64 {
        self.plan.flipped.load(Ordering::SeqCst)
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.plan.cuts.load(Ordering::SeqCst)
    }

    /// How many bytes have passed on the way to the address.
    pub fn passed(&self) -> u64 {
        self.plan.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.plan.closed.store(true, Ordering::SeqCst);
        self.task.abort();
    }
}

async fn serve(from: TcpStream, to: String, plan: Arc<Plan>) {
    let Ok(onward) = TcpStream::connect(&to).await else { return };
    // Small questions and answers are not to wait for each other.
    let _ = (from.set_nodelay(true), onward.set_nodelay(true));
    let (mut from_read, mut from_write) = from.into_split();
    let (mut to_read, mut to_write) = onward.into_split();
    let back = tokio::spawn(async move {
        // Whatever ends it, ends the connection.
        let _ = tokio::io::copy(&mut to_read, &mut from_write).await;
    });
    let mut carried = 0u64;
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(some @ 1..) = from_read.read(&mut buffer).await {
        if plan.closed.load(Ordering::SeqCst) {
            break;
        }
        let bytes = &mut buffer[..some];
        carried += some as u64;
        let due = |at: &AtomicU64| {
            let after = at.load(Ordering::SeqCst);
            after > 0
                && carried >= after
                && at.compare_exchange(after, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if due(&plan.flip_after) {
            bytes[some / 2] ^= 0x10;
            plan.flipped.fetch_add(1, Ordering::SeqCst);
        }
        if due(&plan.cut_after) {
            plan.cuts.fetch_add(1, Ordering::SeqCst);
            break;
        }
        plan.passed.fetch_add(some as u64, Ordering::SeqCst);
        if to_write.write_all(bytes).await.is_err() {
            break;
        }
        let rate = plan.rate.load(Ordering::SeqCst);
        if rate > 0 {
            tokio::time::sleep(Duration::from_secs_f64(some as f64 / rate as f64)).await;
        }
    }
    back.abort();
}
