//! The form of one record: header (magic, kind, length, time), bytes, length again so that a reader can go backwards.
//! Little endian. A record that does not add up is the torn end of a log whose writer was killed.

/// Bytes before the payload.
pub(super) const HEAD: usize = 16;
/// Bytes after the payload.
pub(super) const TAIL: usize = 4;
/// Longest payload.
pub(super) const MAX_PAYLOAD: usize = 64 * 1024;

const MAGIC: u8 = 0xC7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stdout,
    Stderr,
    /// A line by the claw itself.
    Note,
    /// So many bytes could not be written here; the payload is the count.
    Dropped,
    /// The writer closed the log: nothing is missing at the end.
    Close,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Stdout => 1,
            Kind::Stderr => 2,
            Kind::Note => 3,
            Kind::Dropped => 4,
            Kind::Close => 5,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Kind::Stdout,
            2 => Kind::Stderr,
            3 => Kind::Note,
            4 => Kind::Dropped,
            5 => Kind::Close,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) time_ms: u64,
    pub(super) payload: usize,
}

impl Header {
    /// Length of the whole record.
    pub(super) fn total(&self) -> usize {
        HEAD + self.payload + TAIL
    }
}

/// Fills head and tail around a payload that already lies at `HEAD..HEAD + payload`; gives the length of the record.
pub(super) fn frame(buffer: &mut [u8], kind: Kind, time_ms: u64, payload: usize) -> usize {
    let length = (payload as u32).to_le_bytes();
    buffer[0] = MAGIC;
    buffer[1] = kind.number();
    buffer[2..4].fill(0);
    buffer[4..8].copy_from_slice(&length);
    buffer[8..HEAD].copy_from_slice(&time_ms.to_le_bytes());
    buffer[HEAD + payload..HEAD + payload + TAIL].copy_from_slice(&length);
    HEAD + payload + TAIL
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(four) as usize)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The header at the start of `bytes`; `None` when it is short or does not add up.
pub(super) fn header(bytes: &[u8]) -> Option<Header> {
    if *bytes.first()? != MAGIC || bytes.get(2..4)? != [0, 0] {
        return None;
    }
    let kind = Kind::from_number(*bytes.get(1)?)?;
    let payload = u32_at(bytes, 4).filter(|len| *len <= MAX_PAYLOAD)?;
    Some(Header { kind, time_ms: u64_at(bytes, 8)?, payload })
}

/// The whole record at the start of `bytes`, when all of it is there.
pub(super) fn parse(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let header = header(bytes)?;
    let payload = bytes.get(HEAD..HEAD + header.payload)?;
    (u32_at(bytes, HEAD + header.payload)? == header.payload).then_some((header, payload))
}

/// The whole record that ends where `bytes` ends, when all of it is there.
pub(super) fn parse_last(bytes: &[u8]) -> Option<(Header, &[u8])> {
    let payload = u32_at(bytes, bytes.len().checked_sub(TAIL)?)?;
    let start = bytes.len().checked_sub(HEAD + TAIL)?.checked_sub(payload)?;
    parse(&bytes[start..]).filter(|(header, _)| header.payload == payload)
}

/// What a count in a `Dropped` record reads like.
pub(super) fn dropped_text(payload: &[u8]) -> String {
    let count = u64_at(payload, 0).unwrap_or(0);
    format!("[clawhive: {count} bytes of output were dropped here, the log could not be written]\n")
}
