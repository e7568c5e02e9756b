//! A stream that goes on: when it breaks, it is opened again where it broke off, on the next peer. Owns when to give up;
//! what "where" means is each source's own.

use std::future::Future;
use std::time::Duration;

use clawhive_proto::clawhive_client::ClawhiveClient;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

use crate::Client;
use crate::call::backoff;
use crate::error::{Error, Failure};

/// A stream that stayed open this long was a good one: what breaks after it is a new fault.
const HEALTHY: Duration = Duration::from_secs(2);
/// A try to open gets at most this long.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// One kind of stream.
pub(crate) trait Source: Send + 'static {
    type Wire: Send + 'static;
    type Item: Send + 'static;

    /// Opens it after what has been accepted so far.
    fn open(
        &mut self,
        stub: ClawhiveClient<Channel>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Wire>>, Status>> + Send;

    /// Takes a message; `None` when it is a repeat.
    fn accept(&mut self, wire: Self::Wire) -> Option<Self::Item>;

    /// The server closed the stream in good order: was that all? A server that shuts down closes streams too.
    fn is_all(&mut self, client: &Client) -> impl Future<Output = Result<bool, Error>> + Send;
}

pub(crate) fn resumable<S: Source>(client: &Client, source: S) -> BoxStream<'static, Result<S::Item, Error>> {
    let following = Following {
        peer: client.inner.endpoints.preferred(),
        client: client.clone(),
        source,
        stream: None,
        opened_at: None,
        reached: false,
        broken_since: None,
        failed: 0,
        ended: false,
    };
    unfold(following, |mut following| async move {
        let item = following.next().await?;
        Some((item, following))
    })
    .boxed()
}

struct Following<S: Source> {
    client: Client,
    source: S,
    stream: Option<Streaming<S::Wire>>,
    /// Of the newest stream; `None` before the first.
    opened_at: Option<Instant>,
    /// Some server answered something.
    reached: bool,
    broken_since: Option<Instant>,
    peer: usize,
    failed: usize,
    ended: bool,
}

impl<S: Source> Following<S> {
    async fn next(&mut self) -> Option<Result<S::Item, Error>> {
        while !self.ended {
            match self.step().await {
                Ok(Some(item)) => return Some(Ok(item)),
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    async fn step(&mut self) -> Result<Option<S::Item>, Error> {
        let Some(stream) = &mut self.stream else {
            self.open().await?;
            return Ok(None);
        };
        match stream.message().await {
            Ok(Some(wire)) => {
                self.broken_since = None;
                self.failed = 0;
                Ok(self.source.accept(wire))
            }
            Ok(None) => {
                if self.source.is_all(&self.client).await? {
                    self.ended = true;
                    return Ok(None);
                }
                let message = "the server closed the stream before its end".into();
                let error = Error::Unavailable { message, may_have_been_applied: false };
                self.broke(Failure { error, retry: true, reached: true }).await?;
                Ok(None)
            }
            Err(status) => {
                self.broke(Failure::from_status(&status)).await?;
                Ok(None)
            }
        }
    }

    async fn open(&mut self) -> Result<(), Error> {
        let stub = self.client.inner.endpoints.stub(self.peer);
        let limit = OPEN_WITHIN.min(self.client.limits.timeout);
        let failure = match timeout(limit, self.source.open(stub)).await {
            Ok(Ok(stream)) => {
                self.client.inner.endpoints.prefer(self.peer);
                self.stream = Some(stream.into_inner());
                self.opened_at = Some(Instant::now());
                self.reached = true;
                return Ok(());
            }
            Ok(Err(status)) => Failure::from_status(&status),
            Err(_) => Failure::timeout(),
        };
        self.broke(failure).await
    }

    async fn broke(&mut self, failure: Failure) -> Result<(), Error> {
        if !failure.retry {
            return Err(failure.error);
        }
        let was_open = self.stream.take().is_some();
        if was_open && self.opened_at.is_some_and(|at| at.elapsed() > HEALTHY) {
            self.broken_since = None;
            self.failed = 0;
        }
        self.reached |= failure.reached;
        self.failed += 1;
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        let endpoints = &self.client.inner.endpoints;
        let limits = &self.client.limits;
        let limit = match (self.opened_at, self.reached) {
            (Some(_), _) => limits.patience,
            (None, true) => limits.timeout,
            (None, false) => limits.unreachable_after,
        };
        let no_quorum = matches!(failure.error, Error::NoQuorum { .. });
        let asked_all = self.failed >= endpoints.len();
        if since.elapsed() >= limit || (no_quorum && asked_all && self.opened_at.is_none()) {
            return Err(match failure.error {
                Error::Unavailable { .. } => Error::Unavailable {
                    message: format!("no server reachable at {}", endpoints.addresses()),
                    may_have_been_applied: false,
                },
                Error::Timeout { .. } => Error::timeout(limit),
                other => other,
            });
        }
        self.peer = endpoints.after(self.peer);
        // The first loss goes to the next peer at once; after a round of losses there is a pause.
        if self.failed >= endpoints.len() {
            sleep(backoff(self.failed / endpoints.len())).await;
        }
        Ok(())
    }
}
