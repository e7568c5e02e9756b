//! The records of a segment as bytes.
//!
//! Owns: the layout of a record, and reading it back with every check. Must not: know files, or what a
//! record means for the log.
//!
//! Layout, little endian, at an offset that is a multiple of 8:
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | length of the payload |
//! | 4 | 4 | CRC-32 of the header: bytes 0..4 and 8..48 |
//! | 8 | 4 | CRC-32 of the payload and the end marks |
//! | 12 | 1 | kind |
//! | 13 | 1 | tag: the entry's payload kind, or flags |
//! | 14 | 2 | zero |
//! | 16 | 4 | low half of the segment's number, so that no record of a file's earlier life is valid |
//! | 20 | 4 | everything before this offset was synced when the record was written |
//! | 24 | 8 | term |
//! | 32 | 8 | node |
//! | 40 | 8 | index |
//! | 48 | n | payload |
//! | 48+n | 1 to 8 | end marks up to a multiple of 8 |
//!
//! The end marks are not zero: so the last sector of a record is never all zeroes, and a sector that is
//! was lost by a torn write.

use bytes::Bytes;

use super::types::{Ballot, LogEntry, LogPos};

pub(crate) const HEADER: usize = 48;
pub(crate) const ALIGN: usize = 8;
const END_MARK: u8 = 0xA5;
const PRESENT: u8 = 1;

const ENTRY: u8 = 1;
const VOTE: u8 = 2;
const COMMITTED: u8 = 3;
const TRUNCATE: u8 = 4;
const PURGE: u8 = 5;

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(LogEntry),
    Vote(Ballot),
    Committed(LogPos),
    /// All entries after this one are void; `None`: all entries.
    Truncate(Option<LogPos>),
    /// Entries up to this one are not needed any more.
    Purge(LogPos),
}

/// The bytes a record with this much payload takes.
pub(crate) fn size_of(payload: usize) -> usize {
    (HEADER + payload + 1).next_multiple_of(ALIGN)
}

/// Where a record is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub segment: u64,
    pub synced_to: u32,
}

#[derive(Clone, Copy)]
struct Head {
    kind: u8,
    tag: u8,
    pos: LogPos,
}

pub(crate) fn put_entry(buf: &mut Vec<u8>, place: Place, entry: &LogEntry) {
    put(buf, place, Head { kind: ENTRY, tag: entry.tag, pos: entry.pos }, &entry.payload);
}

pub(crate) fn put_vote(buf: &mut Vec<u8>, place: Place, vote: Ballot) {
    let pos = LogPos { term: vote.term, node: vote.node, index: 0 };
    put(buf, place, Head { kind: VOTE, tag: u8::from(vote.committed), pos }, &[]);
}

pub(crate) fn put_committed(buf: &mut Vec<u8>, place: Place, pos: LogPos) {
    put(buf, place, Head { kind: COMMITTED, tag: 0, pos }, &[]);
}

pub(crate) fn put_truncate(buf: &mut Vec<u8>, place: Place, after: Option<LogPos>) {
    let tag = if after.is_some() { PRESENT } else { 0 };
    put(buf, place, Head { kind: TRUNCATE, tag, pos: after.unwrap_or_default() }, &[]);
}

pub(crate) fn put_purge(buf: &mut Vec<u8>, place: Place, pos: LogPos) {
    put(buf, place, Head { kind: PURGE, tag: 0, pos }, &[]);
}

fn put(buf: &mut Vec<u8>, place: Place, head: Head, payload: &[u8]) {
    let start = buf.len();
    let size = size_of(payload.len());
    buf.reserve(size);
    // The log refuses payloads that don't fit in 32 bits before they get here.
    buf.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    buf.extend_from_slice(&[0; 8]);
    buf.extend_from_slice(&[head.kind, head.tag, 0, 0]);
    buf.extend_from_slice(&(place.segment as u32).to_le_bytes());
    buf.extend_from_slice(&place.synced_to.to_le_bytes());
    buf.extend_from_slice(&head.pos.term.to_le_bytes());
    buf.extend_from_slice(&head.pos.node.to_le_bytes());
    buf.extend_from_slice(&head.pos.index.to_le_bytes());
    buf.extend_from_slice(payload);
    buf.resize(start + size, END_MARK);
    let body_crc = crc32fast::hash(&buf[start + HEADER..]);
    buf[start + 8..start + 12].copy_from_slice(&body_crc.to_le_bytes());
    let header_crc = header_crc(&buf[start..start + HEADER]);
    buf[start + 4..start + 8].copy_from_slice(&header_crc.to_le_bytes());
}

fn header_crc(header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..4]);
    hasher.update(&header[8..HEADER]);
    hasher.finalize()
}

/// A record found in a segment.
#[derive(Debug)]
pub(crate) struct Found {
    pub record: Record,
    pub synced_to: u32,
    /// The offset of what follows.
    pub next: usize,
}

/// The size of the record at `offset` if its header, but not necessarily its payload, is valid.
pub(crate) fn claimed_size(bytes: &[u8], offset: usize, segment: u64) -> Option<usize> {
    let header = bytes.get(offset..offset + HEADER)?;
    // Cheap checks first: this runs at every multiple of 8 behind a torn end.
    if u32_at(header, 16) != segment as u32 || !(ENTRY..=PURGE).contains(&header[12]) {
        return None;
    }
    if header[14..16] != [0, 0] || u32_at(header, 4) != header_crc(header) {
        return None;
    }
    Some(size_of(u32_at(header, 0) as usize))
}

/// Reads the record at `offset`; `None` if what is there is not a whole valid record of this segment.
pub(crate) fn read(bytes: &Bytes, offset: usize, segment: u64) -> Option<Found> {
    let size = claimed_size(bytes, offset, segment)?;
    let next = offset.checked_add(size)?;
    let body = bytes.get(offset + HEADER..next)?;
    let header = &bytes[offset..offset + HEADER];
    if u32_at(header, 8) != crc32fast::hash(body) {
        return None;
    }
    let tag = header[13];
    let pos = LogPos { term: u64_at(header, 24), node: u64_at(header, 32), index: u64_at(header, 40) };
    let record = match header[12] {
        ENTRY => {
            let from = offset + HEADER;
            let payload = bytes.slice(from..from + u32_at(header, 0) as usize);
            Record::Entry(LogEntry { pos, tag, payload })
        }
        VOTE => Record::Vote(Ballot { term: pos.term, node: pos.node, committed: tag != 0 }),
        COMMITTED => Record::Committed(pos),
        TRUNCATE => Record::Truncate((tag == PRESENT).then_some(pos)),
        PURGE => Record::Purge(pos),
        _ => return None,
    };
    Some(Found { record, synced_to: u32_at(header, 20), next })
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { segment: 7, synced_to: 4096 };

    fn samples() -> Vec<(Record, Vec<u8>)> {
        let pos = LogPos { term: 3, node: 9, index: 41 };
        let mut all = Vec::new();
        for len in [0, 1, 7, 8, 1000] {
            let entry = LogEntry { pos, tag: 1, payload: Bytes::from(vec![0; len]) };
            let mut buf = Vec::new();
            put_entry(&mut buf, PLACE, &entry);
            all.push((Record::Entry(entry), buf));
        }
        let vote = Ballot { term: 5, node: 2, committed: true };
        let mut buf = Vec::new();
        put_vote(&mut buf, PLACE, vote);
        all.push((Record::Vote(vote), buf));
        for (record, put) in [
            (Record::Committed(pos), put_committed as fn(&mut Vec<u8>, Place, LogPos)),
            (Record::Purge(pos), put_purge),
        ] {
            let mut buf = Vec::new();
            put(&mut buf, PLACE, pos);
            all.push((record, buf));
        }
        for after in [None, Some(pos)] {
            let mut buf = Vec::new();
            put_truncate(&mut buf, PLACE, after);
            all.push((Record::Truncate(after), buf));
        }
        all
    }

    #[test]
    fn what_is_put_is_read() {
        for (record, buf) in samples() {
            assert_eq!(buf.len() % ALIGN, 0);
            assert_ne!(buf.last(), Some(&0));
            let len = buf.len();
            let found = read(&Bytes::from(buf), 0, PLACE.segment).expect("a valid record");
            assert_eq!((found.record, found.synced_to, found.next), (record, 4096, len));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_other_segment_is_noticed() {
        for (record, buf) in samples() {
            assert!(read(&Bytes::from(buf.clone()), 0, PLACE.segment + 1).is_none());
            assert!(read(&Bytes::from(buf[..buf.len() - 8].to_vec()), 0, PLACE.segment).is_none());
            for bit in 0..buf.len() * 8 {
                let mut bad = buf.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(read(&Bytes::from(bad), 0, PLACE.segment).is_none(), "{record:?} bit {bit}");
            }
        }
    }

    /// The bytes on disk are a contract: a change here needs a new format version.
    #[test]
    fn the_layout_is_what_the_documentation_says() {
        let mut buf = Vec::new();
        let entry = LogEntry {
            pos: LogPos { term: 2, node: 3, index: 4 },
            tag: 1,
            payload: Bytes::from_static(b"hive"),
        };
        put_entry(&mut buf, PLACE, &entry);
        let hex: String = buf.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(&hex[..8], "04000000");
        assert_eq!(
            &hex[24..],
            "01010000070000000010000002000000000000000300000000000000040000000000000068697665a5a5a5a5"
        );
    }
}
