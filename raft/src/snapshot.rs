//! Snapshots: an ordered dump of the rows, independent of redb's file format. One form for transfer, purging the log,
//! backup and restore.
//!
//! Form: magic, header (length, CRC32, message), rows (two lengths, place, value; in ascending order of place), an end
//! mark, the number of rows, SHA-256 of everything before; then, when the header says so, a CRC32 for each MiB before
//! the SHA-256, which tells where a damaged file is damaged. A reader gives out rows while it reads, so whoever stores
//! them must not make them visible before the end was found good.

mod read;
mod shelf;
mod sums;
mod write;

use std::fs::File;
use std::io;
use std::path::PathBuf;

use clawhive_proto::prost::Message;

use crate::codec::{WireLogId, WireStoredMembership};

pub(crate) use read::Reader;
pub(crate) use shelf::{Part, Shelf};
pub(crate) use write::write;

const MAGIC: &[u8; 8] = b"CLAWSNAP";
/// The format that this version writes and reads.
pub(crate) const FORMAT: u32 = 1;
const END: u32 = u32::MAX;
const LARGEST_HEADER: u32 = 1 << 20;
const LARGEST_PLACE: u32 = 1 << 16;
const LARGEST_VALUE: u32 = 64 << 20;

/// A snapshot that can't be used. Nothing of it was installed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("damaged: {0}")]
    Damaged(String),
    #[error("it belongs to another cluster")]
    Foreign,
    #[error("it has format {0}, this version reads format {FORMAT}")]
    Format(u32),
}

fn damaged(what: impl Into<String>) -> SnapshotError {
    SnapshotError::Damaged(what.into())
}

#[derive(Clone, PartialEq, Message)]
#[prost(prost_path = "clawhive_proto::prost")]
struct Header {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(bytes = "vec", tag = "2")]
    cluster_id: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    last_log_id: Option<WireLogId>,
    #[prost(message, optional, tag = "4")]
    membership: Option<WireStoredMembership>,
    /// Of the rows; empty when the writer did not know it.
    #[prost(bytes = "vec", tag = "5")]
    digest: Vec<u8>,
    /// A checksum for each MiB follows the SHA-256.
    #[prost(bool, tag = "6")]
    sums: bool,
}

/// A complete snapshot on disk.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

#[cfg(test)]
mod tests;
