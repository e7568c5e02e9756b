//! What a log does not start with, and how it says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clawhive_raft::disk::{Disk, SimDisk, Tear};
use clawhive_raft::log::{LogEntry, LogOptions, LogPos, OpenError, SegmentLog};

use crate::log_model::{Call, DIR, never, open, perform, small};

const HEADER: u64 = 4096;
/// A record with 1,000 bytes: 48 of header, and end marks up to a multiple of 8.
const RECORD: u64 = 1056;

fn segment(number: u64) -> PathBuf {
    Path::new(DIR).join(format!("{number:016x}.log"))
}

fn entry(index: u64) -> LogEntry {
    let pos = LogPos { term: 1, node: 1, index };
    LogEntry { pos, tag: 1, payload: Bytes::from(vec![0x5a; 1000]) }
}

/// Eight entries, each synced alone: three fit in a segment, so there are three segments with 3, 3 and 2.
fn eight_entries() -> SimDisk {
    let disk = SimDisk::new();
    let log = open(&disk, never()).expect("opens");
    for index in 1..=8 {
        perform(&log, &Call::Append(vec![entry(index)])).expect("appends");
    }
    assert_eq!(log.usage().1, 3, "the tests below count on three segments");
    disk
}

fn flipped(number: u64, offset: u64) -> Result<SegmentLog, OpenError> {
    let disk = eight_entries();
    disk.flip(&segment(number), offset, 5);
    open(&disk, never())
}

#[track_caller]
fn assert_damaged(opened: Result<SegmentLog, OpenError>, number: u64, at: u64) {
    match opened {
        Err(OpenError::Damaged { file, offset, .. }) => {
            assert_eq!((file, offset), (segment(number), at));
        }
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(log) => panic!("opened with entries to {:?}", log.last()),
    }
}

#[test]
fn a_flipped_byte_in_the_first_segment() {
    for record in 0..3 {
        for within in [0, 5, 20, 47, 48, 600, 1050] {
            let at = HEADER + record * RECORD;
            assert_damaged(flipped(1, at + within), 1, at);
        }
    }
}

#[test]
fn a_flipped_byte_in_the_last_segment_with_valid_records_behind() {
    assert_damaged(flipped(3, HEADER + 100), 3, HEADER);
}

#[test]
fn a_flipped_byte_in_the_very_last_record() {
    // All of the record is there, so no power cut made this: it was synced, and a peer may count on it.
    for within in [0, 3, 6, 30, 48, 900, 1050] {
        assert_damaged(flipped(3, HEADER + RECORD + within), 3, HEADER + RECORD);
    }
}

#[test]
fn a_torn_end_is_cut_off_and_written_over() {
    let disk = eight_entries();
    let log = open(&disk, never()).expect("opens");
    disk.fail_at(disk.operations() + 1, clawhive_raft::disk::Fault::PowerCut);
    let (hook, _) = crate::log_model::counting();
    drop(log);
    disk.heal();
    let log = open(&disk, hook).expect("opens");
    let before = disk.operations();
    disk.fail_at(before + 1, clawhive_raft::disk::Fault::PowerCut);
    perform(&log, &Call::Append(vec![entry(9)])).expect_err("the sync fails");
    let mut torn = 0;
    for seed in 0..32 {
        let image = disk.after_cut(Tear::Sectors(seed));
        let log = open(&image, never()).expect("a torn write is no damage");
        let last = log.last().map(|pos| pos.index);
        assert!(last == Some(8) || last == Some(9), "{last:?}");
        torn += u32::from(last == Some(8));
        let next = last.map_or(1, |last| last + 1);
        perform(&log, &Call::Append(vec![entry(next)])).expect("appends");
        drop(log);
        let log = open(&image, never()).expect("opens");
        assert_eq!(log.last().map(|pos| pos.index), Some(next), "nothing of the torn write is left");
    }
    assert!(torn > 10);
}

#[test]
fn a_torn_end_below_what_is_known_to_be_committed() {
    let disk = eight_entries();
    let log = open(&disk, never()).expect("opens");
    drop(log);
    let (hook, _) = crate::log_model::counting();
    let log = open(&disk, hook).expect("opens");
    disk.fail_at(disk.operations() + 1, clawhive_raft::disk::Fault::PowerCut);
    perform(&log, &Call::Append(vec![entry(9)])).expect_err("the sync fails");
    let open_knowing = |known: u64, seed: u64| {
        let image = disk.after_cut(Tear::Sectors(seed));
        let options = LogOptions { known_committed: Some(known), ..small() };
        SegmentLog::open(Arc::new(image), Path::new(DIR), options, never())
    };
    let mut refused = 0;
    for seed in 0..32 {
        open_knowing(8, seed).expect("all that is known is there");
        match open_knowing(9, seed) {
            Ok(log) => assert!(log.last().is_some()),
            Err(OpenError::BelowCommitted { last: 8, committed: 9, offset, file }) => {
                assert_eq!((offset, file), (HEADER + 2 * RECORD, segment(3)));
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 10);
}

#[test]
fn a_flipped_byte_in_a_header_and_another_version() {
    for at in [0, 9, 16, 40, 110, 129, 4000] {
        assert!(
            matches!(flipped(2, at), Err(OpenError::Header { file, .. }) if file == segment(2)),
            "byte {at}"
        );
    }
    let disk = eight_entries();
    let file = disk.open(&segment(2)).expect("opens");
    let mut header = vec![0; 128];
    file.read_at(&mut header, 0).expect("reads");
    header[8] = 2;
    let crc = crc32fast::hash(&header);
    file.write_at(&header, 0).expect("writes");
    file.write_at(&crc.to_le_bytes(), 128).expect("writes");
    let found = open(&disk, never()).err();
    assert!(
        matches!(&found, Some(OpenError::Version { file, found: 2, supported: 1 }) if *file == segment(2)),
        "{found:?}"
    );
}

#[test]
fn a_missing_segment_wherever_it_was() {
    for number in [1, 2] {
        let disk = eight_entries();
        disk.remove(&segment(number)).expect("removes");
        let found = open(&disk, never()).err();
        assert!(matches!(&found, Some(OpenError::Missing { file }) if *file == segment(number)), "{found:?}");
    }
}

#[test]
fn a_segment_of_zeroes_or_of_another_log() {
    let disk = eight_entries();
    disk.open(&segment(2)).and_then(|file| file.write_at(&[0; 8192], 0)).expect("writes");
    assert!(matches!(open(&disk, never()), Err(OpenError::Header { .. })));

    let disk = eight_entries();
    disk.rename(&segment(3), &segment(4)).expect("renames");
    disk.rename(&segment(2), &segment(3)).expect("renames");
    disk.rename(&segment(1), &segment(2)).expect("renames");
    assert!(matches!(open(&disk, never()), Err(OpenError::Header { file, .. }) if file == segment(2)));
}

#[test]
fn synced_records_that_became_zeroes() {
    // A whole record in the middle, with others behind it that were written after it was synced.
    let disk = eight_entries();
    disk.open(&segment(3)).and_then(|file| file.write_at(&[0; RECORD as usize], HEADER)).expect("writes");
    assert_damaged(open(&disk, never()), 3, HEADER);

    // The end of a segment that is not the last.
    let disk = eight_entries();
    let at = HEADER + 2 * RECORD;
    disk.open(&segment(1)).and_then(|file| file.write_at(&[0; RECORD as usize], at)).expect("writes");
    assert!(matches!(open(&disk, never()), Err(OpenError::Header { file, .. }) if file == segment(2)));

    // The very end, after the log was closed: the guard record behind it says that it was synced.
    let disk = eight_entries();
    let log = open(&disk, never()).expect("opens");
    perform(&log, &Call::Vote(clawhive_raft::log::Ballot { term: 1, node: 1, committed: true }))
        .expect("votes");
    log.close_and_wait().expect("closes");
    drop(log);
    let at = HEADER + 2 * RECORD;
    disk.open(&segment(3)).and_then(|file| file.write_at(&[0; 56], at)).expect("writes");
    assert_damaged(open(&disk, never()), 3, at);
}

#[test]
fn a_second_open_in_one_process() {
    let disk = eight_entries();
    let log = open(&disk, never()).expect("opens");
    assert!(matches!(open(&disk, never()), Err(OpenError::InUse { dir }) if dir == Path::new(DIR)));
    drop(log);
    open(&disk, never()).expect("opens again");
}
