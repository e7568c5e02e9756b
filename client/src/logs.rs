//! Reading logs: resumes by the offset reached in each attempt's log.

use std::collections::BTreeMap;

use clawhive_proto::clawhive_client::ClawhiveClient;
use clawhive_proto::{AttemptState, LogChunk, LogPosition, ReadLogsRequest, TaskState};
use futures::stream::BoxStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::Client;
use crate::error::Error;
use crate::follow::run_has_ended;
use crate::resume::{Source, resumable};

/// Pieces of logs, in the order they were written, attempt by attempt.
pub type LogStream = BoxStream<'static, Result<LogChunk, Error>>;

impl Client {
    /// The bytes that a task (or all tasks of a run) wrote; stays for more when asked to. Resumes by offset after a lost
    /// connection: no byte lost, none repeated. A chunk with `unavailable` says why an attempt's log cannot be read.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, proto::ReadLogsRequest};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// use futures::StreamExt;
    /// let request = ReadLogsRequest { run: 42, task: "report".into(), follow: true, ..Default::default() };
    /// let mut chunks = client.logs(request);
    /// while let Some(chunk) = chunks.next().await {
    ///     print!("{}", String::from_utf8_lossy(&chunk?.data));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn logs(&self, request: ReadLogsRequest) -> LogStream {
        resumable(self, Logs { request, read: BTreeMap::new() })
    }
}

struct Logs {
    request: ReadLogsRequest,
    /// By task and attempt, the offset reached.
    read: BTreeMap<(String, u32), u64>,
}

impl Source for Logs {
    type Wire = LogChunk;
    type Item = LogChunk;

    async fn open(
        &mut self,
        mut stub: ClawhiveClient<Channel>,
    ) -> Result<Response<Streaming<LogChunk>>, Status> {
        let mut request = self.request.clone();
        request.resume_from = (self.read.iter())
            .map(|((task, attempt), offset)| LogPosition {
                task: task.clone(),
                attempt: *attempt,
                offset: *offset,
            })
            .collect();
        stub.read_logs(Request::new(request)).await
    }

    fn accept(&mut self, mut chunk: LogChunk) -> Option<LogChunk> {
        if !chunk.unavailable.is_empty() || chunk.next_offset == 0 {
            return Some(chunk);
        }
        let reached = self.read.entry((chunk.task.clone(), chunk.attempt)).or_default();
        if chunk.next_offset <= *reached {
            return None;
        }
        // A mark is not part of the bytes that the offsets count: it is there whole or not at all.
        let mark = chunk.stream() == clawhive_proto::LogStream::Unspecified;
        // A server that does not resume sends from the start, maybe cut in other places.
        let starts = chunk.next_offset.saturating_sub(chunk.data.len() as u64);
        let repeated = reached.saturating_sub(starts) as usize;
        *reached = chunk.next_offset;
        if repeated > 0 && !mark {
            chunk.data = chunk.data.split_off(repeated.min(chunk.data.len()));
        }
        Some(chunk)
    }

    async fn is_all(&mut self, client: &Client) -> Result<bool, Error> {
        let ReadLogsRequest { run, ref task, attempt, follow, .. } = self.request;
        if !follow {
            return Ok(true);
        }
        if task.is_empty() {
            return run_has_ended(client, run).await;
        }
        let view = match client.get_run(run).await {
            Ok(view) => view,
            Err(Error::Unavailable { .. } | Error::Timeout { .. } | Error::NoQuorum { .. }) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let Some(found) = view.tasks.iter().find(|one| one.name == *task) else { return Ok(true) };
        let attempt_ended = (found.attempts.iter())
            .find(|one| one.number == attempt)
            .and_then(|one| one.row.as_ref())
            .is_some_and(|row| !matches!(row.state(), AttemptState::Dispatched | AttemptState::Running));
        Ok(attempt_ended || found.row.as_ref().is_none_or(|row| task_has_ended(row.state())))
    }
}

fn task_has_ended(state: TaskState) -> bool {
    matches!(
        state,
        TaskState::Succeeded
            | TaskState::Failed
            | TaskState::Cancelled
            | TaskState::Skipped
            | TaskState::UpstreamFailed
            | TaskState::Quarantined
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(attempt: u32, data: &'static str, next_offset: u64) -> LogChunk {
        let stream = clawhive_proto::LogStream::Stdout.into();
        LogChunk { task: "a".into(), attempt, stream, data: data.into(), next_offset, ..Default::default() }
    }

    #[test]
    fn repeats_are_dropped_and_overlaps_cut() {
        let mut logs = Logs { request: ReadLogsRequest::default(), read: BTreeMap::new() };
        let mut take = |one| logs.accept(one).map(|chunk| String::from_utf8(chunk.data.to_vec()).unwrap());
        assert_eq!(take(chunk(1, "one ", 4)).as_deref(), Some("one "));
        assert_eq!(take(chunk(1, "one ", 4)), None);
        assert_eq!(take(chunk(1, "one two", 7)).as_deref(), Some("two"));
        // A mark takes less room in the log than its text has letters.
        let stream = clawhive_proto::LogStream::Unspecified.into();
        let mark = LogChunk { stream, ..chunk(1, "[dropped]", 9) };
        assert_eq!(take(mark.clone()).as_deref(), Some("[dropped]"));
        assert_eq!(take(mark), None);
        assert_eq!(take(chunk(2, "one", 3)).as_deref(), Some("one"), "another attempt has its own place");
    }
}
