//! A proxy for TCP on loopback that can stop passing anything on, as a cut cable does: connections stay open and say
//! nothing. Must not: know what passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A way to one address. Dropping it closes it.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub addr: String,
    passed: Arc<AtomicU64>,
    cut: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port for whoever wants to reach `to`. After so many bytes towards it the way is cut.
    pub async fn start(to: String, cut_after: Option<u64>) -> Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?.to_string();
        let passed = Arc::new(AtomicU64::new(0));
        let cut = watch::Sender::new(false);
        let (count, ways) = (passed.clone(), cut.clone());
        let task = tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (to, count, ways) = (to.clone(), count.clone(), ways.clone());
                tokio::spawn(async move {
                    let Ok(there) = TcpStream::connect(&to).await else { return };
                    let (from_read, from_write) = from.into_split();
                    let (there_read, there_write) = there.into_split();
                    let (forward, back) = (ways.clone(), ways.clone());
                    let onward = pass(from_read, there_write, forward, move |bytes| {
                        let total = count.fetch_add(bytes, Ordering::Relaxed) + bytes;
                        cut_after.is_some_and(|limit| (total - bytes..total).contains(&(limit - 1)))
                    });
                    tokio::join!(onward, pass(there_read, from_write, back, |_| false));
                });
            }
        });
        Ok(Proxy { addr, passed, cut, task })
    }

    /// Bytes that have passed towards the address.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Whether nothing passes.
    pub fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// Stops passing anything on.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Passes on again what comes and what was held.
    pub fn heal(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One direction, until one side closes; `full` says of each piece whether it is the last before the cut.
async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    cut: watch::Sender<bool>,
    full: impl Fn(u64) -> bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut is_cut = cut.subscribe();
    loop {
        let Ok(bytes) = from.read(&mut buffer).await else { return };
        if is_cut.wait_for(|cut| !*cut).await.is_err() || bytes == 0 {
            return;
        }
        if full(bytes as u64) && !cut.send_replace(true) {
            // Cut for the first time: this piece is held as well.
            if is_cut.wait_for(|cut| !*cut).await.is_err() {
                return;
            }
        }
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}
