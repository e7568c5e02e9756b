//! Finds where the last lines of a log begin, from the end backwards: the cost depends on what is shown, not on the size
//! of the log.

use super::record::{self, HEAD, Kind, MAX_PAYLOAD, TAIL};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A place in a log: a record, and how many bytes of its payload to leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) skip: usize,
}

const WINDOW: u64 = 2 * (HEAD + MAX_PAYLOAD + TAIL) as u64;

/// Where the last `lines` lines start, of the log that ends at `end`. `end` may be in a torn record.
pub(super) fn find(file: &File, end: u64, lines: u32) -> io::Result<Place> {
    let mut window = Vec::new();
    let mut end = end;
    let mut start = load(file, end, &mut window)?;
    if end > 0 && record::parse_last(&window).is_none() {
        end = whole_end(file, end)?;
        start = load(file, end, &mut window)?;
    }
    let mut missing = lines;
    let mut last_byte = true;
    while end > 0 {
        let Some((header, payload)) = record::parse_last(&window[..(end - start) as usize]) else {
            if start == 0 {
                break; // nothing that can be read before this
            }
            let before = start;
            start = load(file, end, &mut window)?;
            if start >= before {
                break;
            }
            continue;
        };
        let next = end;
        end -= header.total() as u64;
        if header.kind == Kind::Close {
            continue;
        }
        // A mark shows as one line.
        let payload: &[u8] = if header.kind == Kind::Dropped { b"\n" } else { payload };
        for (at, byte) in payload.iter().enumerate().rev() {
            if *byte == b'\n' && !last_byte {
                missing -= 1;
                if missing == 0 {
                    let whole = at + 1 == payload.len();
                    return Ok(if whole {
                        Place { offset: next, skip: 0 }
                    } else {
                        Place { offset: end, skip: at + 1 }
                    });
                }
            }
            last_byte = false;
        }
    }
    Ok(Place { offset: 0, skip: 0 })
}

/// Loads what lies before `end`; gives the place of the window's first byte.
fn load(file: &File, end: u64, window: &mut Vec<u8>) -> io::Result<u64> {
    let start = end.saturating_sub(WINDOW);
    window.resize((end - start) as usize, 0);
    file.read_exact_at(window, start)?;
    Ok(start)
}

/// The end of the last whole record: from the front, headers only.
fn whole_end(file: &File, end: u64) -> io::Result<u64> {
    let mut at = 0;
    let mut head = [0; HEAD];
    let mut tail = [0; TAIL];
    while at + ((HEAD + TAIL) as u64) <= end {
        file.read_exact_at(&mut head, at)?;
        let Some(header) = record::header(&head) else { break };
        let next = at + header.total() as u64;
        if next > end {
            break;
        }
        file.read_exact_at(&mut tail, next - TAIL as u64)?;
        if record::u32_at(&tail, 0) != Some(header.payload) {
            break;
        }
        at = next;
    }
    Ok(at)
}
