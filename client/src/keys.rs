//! Puts as a stream: in order, many in flight, each under its own request id. What is not answered when the connection
//! breaks is sent again, under the same ids, so it happens once.

use std::collections::VecDeque;

use clawhive_proto::{MAX_MESSAGE_BYTES, PutKeyRequest, PutKeyResponse};
use clawhive_proto::{bytes::Bytes, prost::Message};
use futures::channel::mpsc;
use futures::stream::{BoxStream, unfold};
use futures::{Stream, StreamExt};
use tokio::time::{Instant, sleep, timeout};
use tonic::Streaming;

use crate::call::{Effect, Tries, backoff};
use crate::error::{Error, Failure};
use crate::{Client, request_id};

/// Puts that may wait for their answers at once.
const IN_FLIGHT: usize = 1_024;

/// The log index of each put, in the order of the puts; ends with the first error.
pub type KeyAnswers = BoxStream<'static, Result<u64, Error>>;

/// One key to set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The namespace of the key.
    pub namespace: String,
    /// Its name.
    pub key: String,
    /// Its new value.
    pub value: Bytes,
}

impl Client {
    /// Sets many keys, in the order given, over one stream. Take the answers: they are what moves the puts on.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, Put};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// use futures::{StreamExt, stream};
    /// let puts = stream::iter(0..1000).map(|i| Put {
    ///     namespace: "default".into(),
    ///     key: format!("k{i}"),
    ///     value: "v".into(),
    /// });
    /// let mut answers = client.put_keys(puts);
    /// while let Some(answer) = answers.next().await {
    ///     println!("log index {}", answer?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn put_keys(&self, puts: impl Stream<Item = Put> + Send + 'static) -> KeyAnswers {
        let loader = Loader {
            client: self.clone(),
            puts: Some(puts.boxed()),
            waiting: VecDeque::new(),
            link: None,
            broken_since: None,
            failed: 0,
            ended: false,
        };
        unfold(loader, |mut loader| async move {
            let answer = loader.next().await?;
            Some((answer, loader))
        })
        .boxed()
    }
}

struct Loader {
    client: Client,
    /// `None` after the last.
    puts: Option<BoxStream<'static, Put>>,
    /// Sent on the link and not answered, oldest first.
    waiting: VecDeque<PutKeyRequest>,
    link: Option<Link>,
    /// Since when no put has been answered because of broken links, and how many.
    broken_since: Option<Instant>,
    failed: usize,
    ended: bool,
}

struct Link {
    /// `None` after the last put.
    sender: Option<mpsc::UnboundedSender<PutKeyRequest>>,
    answers: Streaming<PutKeyResponse>,
    peer: usize,
}

impl Loader {
    async fn next(&mut self) -> Option<Result<u64, Error>> {
        while !self.ended {
            match self.step().await {
                Ok(None) => {}
                Ok(Some(log_index)) => return Some(Ok(log_index)),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    async fn step(&mut self) -> Result<Option<u64>, Error> {
        if self.waiting.is_empty() {
            match &mut self.puts {
                None => self.ended = true,
                Some(puts) => {
                    let put = puts.next().await;
                    self.take(put)?;
                }
            }
            return Ok(None);
        }
        let Some(link) = &mut self.link else {
            self.connect().await?;
            return Ok(None);
        };
        let room = self.waiting.len() < IN_FLIGHT;
        tokio::select! {
            biased;
            put = next_put(&mut self.puts), if room && self.puts.is_some() => {
                self.take(put)?;
                Ok(None)
            }
            answer = link.answers.message() => match answer {
                Ok(Some(answer)) => {
                    self.waiting.pop_front();
                    self.broken_since = None;
                    self.failed = 0;
                    Ok(Some(answer.log_index))
                }
                Ok(None) => {
                    let message = "the server closed the stream before its end".into();
                    let error = Error::Unavailable { message, may_have_been_applied: true };
                    self.broke(Failure { error, retry: true, reached: true }).await
                }
                Err(status) => self.broke(Failure::from_status(&status)).await,
            },
        }
    }

    /// The link broke with puts unanswered; another is made unless this has gone on for the whole timeout.
    async fn broke(&mut self, failure: Failure) -> Result<Option<u64>, Error> {
        let endpoints = &self.client.inner.endpoints;
        let peer = self.link.take().map_or(0, |link| link.peer);
        self.failed += 1;
        let since = *self.broken_since.get_or_insert_with(Instant::now);
        if !failure.retry || since.elapsed() >= self.client.limits.timeout {
            return Err(failure.error.or_applied(true));
        }
        endpoints.prefer(endpoints.after(peer));
        sleep(backoff(self.failed)).await;
        Ok(None)
    }

    fn take(&mut self, put: Option<Put>) -> Result<(), Error> {
        let Some(Put { namespace, key, value }) = put else {
            self.puts = None;
            if let Some(link) = &mut self.link {
                link.sender = None;
            }
            return Ok(());
        };
        let request = PutKeyRequest { request_id: request_id(), namespace, key, value };
        if request.encoded_len() > MAX_MESSAGE_BYTES {
            return Err(Error::too_large(request.encoded_len()));
        }
        if let Some(sender) = self.link.as_ref().and_then(|link| link.sender.as_ref()) {
            // A closed channel is a broken link: its answers say so, and the put is still in `waiting`.
            let _broken = sender.unbounded_send(request.clone());
        }
        self.waiting.push_back(request);
        Ok(())
    }

    /// Opens a link, with all that waits as its first messages, and takes its first sign of life.
    async fn connect(&mut self) -> Result<(), Error> {
        let client = self.client.clone();
        let mut tries = Tries::new(&client, Effect::Write);
        loop {
            let (sender, receiver) = mpsc::unbounded();
            for request in &self.waiting {
                let _open = sender.unbounded_send(request.clone());
            }
            let mut stub = client.inner.endpoints.stub(tries.peer);
            let failure = match timeout(tries.budget(), stub.put_keys(receiver)).await {
                Ok(Ok(answers)) => {
                    client.inner.endpoints.prefer(tries.peer);
                    let sender = self.puts.is_some().then_some(sender);
                    self.link = Some(Link { sender, answers: answers.into_inner(), peer: tries.peer });
                    return Ok(());
                }
                Ok(Err(status)) => Failure::from_status(&status),
                Err(_) => Failure::timeout(),
            };
            tries.failed(failure).await?;
        }
    }
}

async fn next_put(puts: &mut Option<BoxStream<'static, Put>>) -> Option<Put> {
    match puts {
        Some(puts) => puts.next().await,
        None => None,
    }
}
