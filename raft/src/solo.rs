//! The state without consensus: what a simulator feeds with an ordered log, and benches measure.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::EntryPayload;

use crate::error::OpenError;
use crate::fatal::Fatal;
use crate::feed::Feed;
use crate::flusher::Flusher;
use crate::options::Options;
use crate::seams::AbortHook;
use crate::state::State;
use crate::types::{EntryBytes, log_id};
use crate::view::View;

/// The applied state of one node, fed by whoever has a log: the same overlay, flusher and file as in a
/// [`Replica`](crate::Replica).
pub struct SoloState {
    state: Arc<State>,
    flusher: Option<Flusher>,
}

impl SoloState {
    /// Opens the state in `options.dir`, at its last durable commit. Without `flushing` only
    /// [`SoloState::flush`] moves anything to disk, and a full overlay is an error of the caller.
    pub fn open(options: &Options, abort: AbortHook, flushing: bool) -> Result<SoloState, OpenError> {
        options.check()?;
        let io = |what: &str| {
            let what = what.to_owned();
            move |source| OpenError::Io { what, source }
        };
        std::fs::create_dir_all(&options.dir).map_err(io("make the directory"))?;
        let state = Arc::new(State::open(options, None, Arc::new(Fatal::new(abort)))?);
        let flusher = match flushing {
            false => None,
            true => {
                let interval = Duration::from_millis(options.flush_interval_ms);
                Some(Flusher::start(state.clone(), interval).map_err(io("start the flusher"))?)
            }
        };
        Ok(SoloState { state, flusher })
    }

    /// Applies encoded entries with consecutive log indices from `first`, makes them visible together, and gives the
    /// encoded outcomes of each.
    pub fn apply(&self, first: u64, entries: impl IntoIterator<Item = Bytes>) -> io::Result<Vec<Bytes>> {
        let entries: Vec<_> = entries
            .into_iter()
            .zip(first..)
            .map(|(bytes, index)| crate::types::LogEntry {
                log_id: log_id(1, 1, index),
                payload: EntryPayload::Normal(EntryBytes(bytes)),
            })
            .collect();
        let applied = self.state.apply(&entries)?;
        let mut answers = Vec::with_capacity(entries.len());
        self.state
            .answered(applied, |outcomes| answers.extend(outcomes.into_iter().map(|outcome| outcome.0)));
        Ok(answers)
    }

    /// Moves everything applied to disk.
    pub fn flush(&self) -> io::Result<()> {
        self.state.flush()
    }

    /// The state as applied so far.
    pub fn view(&self) -> View {
        self.state.view()
    }

    /// A fresh reader of the feed.
    pub fn feed(&self) -> Feed {
        self.state.subscribe()
    }

    /// The newest entry that is durable in the file; 0 before the first.
    pub fn durable_index(&self) -> u64 {
        self.state.durable().borrow().map_or(0, |id| id.index)
    }

    /// True while a flusher moves what is applied to disk.
    pub fn is_flushing(&self) -> bool {
        self.flusher.is_some()
    }
}
