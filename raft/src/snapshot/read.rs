//! Reading a snapshot.

use std::fs::File;
use std::io::{self, BufReader, Read};

use clawhive_proto::prost::Message;
use clawhive_statemachine::Table;
use sha2::{Digest, Sha256};

use super::sums::{self, Hashing};
use super::{
    END, FORMAT, Header, LARGEST_HEADER, LARGEST_PLACE, LARGEST_VALUE, MAGIC, SnapshotError, damaged,
};
use crate::digest::StateDigest;
use crate::statefile::{Facts, RawRow};
use crate::types::{LogId, SnapshotMeta, StoredMembership};

/// A snapshot being read.
pub(crate) struct Reader {
    input: Hashing<BufReader<File>>,
    pub(crate) facts: Facts,
    pub(crate) cluster_id: [u8; 16],
    /// Of header and length: snapshots that have it in common have everything in common.
    pub(crate) id: [u8; 32],
    sums: bool,
    digest: StateDigest,
    last: Vec<u8>,
    pub(crate) rows: u64,
    done: bool,
}

impl Reader {
    /// Reads and checks the header of one of this cluster's snapshots.
    pub(crate) fn open(file: File, cluster_id: &[u8; 16]) -> Result<Reader, SnapshotError> {
        let reader = Reader::open_any(file)?;
        if reader.cluster_id == *cluster_id { Ok(reader) } else { Err(SnapshotError::Foreign) }
    }

    /// Reads and checks the header, whatever cluster it is of.
    pub(crate) fn open_any(file: File) -> Result<Reader, SnapshotError> {
        let bytes = file.metadata()?.len();
        let mut input = Hashing::new(BufReader::with_capacity(1 << 18, file));
        let mut magic = [0; 8];
        match input.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            Ok(()) if &magic == MAGIC => {}
            _ => return Err(damaged("it does not begin like a snapshot")),
        }
        let len = number(&mut input)?;
        let crc = number(&mut input)?;
        if len > LARGEST_HEADER {
            return Err(damaged("the length of the header"));
        }
        let header = block(&mut input, len)?;
        if crc32fast::hash(&header) != crc {
            return Err(damaged("the checksum of the header (bytes 16 and on)"));
        }
        let mut id = Sha256::new();
        id.update(bytes.to_le_bytes());
        id.update(&header);
        let header = Header::decode(header.as_slice()).map_err(|error| damaged(error.to_string()))?;
        if header.format != FORMAT {
            return Err(SnapshotError::Format(header.format));
        }
        let cluster_id = header.cluster_id.try_into().map_err(|_| damaged("the cluster id"))?;
        let membership = header.membership.ok_or_else(|| damaged("no membership"))?;
        let membership =
            StoredMembership::try_from(membership).map_err(|error| damaged(error.to_string()))?;
        let applied = header.last_log_id.map(LogId::from);
        let facts = Facts { applied, membership, digest: StateDigest::from_bytes(&header.digest) };
        Ok(Reader {
            input,
            facts,
            cluster_id,
            id: id.finalize().into(),
            sums: header.sums,
            digest: StateDigest::default(),
            last: Vec::new(),
            rows: 0,
            done: false,
        })
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
        let row = match self.row() {
            // What looks wrong first need not be where the damage is.
            Err(SnapshotError::Damaged(what)) => return Err(self.located(&what)),
            row => row?,
        };
        let Some((place, value)) = row else { return self.finish().map(|()| None) };
        self.digest.add(&place, &value);
        self.rows += 1;
        self.last.clone_from(&place);
        Ok(Some((place, value)))
    }

    fn located(&self, what: &str) -> SnapshotError {
        match sums::locate(self.input.inner.get_ref()).filter(|_| self.sums) {
            Some(place) => damaged(format!("{what}; the checksum differs {place}")),
            None => damaged(what),
        }
    }

    fn row(&mut self) -> Result<Option<RawRow>, SnapshotError> {
        let at = self.input.at;
        let place_len = number(&mut self.input)?;
        if place_len == END {
            return Ok(None);
        }
        let value_len = number(&mut self.input)?;
        let wrong = |what: &str, row: u64| damaged(format!("{what} of row {} (at byte {at})", row + 1));
        if place_len == 0 || place_len > LARGEST_PLACE || value_len > LARGEST_VALUE {
            return Err(wrong("the length", self.rows));
        }
        let place = block(&mut self.input, place_len)?;
        let value = block(&mut self.input, value_len)?;
        if place <= self.last {
            return Err(wrong("the order", self.rows));
        }
        if Table::from_number(place[0]).is_none() {
            return Err(wrong(&format!("the table {}", place[0]), self.rows));
        }
        Ok(Some((place, value)))
    }

    fn finish(&mut self) -> Result<(), SnapshotError> {
        let mut rows = [0; 8];
        self.input.read_exact(&mut rows).map_err(|error| ended(error, self.input.at))?;
        let expected = self.input.hash.clone().finalize();
        let mut found = [0; 32];
        self.input.inner.read_exact(&mut found).map_err(|error| ended(error, self.input.at))?;
        let table = if self.sums { Some(sums::read_table(&mut self.input.inner)?) } else { None };
        if found[..] != expected[..] {
            let place = match table.and_then(|table| sums::differs(&mut self.input, &table)) {
                Some(place) => place,
                None => format!("somewhere before byte {}", self.input.at),
            };
            return Err(damaged(format!("the checksum differs {place}")));
        }
        if u64::from_le_bytes(rows) != self.rows {
            return Err(damaged("rows are missing"));
        }
        if self.facts.digest.is_some_and(|digest| digest != self.digest) {
            return Err(damaged(format!(
                "its rows have digest {}, not the one in its header: the state that it was made of was damaged",
                self.digest
            )));
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

fn ended(error: io::Error, at: u64) -> SnapshotError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(format!("it ends early, at byte {at}")),
        _ => SnapshotError::Io(error),
    }
}

fn number(input: &mut Hashing<BufReader<File>>) -> Result<u32, SnapshotError> {
    let mut bytes = [0; 4];
    input.read_exact(&mut bytes).map_err(|error| ended(error, input.at))?;
    Ok(u32::from_le_bytes(bytes))
}

fn block(input: &mut Hashing<BufReader<File>>, len: u32) -> Result<Vec<u8>, SnapshotError> {
    let mut bytes = Vec::new();
    input.by_ref().take(u64::from(len)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == u64::from(len) {
        Ok(bytes)
    } else {
        Err(damaged(format!("it ends early, at byte {}", input.at)))
    }
}
