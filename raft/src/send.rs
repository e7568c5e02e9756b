//! The sending side of a snapshot's transfer: finds out what the peer has of it already, and sends the rest.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::FrameKind;
use clawhive_proto::prost::Message;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::background;
use crate::network::Network;
use crate::snapshot::{Part, Reader, SnapshotFile};
use crate::transport::{Peer, TransportError};
use crate::types::Vote;
use crate::wire::{self, WireOffer, WireOfferReply, WireSnapshotStart};

/// A snapshot travels in chunks of this.
const CHUNK_BYTES: usize = 1 << 18;
/// A snapshot may take this long for each GiB, and once more.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(600);
/// The peer reads what it has before it answers.
const OFFER_TIMEOUT: Duration = Duration::from_secs(30);

/// One snapshot on its way to one peer.
pub(crate) struct Sending<'a> {
    pub(crate) network: &'a Network,
    pub(crate) peer: &'a Peer,
}

impl Sending<'_> {
    /// Sends it, and waits until it is installed there.
    pub(crate) async fn send(&self, vote: &Vote, snapshot: SnapshotFile) -> Result<Bytes, TransportError> {
        let broken = |error: io::Error| TransportError::Unreachable(format!("the snapshot: {error}"));
        let file = snapshot.file;
        let bytes = file.metadata().map_err(broken)?.len();
        let mut start = WireSnapshotStart { vote: Some(vote.into()), bytes, ..WireSnapshotStart::default() };
        let head = file.try_clone().map_err(broken)?;
        let id = Reader::open_any(head).map_err(|error| TransportError::Unreachable(error.to_string()))?.id;
        if let Some(part) = self.offer(&id, bytes).await? {
            start.id = id.to_vec();
            start.checked = true;
            start.offset = matching(&file, part).await.map_err(broken)?;
        }
        tracing::info!(to = self.peer.id, bytes, from_byte = start.offset, "sending a snapshot");
        let timeout = SNAPSHOT_TIMEOUT * (1 + (bytes >> 30) as u32);
        let sending = self.network.transport.send_snapshot(self.peer, chunks(start, file));
        let answer = match tokio::time::timeout(timeout, sending).await {
            Ok(answer) => answer,
            Err(_) => Err(TransportError::Unreachable("a snapshot takes too long".to_owned())),
        };
        answer.map_err(|error| {
            tracing::warn!(to = self.peer.id, %error, "a snapshot did not arrive");
            match error {
                // The next try comes after a pause, and goes on where this one broke off.
                TransportError::Lost(reason) => TransportError::Unreachable(reason),
                other => other,
            }
        })
    }

    /// What the peer has of it; none when it does not know offers.
    async fn offer(&self, id: &[u8], bytes: u64) -> Result<Option<Part>, TransportError> {
        let offer = WireOffer { id: id.to_vec(), bytes }.encode_to_vec().into();
        let asked =
            self.network.transport.call(self.peer, FrameKind::SnapshotOffer, offer, OFFER_TIMEOUT).await;
        let reply = match asked {
            Ok(reply) => WireOfferReply::decode(reply).ok(),
            Err(TransportError::Refused(reason)) => {
                tracing::debug!(to = self.peer.id, reason, "the peer takes snapshots only as a whole");
                return Ok(None);
            }
            Err(TransportError::Lost(reason)) => return Err(TransportError::Unreachable(reason)),
            Err(error) => return Err(error),
        };
        let part = reply.and_then(|reply| {
            Some(Part { bytes: reply.offset, hash: reply.hash.as_slice().try_into().ok()? })
        });
        part.ok_or_else(|| TransportError::Refused("an answer that makes no sense".to_owned())).map(Some)
    }
}

/// Where to go on: behind the part that the peer has, when it is the same as ours.
async fn matching(file: &File, part: Part) -> io::Result<u64> {
    if part.bytes == 0 {
        return Ok(0);
    }
    let file = file.try_clone()?;
    let ours = background::run("clawhive-part", move || Part::of(&file, part.bytes).map(|ours| (ours, part)));
    let (ours, part) = ours.await??;
    if ours == part {
        return Ok(part.bytes);
    }
    tracing::warn!(bytes = part.bytes, "what a peer has of a snapshot is not what was sent: all of it again");
    Ok(0)
}

/// The start, then the file from there, read on a thread for blocking work.
fn chunks(start: WireSnapshotStart, file: File) -> BoxStream<'static, io::Result<Bytes>> {
    let (offset, checked) = (start.offset, start.checked);
    let rest = read_from(file, offset).map(move |bytes| {
        let bytes = bytes?;
        Ok(if checked { wire::chunk(&bytes) } else { bytes })
    });
    Box::pin(stream::once(async move { Ok(start.encode_to_vec().into()) }).chain(rest))
}

/// A file from a place on, piece by piece: never more than one piece in memory.
pub(crate) fn read_from(file: File, offset: u64) -> BoxStream<'static, io::Result<Bytes>> {
    Box::pin(stream::unfold(Some((file, offset)), |at| async move {
        let (mut file, offset) = at?;
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(CHUNK_BYTES);
            file.seek(SeekFrom::Start(offset))?;
            (&mut file).take(CHUNK_BYTES as u64).read_to_end(&mut piece)?;
            Ok((piece, file))
        });
        match read.await.map_err(io::Error::other).and_then(|read| read) {
            Ok((piece, _)) if piece.is_empty() => None,
            Ok((piece, file)) => {
                let next = offset + piece.len() as u64;
                Some((Ok(piece.into()), Some((file, next))))
            }
            Err(error) => Some((Err(error), None)),
        }
    }))
}
