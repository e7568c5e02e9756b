//! Snapshots: an ordered dump of the rows, independent of redb's file format.
//!
//! Form: magic, header (length, CRC32, message), rows (two lengths, place, value; in ascending order of place), an end
//! mark, the number of rows, SHA-256 of everything before. A reader gives out rows while it reads, so whoever stores
//! them must not make them visible before the end was found good.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use clawhive_proto::prost::Message;
use clawhive_statemachine::Table;
use sha2::{Digest, Sha256};

use crate::codec::{WireLogId, WireStoredMembership};
use crate::state::DurableState;
use crate::statefile::{Facts, RawRow, sync_parent};
use crate::types::{LogId, SnapshotMeta, StoredMembership};

const MAGIC: &[u8; 8] = b"CLAWSNAP";
const FORMAT: u32 = 1;
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
    #[error("format {0} is not known to this version")]
    Format(u32),
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
}

/// A complete snapshot on disk.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

/// Hashes what passes.
struct Hashing<T> {
    inner: T,
    hash: Sha256,
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

/// Dumps a durable state to `path`, synced. Writes go on meanwhile.
pub(crate) fn write(path: &Path, cluster_id: &[u8; 16], state: &DurableState) -> io::Result<()> {
    let mut out =
        Hashing { inner: BufWriter::with_capacity(1 << 18, File::create(path)?), hash: Sha256::new() };
    let header = Header {
        format: FORMAT,
        cluster_id: cluster_id.to_vec(),
        last_log_id: state.facts.applied.as_ref().map(WireLogId::from),
        membership: Some((&state.facts.membership).into()),
    }
    .encode_to_vec();
    out.write_all(MAGIC)?;
    out.write_all(&(header.len() as u32).to_le_bytes())?;
    out.write_all(&crc32fast::hash(&header).to_le_bytes())?;
    out.write_all(&header)?;
    let mut rows = 0u64;
    let mut range = state.rows.all();
    while let Some((place, value)) = range.as_mut().and_then(|range| range.next_row()) {
        out.write_all(&(place.len() as u32).to_le_bytes())?;
        out.write_all(&(value.len() as u32).to_le_bytes())?;
        out.write_all(&place)?;
        out.write_all(&value)?;
        rows += 1;
    }
    // A failed read ends the walk early: the dump must not look complete.
    state.rows.check()?;
    out.write_all(&END.to_le_bytes())?;
    out.write_all(&rows.to_le_bytes())?;
    let Hashing { mut inner, hash } = out;
    inner.write_all(&hash.finalize())?;
    inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// A snapshot being read.
pub(crate) struct Reader {
    input: Hashing<BufReader<File>>,
    pub(crate) facts: Facts,
    last: Vec<u8>,
    rows: u64,
    done: bool,
}

fn damaged(what: impl Into<String>) -> SnapshotError {
    SnapshotError::Damaged(what.into())
}

fn ended(error: io::Error) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged("it ends early"),
        _ => SnapshotError::Io(error),
    }
}

impl Reader {
    /// Reads and checks the header.
    pub(crate) fn open(file: File, cluster_id: &[u8; 16]) -> Result<Reader, SnapshotError> {
        let mut input = Hashing { inner: BufReader::with_capacity(1 << 18, file), hash: Sha256::new() };
        let mut magic = [0; 8];
        input.read_exact(&mut magic).map_err(ended)?;
        if &magic != MAGIC {
            return Err(damaged("it is not a snapshot"));
        }
        let len = number(&mut input)?;
        let crc = number(&mut input)?;
        if len > LARGEST_HEADER {
            return Err(damaged("header"));
        }
        let header = block(&mut input, len)?;
        if crc32fast::hash(&header) != crc {
            return Err(damaged("header checksum"));
        }
        let header = Header::decode(header.as_slice()).map_err(|error| damaged(error.to_string()))?;
        if header.format != FORMAT {
            return Err(SnapshotError::Format(header.format));
        }
        if header.cluster_id != cluster_id {
            return Err(SnapshotError::Foreign);
        }
        let membership = header.membership.ok_or_else(|| damaged("no membership"))?;
        let membership =
            StoredMembership::try_from(membership).map_err(|error| damaged(error.to_string()))?;
        let facts = Facts { applied: header.last_log_id.map(LogId::from), membership };
        Ok(Reader { input, facts, last: Vec::new(), rows: 0, done: false })
    }

    /// What openraft wants to know about it.
    pub(crate) fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.facts.applied, last_membership: self.facts.membership.clone() }
    }

    /// The next row; none only once the whole was found good.
    pub(crate) fn next_row(&mut self) -> Result<Option<RawRow>, SnapshotError> {
        if self.done {
            return Ok(None);
        }
        let place_len = number(&mut self.input)?;
        if place_len == END {
            return self.finish().map(|()| None);
        }
        let value_len = number(&mut self.input)?;
        if place_len == 0 || place_len > LARGEST_PLACE || value_len > LARGEST_VALUE {
            return Err(damaged("a row's length"));
        }
        let place = block(&mut self.input, place_len)?;
        let value = block(&mut self.input, value_len)?;
        if place <= self.last {
            return Err(damaged("rows out of order"));
        }
        if Table::from_number(place[0]).is_none() {
            return Err(damaged(format!("table {}", place[0])));
        }
        self.rows += 1;
        self.last.clone_from(&place);
        Ok(Some((place, value)))
    }

    fn finish(&mut self) -> Result<(), SnapshotError> {
        let mut rows = [0; 8];
        self.input.read_exact(&mut rows).map_err(ended)?;
        if u64::from_le_bytes(rows) != self.rows {
            return Err(damaged("rows are missing"));
        }
        let expected = self.input.hash.clone().finalize();
        let mut found = [0; 32];
        self.input.inner.read_exact(&mut found).map_err(ended)?;
        if found[..] != expected[..] {
            return Err(damaged("checksum"));
        }
        self.done = true;
        Ok(())
    }

    /// Reads to the end, for the checks alone.
    pub(crate) fn verify(mut self) -> Result<SnapshotMeta, SnapshotError> {
        while self.next_row()?.is_some() {}
        Ok(self.meta())
    }
}

fn number(input: &mut impl Read) -> Result<u32, SnapshotError> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes).map_err(ended)?;
    Ok(u32::from_le_bytes(bytes))
}

fn block(input: &mut impl Read, len: u32) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    input.take(u64::from(len)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == u64::from(len) { Ok(bytes) } else { Err(damaged("it ends early")) }
}

/// The directory of snapshots: one current, others only while they are made.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    dir: PathBuf,
    cluster_id: [u8; 16],
}

impl Shelf {
    /// Opens the directory and removes what a crash left half done.
    pub(crate) fn open(dir: PathBuf, cluster_id: [u8; 16]) -> io::Result<Shelf> {
        std::fs::create_dir_all(&dir)?;
        sync_parent(&dir)?;
        let shelf = Shelf { dir, cluster_id };
        for entry in std::fs::read_dir(&shelf.dir)? {
            let path = entry?.path();
            if path != shelf.current_path() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(shelf)
    }

    pub(crate) fn current_path(&self) -> PathBuf {
        self.dir.join("current.snap")
    }

    /// A name for a snapshot in the making.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn cluster_id(&self) -> &[u8; 16] {
        &self.cluster_id
    }

    /// Makes a complete, synced snapshot the current one, unless that is newer.
    pub(crate) fn put(&self, path: &Path, last: Option<LogId>) -> Result<(), SnapshotError> {
        if let Some((meta, _)) = self.current()?
            && meta.last_log_id > last
        {
            std::fs::remove_file(path)?;
            return Ok(());
        }
        let current = self.current_path();
        std::fs::rename(path, &current)?;
        sync_parent(&current)?;
        Ok(())
    }

    /// The current snapshot, open: it stays readable even when another takes its place.
    pub(crate) fn current(&self) -> Result<Option<(SnapshotMeta, SnapshotFile)>, SnapshotError> {
        let path = self.current_path();
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let meta = Reader::open(file.try_clone()?, &self.cluster_id)?.meta();
        file.rewind()?;
        Ok(Some((meta, SnapshotFile { path, file })))
    }
}

#[cfg(test)]
mod tests;
