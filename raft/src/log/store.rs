//! The log as openraft wants it.
//!
//! Owns: the translation of log ids, votes and entries. Must not: have a rule of its own about the log.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clawhive_proto::prost::Message;
use futures::Stream;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend};
use tokio::sync::oneshot;

use crate::codec::WireMembership;
use crate::disk::Disk;
use crate::types::{self, EntryBytes, LogId, Membership, TypeConfig, Vote, log_id};

use super::error::{LogError, OpenError};
use super::options::{Drive, LogOptions};
use super::segmented::SegmentLog;
use super::shared::{FatalHook, ReadPlan};
use super::types::{Ballot, LogEntry, LogPos};
use super::writer::OnDurable;

/// What an entry holds, as its tag in the log. Numbers are never reused.
const BLANK: u8 = 0;
pub(crate) const COMMANDS: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// A handle to the log; clones are the same log.
#[derive(Clone)]
pub(crate) struct LogStore {
    log: Arc<SegmentLog>,
}

impl LogStore {
    /// Opens the log in `dir`, or makes one. `on_fatal` is called once if the log fails later.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        options: LogOptions,
        on_fatal: FatalHook,
    ) -> Result<LogStore, OpenError> {
        Ok(LogStore { log: Arc::new(SegmentLog::open(disk, dir, options, on_fatal)?) })
    }

    /// Refuses everything from now on, and waits until what was queued is durable.
    pub(crate) async fn close(&self) -> io::Result<()> {
        durable(|done| {
            self.log.close(done);
            Ok(())
        })
        .await
    }

    /// Waits, blocking, until every entry that was accepted before this call is durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let (done, wait) = std::sync::mpsc::channel();
        // Nobody waits any more only if this thread is gone.
        self.log.sync(Box::new(move |result| drop(done.send(result))))?;
        Ok(wait.recv().map_err(|_| LogError::Closed)??)
    }

    async fn read(&self, range: Range<u64>, max_bytes: usize) -> io::Result<Vec<types::LogEntry>> {
        let plan = self.log.plan_read(range, max_bytes)?;
        self.run(plan).await?.into_iter().map(decode).collect()
    }

    async fn run(&self, plan: ReadPlan) -> io::Result<Vec<LogEntry>> {
        if !plan.needs_files() || self.log.options().drive == Drive::Inline {
            return Ok(self.log.run_read(plan)?);
        }
        let log = Arc::clone(&self.log);
        let read = tokio::task::spawn_blocking(move || log.run_read(plan));
        Ok(read.await.map_err(io::Error::other)??)
    }
}

/// Waits until the thing that is started with a callback is durable.
async fn durable(start: impl FnOnce(OnDurable) -> Result<(), LogError>) -> io::Result<()> {
    let (tx, rx) = oneshot::channel();
    start(Box::new(move |result| drop(tx.send(result))))?;
    Ok(rx.await.map_err(|_| LogError::Closed)??)
}

fn pos(id: &LogId) -> LogPos {
    LogPos { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
}

fn id(pos: LogPos) -> LogId {
    log_id(pos.term, pos.node, pos.index)
}

fn encode(entry: types::LogEntry) -> LogEntry {
    let (tag, payload) = match entry.payload {
        EntryPayload::Blank => (BLANK, Bytes::new()),
        EntryPayload::Normal(EntryBytes(bytes)) => (COMMANDS, bytes),
        EntryPayload::Membership(membership) => {
            (MEMBERSHIP, WireMembership::from(&membership).encode_to_vec().into())
        }
    };
    LogEntry { pos: pos(&entry.log_id), tag, payload }
}

fn decode(entry: LogEntry) -> io::Result<types::LogEntry> {
    let wrong = |what: String| {
        let index = entry.pos.index;
        io::Error::new(io::ErrorKind::InvalidData, format!("log entry {index}: {what}"))
    };
    let payload = match entry.tag {
        BLANK => EntryPayload::Blank,
        COMMANDS => EntryPayload::Normal(EntryBytes(entry.payload)),
        MEMBERSHIP => {
            let wire = WireMembership::decode(entry.payload).map_err(|error| wrong(error.to_string()))?;
            let membership = Membership::try_from(wire).map_err(|error| wrong(error.to_string()))?;
            EntryPayload::Membership(membership)
        }
        tag => return Err(wrong(format!("unknown kind {tag}"))),
    };
    Ok(types::LogEntry { log_id: id(entry.pos), payload })
}

fn bounds(range: &impl RangeBounds<u64>) -> Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<types::LogEntry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        use futures::{StreamExt, TryStreamExt};
        let Range { start, end } = bounds(&range);
        let store = self.clone();
        // A piece at a time: after a restart the whole log may have to be applied again.
        let pieces = futures::stream::try_unfold(start, move |at| {
            let store = store.clone();
            async move {
                if at >= end {
                    return Ok::<_, io::Error>(None);
                }
                let piece = store.read(at..end, store.log.options().read_bytes).await?;
                let next = piece.last().map(|entry| entry.log_id.index + 1);
                Ok(next.map(|next| (futures::stream::iter(piece).map(Ok), next)))
            }
        });
        Box::pin(pieces.try_flatten())
    }

    async fn try_get_log_entries<RB>(&mut self, range: RB) -> io::Result<Vec<types::LogEntry>>
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.read(bounds(&range), usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<types::LogEntry>> {
        self.read(start..end, self.log.options().read_bytes).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        let vote = self.log.vote();
        Ok(vote.map(|vote| match vote.committed {
            true => Vote::new_committed(vote.term, vote.node),
            false => Vote::new(vote.term, vote.node),
        }))
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        Ok(LogState { last_purged_log_id: self.log.purged().map(id), last_log_id: self.log.last().map(id) })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        let (term, node) = (vote.leader_id.term, vote.leader_id.node_id);
        let ballot = Ballot { term, node, committed: vote.committed };
        durable(|done| self.log.save_vote(ballot, done)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        match committed {
            Some(id) => Ok(self.log.save_committed(pos(&id))?),
            None => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.log.committed().map(id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = types::LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries = entries.into_iter().map(encode).collect();
        self.log.room().await;
        let done = move |result: Result<(), LogError>| callback.io_completed(result.map_err(Into::into));
        Ok(self.log.append(entries, Box::new(done))?)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        durable(|done| self.log.truncate_after(last_log_id.as_ref().map(pos), done)).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        // Nothing depends on when this becomes durable, so nobody waits for it.
        Ok(self.log.purge(pos(&log_id), Box::new(drop))?)
    }
}

#[cfg(test)]
mod tests;
