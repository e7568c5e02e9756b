//! Locks with a time to live and a fencing token.
//!
//! The client counts its lease on its own monotonic clock, from when it *sent* the last renewal that was confirmed. The
//! cluster counts from when it took the renewal, which is later, so the loss is told here before anybody else can have the
//! lock. What a process does after that (because it was stopped for a while, say) no lock can prevent: guard what it writes
//! with the token.

use std::fmt;
use std::time::Duration;

use clawhive_proto::{
    AcquireLockRequest, ListLocksRequest, ListLocksResponse, ReleaseLockRequest, RenewLockRequest,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::call::Effect;
use crate::error::Error;
use crate::{Client, request_id};

/// A renewal that failed is tried again after this.
const AGAIN: Duration = Duration::from_millis(200);
/// A call that waits in the queue waits no longer than this at a time.
const WAIT_AT_ONCE: Duration = Duration::from_secs(2);
/// A release of which nobody awaits the end.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

impl Client {
    /// A lock of the namespace `default`, to be acquired for `ttl` at a time (1 s to 24 h).
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, PutOptions};
    /// # use std::time::Duration;
    /// # async fn work() {}
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let guard = client.lock("deploy", Duration::from_secs(10)).acquire().await?;
    /// tokio::select! {
    ///     _ = work() => {}
    ///     lost = guard.lost() => eprintln!("stop at once: {lost}"),
    /// }
    /// client.kv().put("deployed", "v7", PutOptions::new().fence(guard.token())).await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: impl Into<String>, ttl: Duration) -> Lock {
        Lock {
            client: self.clone(),
            namespace: String::new(),
            name: name.into(),
            ttl,
            owner: String::new(),
            patience: None,
        }
    }

    /// Locks that are held, by name.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn locks(&self, message: ListLocksRequest) -> Result<ListLocksResponse, Error> {
        self.call(Effect::Read, message, |mut stub, request| async move { stub.list_locks(request).await })
            .await
    }
}

/// A lock to be acquired.
#[derive(Debug, Clone)]
pub struct Lock {
    client: Client,
    namespace: String,
    name: String,
    ttl: Duration,
    owner: String,
    patience: Option<Duration>,
}

/// Who is before us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// As the holder called itself.
    pub owner: String,
    /// Its fencing token.
    pub token: u64,
    /// Our place in the queue; 1 is next.
    pub position: u32,
}

/// Why a lock is no longer held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// No renewal was confirmed in time.
    NotRenewed,
    /// The cluster has ended the lease.
    Ended(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::NotRenewed => f.write_str("no renewal was confirmed in time"),
            Lost::Ended(why) => f.write_str(why),
        }
    }
}

impl Lock {
    /// Of another namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// What others are told of who holds it; at most 256 bytes.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// Wait no longer than this for the lock; then [`Error::Timeout`]. Without it, for ever.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Acquires it if it is free.
    ///
    /// # Errors
    /// [`Error::Conflict`] when somebody else holds it.
    pub async fn try_acquire(&self) -> Result<LockGuard, Error> {
        let place = Place::new(self);
        let sent = Instant::now();
        let answer = place.ask(self, Duration::ZERO).await?;
        Ok(place.guard(self, answer.token, sent))
    }

    /// Waits for its turn, first come first served, and acquires it. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the [patience](Lock::patience) is over; others as for any call.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_telling(|_| {}).await
    }

    /// As [`Lock::acquire`]; tells who holds it when it has to wait, and whenever that changes.
    ///
    /// # Errors
    /// As [`Lock::acquire`].
    pub async fn acquire_telling(&self, mut tell: impl FnMut(&Holder)) -> Result<LockGuard, Error> {
        let place = Place::new(self);
        let begun = Instant::now();
        let mut told = 0;
        loop {
            let left = self.patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            // Each call renews our place in the queue, so it must come back well within the time to live.
            let at_once = (self.ttl / 3).min(WAIT_AT_ONCE).min(self.client.limits.timeout / 4);
            let wait = left.map_or(at_once, |left| left.min(at_once)).max(Duration::from_millis(1));
            let sent = Instant::now();
            let answer = place.ask(self, wait).await?;
            if answer.token != 0 {
                return Ok(place.guard(self, answer.token, sent));
            }
            let Some(held_by) = Some(answer).filter(|_| left.is_none_or(|left| left > wait)) else {
                return Err(place.too_late(self).await);
            };
            if held_by.holder_token != told {
                told = held_by.holder_token;
                let position = held_by.position;
                tell(&Holder { owner: held_by.holder, token: told, position });
            }
        }
    }
}

/// What a session has, or may have: given up when it is dropped.
struct Place {
    client: Client,
    release: Option<ReleaseLockRequest>,
}

impl Place {
    fn new(lock: &Lock) -> Place {
        let release = ReleaseLockRequest {
            namespace: lock.namespace.clone(),
            name: lock.name.clone(),
            session: uuid::Uuid::new_v4().into_bytes().to_vec(),
            ..ReleaseLockRequest::default()
        };
        Place { client: lock.client.clone(), release: Some(release) }
    }

    fn session(&self) -> Vec<u8> {
        self.release.as_ref().map(|release| release.session.clone()).unwrap_or_default()
    }

    async fn ask(&self, lock: &Lock, wait: Duration) -> Result<clawhive_proto::AcquireLockResponse, Error> {
        let message = AcquireLockRequest {
            request_id: request_id(),
            namespace: lock.namespace.clone(),
            name: lock.name.clone(),
            session: self.session(),
            ttl_ms: millis(lock.ttl),
            owner: lock.owner.clone(),
            wait_ms: millis(wait),
        };
        let ask = |mut stub: clawhive_proto::clawhive_client::ClawhiveClient<_>, request| async move {
            stub.acquire_lock(request).await
        };
        self.client.call(Effect::Write, message, ask).await
    }

    fn guard(mut self, lock: &Lock, token: u64, sent: Instant) -> LockGuard {
        let mut release = self.release.take().unwrap_or_default();
        release.token = token;
        let (told, lost) = watch::channel(None);
        let keeper = Keeper { client: lock.client.clone(), release: release.clone(), ttl: lock.ttl };
        let keeping = tokio::spawn(keeper.keep(sent, told));
        LockGuard { client: lock.client.clone(), release: Some(release), lost, keeping }
    }

    /// The patience is over: leaves the queue.
    async fn too_late(mut self, lock: &Lock) -> Error {
        if let Some(release) = self.release.take() {
            // Whoever does not hear of it takes the place away when its time is over.
            let _unheard = give_up(&self.client, release).await;
        }
        let waited = lock.patience.unwrap_or_default();
        let message = format!("lock {} was not free within {waited:?}", lock.name);
        Error::Timeout { message, may_have_been_applied: false }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        give_up_later(&self.client, self.release.take());
    }
}

fn millis(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

async fn give_up(client: &Client, release: ReleaseLockRequest) -> Result<(), Error> {
    let message = ReleaseLockRequest { request_id: request_id(), ..release };
    let ask = |mut stub: clawhive_proto::clawhive_client::ClawhiveClient<_>, request| async move {
        stub.release_lock(request).await
    };
    client.call(Effect::Write, message, ask).await.map(drop)
}

/// Best effort: the time to live does the rest.
fn give_up_later(client: &Client, release: Option<ReleaseLockRequest>) {
    if let (Some(release), Ok(runtime)) = (release, tokio::runtime::Handle::try_current()) {
        let client = client.with_timeout(RELEASE_WITHIN);
        runtime.spawn(async move { give_up(&client, release).await });
    }
}

/// Renews until the lock is lost or the task is aborted.
struct Keeper {
    client: Client,
    release: ReleaseLockRequest,
    ttl: Duration,
}

impl Keeper {
    /// `confirmed`: when the newest confirmed renewal was sent.
    async fn keep(self, mut confirmed: Instant, told: watch::Sender<Option<Lost>>) {
        // Kept back for clocks that do not run alike, and for whoever has to stop something.
        let margin = (self.ttl / 10).clamp(Duration::from_millis(100), Duration::from_secs(2));
        let mut next = confirmed + self.ttl / 3;
        let lost = loop {
            let end = confirmed + self.ttl - margin;
            sleep_until(next.min(end)).await;
            let sent = Instant::now();
            if sent >= end {
                break Lost::NotRenewed;
            }
            match timeout(end - sent, self.renew(end - sent)).await {
                Ok(Ok(())) => {
                    confirmed = sent;
                    next = sent + self.ttl / 3;
                }
                Ok(Err(Error::Conflict { message })) => break Lost::Ended(message),
                // Also what will never go well: the time is over when it is over.
                Ok(Err(_)) => next = Instant::now() + AGAIN,
                Err(_) => break Lost::NotRenewed,
            }
        };
        told.send_replace(Some(lost));
    }

    async fn renew(&self, within: Duration) -> Result<(), Error> {
        let message = RenewLockRequest {
            request_id: request_id(),
            namespace: self.release.namespace.clone(),
            name: self.release.name.clone(),
            session: self.release.session.clone(),
            token: self.release.token,
        };
        let client = self.client.with_timeout(within);
        let ask = |mut stub: clawhive_proto::clawhive_client::ClawhiveClient<_>, request| async move {
            stub.renew_lock(request).await
        };
        client.call(Effect::Write, message, ask).await.map(drop)
    }
}

/// A lock that is held and renewed in the background. Dropping it gives the lock up, without waiting for that.
#[derive(Debug)]
pub struct LockGuard {
    client: Client,
    /// With the session and the token; none once it was given up.
    release: Option<ReleaseLockRequest>,
    lost: watch::Receiver<Option<Lost>>,
    keeping: JoinHandle<()>,
}

impl LockGuard {
    /// The fencing token: the log index of this acquisition. Larger than that of every earlier one.
    pub fn token(&self) -> u64 {
        self.release.as_ref().map_or(0, |release| release.token)
    }

    /// True until the loss is told.
    pub fn is_held(&self) -> bool {
        self.lost.borrow().is_none()
    }

    /// Returns when the lock is lost, before anybody else can have it.
    pub async fn lost(&self) -> Lost {
        let mut lost = self.lost.clone();
        match lost.wait_for(Option::is_some).await {
            Ok(lost) => lost.clone().unwrap_or(Lost::NotRenewed),
            // The runtime that renewed is gone.
            Err(_) => Lost::NotRenewed,
        }
    }

    /// Gives the lock up; the next in the queue has it then.
    ///
    /// # Errors
    /// [`Error::Conflict`] when it was lost before.
    pub async fn release(mut self) -> Result<(), Error> {
        self.keeping.abort();
        match self.release.take() {
            Some(release) => give_up(&self.client, release).await,
            None => Ok(()),
        }
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.keeping.abort();
        give_up_later(&self.client, self.release.take());
    }
}
