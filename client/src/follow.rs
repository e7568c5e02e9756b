//! Watching a run and reading events: what each has received so far and how it goes on from there.

use clawhive_proto::clawhive_client::ClawhiveClient;
use clawhive_proto::{EventView, ListEventsRequest, RunView, WatchRunRequest};
use futures::stream::BoxStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::error::Error;
use crate::resume::{Source, resumable};
use crate::{Client, has_ended};

/// The run, now and after each change.
pub type RunStream = BoxStream<'static, Result<RunView, Error>>;
/// Events in the order of the log.
pub type EventStream = BoxStream<'static, Result<EventView, Error>>;

impl Client {
    /// The run now and after changes (several may come as one), until it has ended; its last item is the ended run.
    /// Never goes back in time, also when it resumes on a peer that is behind. `brief`: with counts, without tasks.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// use futures::StreamExt;
    /// let mut views = client.watch_run(42, true);
    /// while let Some(view) = views.next().await {
    ///     println!("{:?}", view?.counts);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch_run(&self, run: u64, brief: bool) -> RunStream {
        resumable(self, Watch { run, brief, seen: 0, ended: false })
    }

    /// Events in the order of the log, of a run or of all, after a log index; stays for new ones when asked to. Resumes
    /// by log index after a lost connection: no gap, no repeat. Filters by namespace, workflow and kind are the server's work.
    /// With `progress` there are also items that are no events (their `progress` is set): everything up to their `log_index`
    /// was searched, and may be resumed from there.
    ///
    /// A place to go on from that is older than what is kept gives [`Error::Compacted`]; without one (0) it starts with the
    /// oldest event that is kept.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, proto::ListEventsRequest};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// use futures::StreamExt;
    /// let request = ListEventsRequest { run: 42, follow: true, ..Default::default() };
    /// let mut events = client.events(request);
    /// while let Some(event) = events.next().await {
    ///     let event = event?;
    ///     println!("{} {} {}", event.log_index, event.kind, event.task);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(&self, request: ListEventsRequest) -> EventStream {
        resumable(self, Events { last: request.after_log_index, of_last: 0, skip: 0, ended: false, request })
    }
}

struct Watch {
    run: u64,
    brief: bool,
    /// Applied index of the newest view.
    seen: u64,
    ended: bool,
}

impl Source for Watch {
    type Wire = RunView;
    type Item = RunView;

    async fn open(
        &mut self,
        mut stub: ClawhiveClient<Channel>,
    ) -> Result<Response<Streaming<RunView>>, Status> {
        stub.watch_run(Request::new(WatchRunRequest { run: self.run, brief: self.brief })).await
    }

    fn accept(&mut self, view: RunView) -> Option<RunView> {
        let ended = view.run.as_ref().is_some_and(|row| has_ended(row.state()));
        let older = view.applied_index < self.seen;
        let repeated = view.applied_index == self.seen && self.seen > 0;
        if older || repeated && !ended || self.ended {
            return None;
        }
        self.seen = view.applied_index;
        self.ended = ended;
        Some(view)
    }

    async fn is_all(&mut self, _client: &Client) -> Result<bool, Error> {
        Ok(self.ended)
    }
}

struct Events {
    request: ListEventsRequest,
    /// The newest log index received, and how many events of it: one entry may hold several, and the connection may
    /// break between them.
    last: u64,
    of_last: usize,
    /// Events of `last` that the newest stream repeats.
    skip: usize,
    ended: bool,
}

impl Source for Events {
    type Wire = EventView;
    type Item = EventView;

    async fn open(
        &mut self,
        mut stub: ClawhiveClient<Channel>,
    ) -> Result<Response<Streaming<EventView>>, Status> {
        let after_log_index = if self.of_last > 0 { self.last - 1 } else { self.last };
        self.skip = self.of_last;
        // Also who does not want to see it needs the progress, so as not to search everything again.
        let request = ListEventsRequest { after_log_index, progress: true, ..self.request.clone() };
        stub.list_events(Request::new(request)).await
    }

    fn accept(&mut self, event: EventView) -> Option<EventView> {
        if event.log_index < self.last {
            return None;
        }
        if event.progress {
            (self.last, self.of_last, self.skip) = (event.log_index, 0, 0);
            return self.request.progress.then_some(event);
        }
        if event.log_index == self.last {
            if self.skip > 0 {
                self.skip -= 1;
                return None;
            }
            self.of_last += 1;
        } else {
            self.last = event.log_index;
            self.of_last = 1;
            self.skip = 0;
        }
        self.ended |= matches!(event.kind.as_str(), "run_succeeded" | "run_failed" | "run_cancelled");
        Some(event)
    }

    async fn is_all(&mut self, client: &Client) -> Result<bool, Error> {
        if !self.request.follow || (self.request.run != 0 && self.ended) {
            return Ok(true);
        }
        run_has_ended(client, self.request.run).await
    }
}

/// Asks the cluster; a lost connection at this moment only means that the stream is opened again.
pub(crate) async fn run_has_ended(client: &Client, run: u64) -> Result<bool, Error> {
    if run == 0 {
        return Ok(false);
    }
    let message = clawhive_proto::GetRunRequest { run, brief: true, stale: false };
    match client.get_run_with(message).await {
        Ok(view) => Ok(view.run.is_some_and(|row| has_ended(row.state()))),
        Err(Error::Unavailable { .. } | Error::Timeout { .. } | Error::NoQuorum { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
