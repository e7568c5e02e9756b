//! Temporary log in memory.
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex};

use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};

use crate::types::{LogEntry, LogId, TypeConfig, Vote};

#[derive(Clone, Default)]
pub(crate) struct MemoryLog(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    entries: BTreeMap<u64, LogEntry>,
}

impl RaftLogReader<TypeConfig> for MemoryLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<LogEntry>> {
        Ok(self.0.lock().unwrap().entries.range(range).map(|(_, e)| e.clone()).collect())
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.0.lock().unwrap().vote)
    }
}

impl RaftLogStorage<TypeConfig> for MemoryLog {
    type LogReader = MemoryLog;
    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let inner = self.0.lock().unwrap();
        let last = inner.entries.values().last().map(|e| e.log_id).or(inner.purged);
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: last })
    }
    async fn get_log_reader(&mut self) -> MemoryLog {
        self.clone()
    }
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.0.lock().unwrap().vote = Some(*vote);
        Ok(())
    }
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.0.lock().unwrap().committed = committed;
        Ok(())
    }
    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.0.lock().unwrap().committed)
    }
    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry> + Send,
        I::IntoIter: Send,
    {
        for e in entries {
            self.0.lock().unwrap().entries.insert(e.log_id.index, e);
        }
        callback.io_completed(Ok(()));
        Ok(())
    }
    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let at = last.map_or(0, |id| id.index + 1);
        drop(self.0.lock().unwrap().entries.split_off(&at));
        Ok(())
    }
    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        inner.purged = Some(id);
        inner.entries = inner.entries.split_off(&(id.index + 1));
        Ok(())
    }
}
