//! The receiving side of a snapshot's transfer.
//!
//! Owns: parts of snapshots that break off and are gone on with, the check of every chunk on arrival and of the whole
//! before anything of it is installed. Must not: install; that is openraft's to order.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::prost::Message;
use futures::StreamExt;
use futures::stream::BoxStream;
use openraft::Snapshot;

use crate::background::{self, Paced};
use crate::codec;
use crate::error::HandleError;
use crate::machine;
use crate::replica::Core;
use crate::serve::{malformed, stopped};
use crate::snapshot::{Reader, SnapshotError};
use crate::types::{SnapshotMeta, Vote};
use crate::wire::{self, WireOffer, WireOfferReply, WireSnapshotStart};

/// A transfer whose sender is gone lets go of the part within this time; the next one waits for it.
const HAND_OVER: Duration = Duration::from_secs(10);

/// Chunks that have arrived and wait for the disk.
const QUEUE: usize = 8;

fn refused(error: impl std::fmt::Display) -> HandleError {
    HandleError::Snapshot(error.to_string())
}

impl Core {
    /// Says how much of a snapshot is here already.
    pub(crate) async fn answer_offer(&self, payload: Bytes) -> Result<Bytes, HandleError> {
        let offer = WireOffer::decode(payload).map_err(|error| malformed(error.into()))?;
        let _turn = self.turn().await?;
        let shelf = self.shelf.clone();
        let part = background::run("clawhive-part", move || shelf.part(&offer.id, offer.bytes)).await;
        let part = part.and_then(|part| part).map_err(refused)?;
        Ok(WireOfferReply { offset: part.bytes, hash: part.hash.to_vec() }.encode_to_vec().into())
    }

    /// One transfer at a time.
    async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, HandleError> {
        let turn = tokio::time::timeout(HAND_OVER, self.incoming.lock()).await;
        turn.map_err(|_| refused("another snapshot is being received"))
    }

    pub(crate) async fn handle_snapshot(
        &self,
        mut chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, HandleError> {
        let turn = self.turn().await?;
        let first = match chunks.next().await {
            Some(Ok(first)) => first,
            Some(Err(error)) => return Err(refused(error)),
            None => return Err(HandleError::Malformed("an empty snapshot".to_owned())),
        };
        let start = WireSnapshotStart::decode(first).map_err(|error| malformed(error.into()))?;
        let vote: Vote = start.vote.clone().ok_or_else(|| malformed(codec::missing("vote")))?.into();
        self.reach.heard(vote.leader_id.node_id);
        let path = self.shelf.part_path(&start.id);
        self.take(&start, vote, chunks).await?;
        let (cluster_id, checked) = (*self.shelf.cluster_id(), path.clone());
        let meta = background::run("clawhive-verify", move || {
            let checked = File::open(&checked).map_err(SnapshotError::from);
            checked.and_then(|file| Reader::open(file, &cluster_id)?.verify())
        });
        let meta = match meta.await.map_err(refused)? {
            Ok(meta) => meta,
            Err(error) => {
                // Every chunk was good, the whole is not: no use in going on with it.
                self.shelf.drop_parts(None).map_err(refused)?;
                tracing::warn!(%error, from = vote.leader_id.node_id, "a snapshot is refused");
                return Err(refused(error));
            }
        };
        drop(turn);
        self.install(vote, meta, path).await
    }

    async fn install(&self, vote: Vote, meta: SnapshotMeta, path: PathBuf) -> Result<Bytes, HandleError> {
        let snapshot = machine::received(path).map_err(refused)?;
        tracing::info!(index = meta.last_log_id.map_or(0, |id| id.index), "a snapshot is received");
        let reply =
            self.raft.install_full_snapshot(vote, Snapshot { meta, snapshot }).await.map_err(stopped)?;
        Ok(wire::snapshot_reply(&reply.vote))
    }

    /// Writes the chunks behind what is there. What was good stays when it breaks off.
    async fn take(
        &self,
        start: &WireSnapshotStart,
        vote: Vote,
        mut chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<(), HandleError> {
        let file = self.shelf.go_on(&start.id, start.offset).map_err(refused)?;
        let (queue, waiting) = std::sync::mpsc::sync_channel::<Bytes>(QUEUE);
        // The channel's end is where the file is complete, or as far as it goes.
        let writing = background::run("clawhive-receive", move || {
            let mut file = Paced::new(file);
            for chunk in waiting {
                file.write_all(&chunk)?;
            }
            file.finish().map(drop)
        });
        let reach = self.reach.clone();
        let (checked, total) = (start.checked, start.bytes);
        let mut at = start.offset;
        let feeding = async move {
            while let Some(chunk) = chunks.next().await {
                let chunk = wire::read_chunk(chunk.map_err(refused)?, checked).ok_or_else(|| {
                    tracing::warn!(
                        at,
                        from = vote.leader_id.node_id,
                        "a damaged part of a snapshot is refused"
                    );
                    refused(format!("the part at byte {at} is damaged"))
                })?;
                at += chunk.len() as u64;
                if at > total {
                    return Err(refused("it is longer than announced"));
                }
                reach.heard(vote.leader_id.node_id);
                let mut chunk = chunk;
                // Never blocks this thread: consensus runs on it.
                while let Err(error) = queue.try_send(chunk) {
                    match error {
                        std::sync::mpsc::TrySendError::Full(back) => chunk = back,
                        std::sync::mpsc::TrySendError::Disconnected(_) => return Ok(()),
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            if at < total { Err(refused(format!("it broke off at byte {at} of {total}"))) } else { Ok(()) }
        };
        let (fed, written) = tokio::join!(feeding, writing);
        written.and_then(|written| written).map_err(refused)?;
        fed
    }
}
