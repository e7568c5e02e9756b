//! One call: tries, peers, backoff, deadline. Owns when to try again and what the last error says; knows no call by name.

use std::future::Future;
use std::time::Duration;

use clawhive_proto::MAX_MESSAGE_BYTES;
use clawhive_proto::clawhive_client::ClawhiveClient;
use clawhive_proto::prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::Client;
use crate::error::{Error, Failure};

/// A caller is told that there is no quorum within 5 s. A server says so after 4.5 s; no other is asked then.
const NO_QUORUM_WITHIN: Duration = Duration::from_secs(4);
const FIRST_DELAY: Duration = Duration::from_millis(25);
const MAX_DELAY: Duration = Duration::from_millis(800);
/// With several peers one try may not use up the deadline; nor is a try given less than this.
const SHORTEST_TRY: Duration = Duration::from_secs(1);

/// Can a repeat do harm? A write is only repeated under its request id; both are retried alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
}

impl Client {
    /// Tries until an answer, a final error or the deadline. `ask` gets the same message at each try.
    pub(crate) async fn call<Req, Res, Fut>(
        &self,
        effect: Effect,
        message: Req,
        ask: impl Fn(ClawhiveClient<Channel>, Request<Req>) -> Fut,
    ) -> Result<Res, Error>
    where
        Req: Message + Clone,
        Fut: Future<Output = Result<Response<Res>, Status>>,
    {
        let bytes = message.encoded_len();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(Error::too_large(bytes));
        }
        let endpoints = &self.inner.endpoints;
        let mut tries = Tries::new(self, effect);
        loop {
            let budget = tries.budget();
            let mut request = Request::new(message.clone());
            request.set_timeout(budget);
            let peer = tries.peer;
            let failure = match timeout(budget, ask(endpoints.stub(peer), request)).await {
                Ok(Ok(answer)) => {
                    endpoints.prefer(peer);
                    return Ok(answer.into_inner());
                }
                Ok(Err(status)) => Failure::from_status(&status),
                Err(_) => Failure::timeout(),
            };
            tries.failed(failure).await?;
        }
    }
}

/// The failed tries of one call.
pub(crate) struct Tries<'a> {
    client: &'a Client,
    effect: Effect,
    started: Instant,
    deadline: Instant,
    pub(crate) peer: usize,
    failed: usize,
    reached: bool,
    maybe_applied: bool,
    /// The most telling error so far: a server that has no quorum says more than one that is not there.
    no_quorum: Option<(Error, usize)>,
}

impl<'a> Tries<'a> {
    pub(crate) fn new(client: &'a Client, effect: Effect) -> Self {
        let started = Instant::now();
        Self {
            client,
            effect,
            started,
            deadline: started + client.limits.timeout,
            peer: client.inner.endpoints.preferred(),
            failed: 0,
            reached: false,
            maybe_applied: false,
            no_quorum: None,
        }
    }

    /// The time of the next try.
    pub(crate) fn budget(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if self.client.inner.endpoints.len() == 1 { left } else { left.min((left / 2).max(SHORTEST_TRY)) }
    }

    /// Notes a failed try, waits if it is time to, and says with `Err` that there is no point in going on.
    pub(crate) async fn failed(&mut self, failure: Failure) -> Result<(), Error> {
        let endpoints = &self.client.inner.endpoints;
        let write = self.effect == Effect::Write;
        let maybe = write && failure.error.may_have_been_applied();
        let error = if write { failure.error } else { forget_effects(failure.error) };
        if !failure.retry {
            return Err(match error {
                Error::Internal { .. } => error.or_applied(self.maybe_applied),
                other => other,
            });
        }
        self.maybe_applied |= maybe;
        self.reached |= failure.reached;
        self.failed += 1;
        self.peer = endpoints.after(self.peer);
        let elapsed = self.started.elapsed();
        if let Error::NoQuorum { .. } = error {
            let seen = self.no_quorum.take().map_or(0, |(_, seen)| seen) + 1;
            self.no_quorum = Some((error.clone(), seen));
            if seen >= endpoints.len() || elapsed >= NO_QUORUM_WITHIN {
                return Err(self.give_up(error));
            }
            return Ok(());
        }
        let round_done = self.failed.is_multiple_of(endpoints.len());
        if round_done && !self.reached && elapsed >= self.client.limits.unreachable_after {
            return Err(self.give_up(error));
        }
        if round_done {
            let delay = backoff(self.failed / endpoints.len());
            let left = self.deadline.saturating_duration_since(Instant::now());
            sleep(delay.min(left)).await;
        }
        if Instant::now() >= self.deadline {
            return Err(self.give_up(error));
        }
        Ok(())
    }

    fn give_up(&mut self, last: Error) -> Error {
        let error = self.no_quorum.take().map_or(last, |(error, _)| error);
        let error = if self.reached { error } else { unreachable(self.client) };
        let error = match error {
            Error::Timeout { .. } => Error::timeout(self.client.limits.timeout),
            other => other,
        };
        error.or_applied(self.maybe_applied)
    }
}

fn unreachable(client: &Client) -> Error {
    Error::Unavailable {
        message: format!("no server reachable at {}", client.inner.endpoints.addresses()),
        may_have_been_applied: false,
    }
}

/// A read has no effect that could have been applied.
fn forget_effects(mut error: Error) -> Error {
    match &mut error {
        Error::NoQuorum { may_have_been_applied, .. }
        | Error::Unavailable { may_have_been_applied, .. }
        | Error::Timeout { may_have_been_applied, .. }
        | Error::Internal { may_have_been_applied, .. } => *may_have_been_applied = false,
        _ => {}
    }
    error
}

/// Doubling, capped, with up to a quarter taken off so that clients do not come back together.
pub(crate) fn backoff(round: usize) -> Duration {
    let exponent = round.saturating_sub(1).min(10) as u32;
    let delay = FIRST_DELAY.saturating_mul(1 << exponent).min(MAX_DELAY);
    let jitter = uuid::Uuid::new_v4().as_bytes()[0];
    delay - delay * u32::from(jitter) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_cap_and_stay_there() {
        for (round, full) in [(1, 25), (2, 50), (3, 100), (6, 800), (60, 800)] {
            let delay = backoff(round);
            let full = Duration::from_millis(full);
            assert!(delay <= full && delay >= full * 3 / 4, "round {round}: {delay:?}");
        }
    }
}
