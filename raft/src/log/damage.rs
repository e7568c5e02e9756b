//! What lies behind the last valid record of the last segment: nothing, a torn write, or damage.
//!
//! Owns: the verdict. Cutting off too little only costs a refused start; cutting off too much loses what a
//! peer counts on. So a cut needs proof that the write was never synced:
//!
//! * A record carries up to where the segment was synced when it was written. A valid record that says so of
//!   an offset behind the bad place proves that the bad place was synced: damage.
//! * The file was zeroes before the write, and a sector has its old or its new bytes. So a torn record
//!   lacks a whole sector, which reads as zeroes. A bad record without one is damage.

use bytes::Bytes;

use crate::disk::SECTOR;

use super::record;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Zeroes to the end of the file.
    Clean,
    /// The remains of a write that was not synced, up to the given offset.
    Torn { dirty_to: usize },
    /// What was synced is not there.
    Damaged(&'static str),
}

/// Judges what is at `at`, where no valid record is, up to the end of the file.
pub(crate) fn judge(bytes: &Bytes, at: usize, segment: u64) -> Verdict {
    let Some(dirty) = bytes[at..].iter().rposition(|byte| *byte != 0) else {
        return Verdict::Clean;
    };
    let dirty_to = at + dirty + 1;
    if later_sync(bytes, at, dirty_to, segment) {
        return Verdict::Damaged("valid records follow that were written after it was synced");
    }
    if lacks_sector(bytes, at, segment) {
        Verdict::Torn { dirty_to }
    } else {
        Verdict::Damaged("a record that is there in full does not match its checksum")
    }
}

fn later_sync(bytes: &Bytes, at: usize, to: usize, segment: u64) -> bool {
    let mut offset = at + record::ALIGN;
    while offset < to {
        match record::read(bytes, offset, segment) {
            Some(found) if found.synced_to as usize > at => return true,
            Some(found) => offset = found.next,
            None => offset += record::ALIGN,
        }
    }
    false
}

/// Whether a sector of the record at `at` has its old bytes, which are zeroes.
fn lacks_sector(bytes: &[u8], at: usize, segment: u64) -> bool {
    let sector_end = (at / SECTOR + 1) * SECTOR;
    let zeroes = |from: usize, to: usize| bytes[from..to.min(bytes.len())].iter().all(|byte| *byte == 0);
    if zeroes(at, sector_end) {
        return true;
    }
    // With a valid header its end is known; else only the header itself may reach into another sector.
    let size = record::claimed_size(bytes, at, segment).unwrap_or(record::HEADER);
    let end = at.saturating_add(size).min(bytes.len());
    (sector_end..end).step_by(SECTOR).any(|from| zeroes(from, from + SECTOR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::{Place, put_entry};
    use crate::log::types::{LogEntry, LogPos};

    const START: usize = 4096;

    /// A segment with a batch of records at [`START`] and another behind it, and where the second begins.
    fn two_batches(first: &[usize], second: &[usize]) -> (Vec<u8>, usize, usize) {
        let mut buf = vec![0; START];
        let mut between = START;
        for (synced_to, sizes) in [(START, first), (0, second)] {
            let synced_to = if synced_to == 0 { buf.len() } else { synced_to };
            between = synced_to;
            for len in sizes {
                let pos = LogPos { term: 1, node: 1, index: 1 };
                let entry = LogEntry { pos, tag: 0, payload: Bytes::from(vec![7; *len]) };
                put_entry(&mut buf, Place { segment: 1, synced_to: synced_to as u32 }, &entry);
            }
        }
        let end = buf.len();
        buf.resize(8 << 10, 0);
        (buf, between, end)
    }

    fn verdict(buf: &[u8], at: usize) -> Verdict {
        judge(&Bytes::copy_from_slice(buf), at, 1)
    }

    #[test]
    fn zeroes_are_the_end() {
        let (buf, _, end) = two_batches(&[100], &[]);
        assert_eq!(verdict(&buf, end), Verdict::Clean);
        assert_eq!(verdict(&buf, buf.len()), Verdict::Clean, "a full segment");
    }

    #[test]
    fn every_loss_of_sectors_in_the_last_batch_is_torn() {
        let (good, between, end) = two_batches(&[300], &[40, 2000, 40, 700]);
        let sectors: Vec<usize> = (between / SECTOR..end.div_ceil(SECTOR)).collect();
        let mut torn = 0;
        for lost in 1..1_u32 << sectors.len() {
            let mut buf = good.clone();
            for (i, sector) in sectors.iter().enumerate() {
                if lost & 1 << i != 0 {
                    buf[(sector * SECTOR).max(between)..(sector + 1) * SECTOR].fill(0);
                }
            }
            let mut at = between;
            let whole = Bytes::copy_from_slice(&buf);
            while let Some(found) = record::read(&whole, at, 1) {
                at = found.next;
            }
            match verdict(&buf, at) {
                Verdict::Torn { .. } => torn += 1,
                Verdict::Clean => {}
                Verdict::Damaged(what) => panic!("lost {lost:b}: {what}"),
            }
        }
        assert!(torn > 0);
    }

    #[test]
    fn every_flipped_bit_is_damage_wherever_it_is() {
        let (good, between, end) = two_batches(&[300, 40], &[40, 900, 10]);
        for bit in START * 8..end * 8 {
            let mut buf = good.clone();
            buf[bit / 8] ^= 1 << (bit % 8);
            let whole = Bytes::copy_from_slice(&buf);
            let mut at = START;
            while let Some(found) = record::read(&whole, at, 1) {
                at = found.next;
            }
            assert!(at < end);
            let found = verdict(&buf, at);
            assert!(matches!(found, Verdict::Damaged(_)), "bit {bit} (second batch at {between}): {found:?}");
        }
    }
}
