//! A segment file: its name, its header, and its handle.
//!
//! Owns: the header's layout. The header carries the state as of the segment's beginning, so that older
//! segments can go without taking vote, purged or committed with them.
//!
//! Layout, little endian, one block of 4,096 bytes:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 8 | magic `CLAWLOG` and a zero |
//! | 8 | 4 | format version |
//! | 12 | 4 | length of this header |
//! | 16 | 8 | number of the segment |
//! | 24 | 8 | where the records of the segment before end |
//! | 32 | 8 | flags: 1 vote, 2 vote committed, 4 purged, 8 committed, 16 last are there |
//! | 40 | 16 | vote: term, node |
//! | 56 | 24 | purged: term, node, index |
//! | 80 | 24 | committed |
//! | 104 | 24 | last entry before this segment |
//! | 128 | 4 | CRC-32 of all before |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::DiskFile;

use super::ledger::Ledger;
use super::record::{u32_at, u64_at};
use super::types::{Ballot, LogPos};

/// The version of everything in a segment.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Where the first record is.
pub(crate) const HEADER_LEN: u64 = 4096;
const MAGIC: &[u8; 8] = b"CLAWLOG\0";
const CRC_AT: usize = 128;

const SUFFIX: &str = ".log";
/// A file that is not part of the log: to be zeroed, or being zeroed, or ready.
pub(crate) const FREE_SUFFIX: &str = ".free";

/// A segment that is part of the log. Whoever holds it keeps its file from being used again.
pub(crate) struct Segment {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<dyn DiskFile>,
    pub len: u64,
}

pub(crate) fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}{SUFFIX}"))
}

pub(crate) fn free_path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}{FREE_SUFFIX}"))
}

/// The number in a name with this suffix.
fn number_in(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    if digits.len() != 16 {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

pub(crate) fn segment_number(name: &str) -> Option<u64> {
    number_in(name, SUFFIX)
}

pub(crate) fn free_number(name: &str) -> Option<u64> {
    number_in(name, FREE_SUFFIX)
}

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub number: u64,
    /// Where the records of the segment before end; 0 for the first segment ever.
    pub previous_end: u64,
    /// The state before the first record. Its `origin` does not travel.
    pub ledger: Ledger,
}

pub(crate) enum HeaderError {
    Version(u32),
    Damaged(&'static str),
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Ledger { vote, purged, committed, last, .. } = self.ledger;
        let flags = u64::from(vote.is_some())
            | u64::from(vote.is_some_and(|vote| vote.committed)) << 1
            | u64::from(purged.is_some()) << 2
            | u64::from(committed.is_some()) << 3
            | u64::from(last.is_some()) << 4;
        let mut buf = Vec::with_capacity(HEADER_LEN as usize);
        buf.extend_from_slice(MAGIC);
        buf.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        buf.extend_from_slice(&(HEADER_LEN as u32).to_le_bytes());
        for word in [self.number, self.previous_end, flags] {
            buf.extend_from_slice(&word.to_le_bytes());
        }
        let (term, node) = vote.map_or((0, 0), |vote| (vote.term, vote.node));
        buf.extend_from_slice(&term.to_le_bytes());
        buf.extend_from_slice(&node.to_le_bytes());
        for pos in [purged, committed, last] {
            let pos = pos.unwrap_or_default();
            for word in [pos.term, pos.node, pos.index] {
                buf.extend_from_slice(&word.to_le_bytes());
            }
        }
        let crc = crc32fast::hash(&buf);
        buf.extend_from_slice(&crc.to_le_bytes());
        buf.resize(HEADER_LEN as usize, 0);
        buf
    }

    pub(crate) fn decode(buf: &[u8]) -> Result<Header, HeaderError> {
        if buf.len() < HEADER_LEN as usize {
            return Err(HeaderError::Damaged("the file is shorter than a header"));
        }
        if &buf[..8] != MAGIC {
            return Err(HeaderError::Damaged("it does not begin as a log segment does"));
        }
        let whole = u32_at(buf, CRC_AT) == crc32fast::hash(&buf[..CRC_AT]);
        let version = u32_at(buf, 8);
        if version != FORMAT_VERSION {
            // Another version may put its checksum elsewhere, so only a flipped bit of ours is told apart.
            let mut ours = buf[..CRC_AT].to_vec();
            ours[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
            return Err(if crc32fast::hash(&ours) == u32_at(buf, CRC_AT) {
                HeaderError::Damaged("the version is not the one that was written")
            } else {
                HeaderError::Version(version)
            });
        }
        if !whole {
            return Err(HeaderError::Damaged("the checksum does not match"));
        }
        if u32_at(buf, 12) != HEADER_LEN as u32
            || buf[CRC_AT + 4..HEADER_LEN as usize].iter().any(|b| *b != 0)
        {
            return Err(HeaderError::Damaged("it is not followed by zeroes"));
        }
        let flags = u64_at(buf, 32);
        let pos = |bit: u64, at: usize| {
            let pos =
                LogPos { term: u64_at(buf, at), node: u64_at(buf, at + 8), index: u64_at(buf, at + 16) };
            (flags & bit != 0).then_some(pos)
        };
        let vote = Ballot { term: u64_at(buf, 40), node: u64_at(buf, 48), committed: flags & 2 != 0 };
        let ledger = Ledger {
            vote: (flags & 1 != 0).then_some(vote),
            purged: pos(4, 56),
            committed: pos(8, 80),
            last: pos(16, 104),
            origin: None,
        };
        Ok(Header { number: u64_at(buf, 16), previous_end: u64_at(buf, 24), ledger })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        let pos = |index| Some(LogPos { term: 1, node: 2, index });
        let vote = Some(Ballot { term: 8, node: 9, committed: true });
        let ledger = Ledger { vote, purged: pos(3), committed: pos(4), last: pos(5), origin: None };
        Header { number: 6, previous_end: 7, ledger }
    }

    #[test]
    fn a_header_comes_back() {
        for header in [sample(), Header { number: 1, previous_end: 0, ledger: Ledger::default() }] {
            assert!(matches!(Header::decode(&header.encode()), Ok(found) if found == header));
        }
    }

    #[test]
    fn every_flipped_bit_is_damage_and_a_newer_version_is_not() {
        let good = sample().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::decode(&bad), Err(HeaderError::Damaged(_))), "bit {bit}");
        }
        let mut newer = good;
        newer[8] = 2;
        let crc = crc32fast::hash(&newer[..CRC_AT]);
        newer[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(Header::decode(&newer), Err(HeaderError::Version(2))));
    }

    #[test]
    fn names_carry_numbers() {
        assert_eq!(path_of(Path::new("/d"), 255), Path::new("/d/00000000000000ff.log"));
        assert_eq!(segment_number("00000000000000ff.log"), Some(255));
        assert_eq!(free_number("00000000000000ff.free"), Some(255));
        for other in ["ff.log", "00000000000000ff.free", "LOCK", "+0000000000000ff.log.bak"] {
            assert_eq!(segment_number(other), None, "{other}");
        }
    }
}
