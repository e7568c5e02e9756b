//! A snapshot for somebody outside of the log's own needs: a backup, or a peer that rebuilds itself.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;

use crate::background;
use crate::error::ReadError;
use crate::replica::Core;
use crate::send;
use crate::snapshot;

/// A snapshot made for one reader. Its room on the disk is free again when this is dropped.
pub struct Export {
    /// The newest entry that it covers.
    pub applied_index: u64,
    /// Its length.
    pub bytes: u64,
    file: File,
}

impl Export {
    /// Its bytes from a place on, in pieces: one in memory at a time.
    pub fn read_from(self, offset: u64) -> BoxStream<'static, io::Result<Bytes>> {
        send::read_from(self.file, offset)
    }
}

/// Why no snapshot was made.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Not caught up with what it must cover.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be written.
    #[error("the snapshot can't be written: {0}")]
    Io(#[from] io::Error),
}

static EXPORTS: AtomicU64 = AtomicU64::new(0);

impl Core {
    /// Makes a snapshot that covers `at_least`; without one, everything acknowledged before this call.
    pub(crate) async fn export(
        &self,
        at_least: Option<u64>,
        timeout: Duration,
    ) -> Result<Export, ExportError> {
        match at_least {
            Some(index) => drop(self.wait_applied(index, timeout).await?),
            None => drop(self.linearizable_view(timeout).await?),
        }
        let state = self.state.clone();
        let durable =
            tokio::task::spawn_blocking(move || state.flushed()).await.map_err(io::Error::other)??;
        let shelf = self.shelf.clone();
        let export = background::run("clawhive-export", move || {
            let path = shelf.scratch(&format!("export-{}.snap", EXPORTS.fetch_add(1, Ordering::Relaxed)));
            let applied_index = durable.facts.applied.map_or(0, |id| id.index);
            let written =
                snapshot::write(&path, shelf.cluster_id(), &durable).and_then(|()| File::open(&path));
            // Nameless from now on: it goes with the last who reads it, however that ends.
            std::fs::remove_file(&path)?;
            let file = written?;
            Ok::<_, io::Error>(Export { applied_index, bytes: file.metadata()?.len(), file })
        });
        Ok(export.await??)
    }
}
