//! Checksums over what passes: one for the whole, and one for each MiB to find the place of a damage.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};

use sha2::{Digest, Sha256};

use super::{SnapshotError, damaged};

const MAGIC: &[u8; 8] = b"CLAWSUMS";
const BLOCK: u64 = 1 << 20;
/// A table for a larger file than anyone has.
const MOST_BLOCKS: u32 = 1 << 26;

/// Hashes what passes.
pub(super) struct Hashing<T> {
    pub(super) inner: T,
    pub(super) hash: Sha256,
    /// Bytes that have passed.
    pub(super) at: u64,
    blocks: Vec<u32>,
    block: crc32fast::Hasher,
}

impl<T> Hashing<T> {
    pub(super) fn new(inner: T) -> Hashing<T> {
        Hashing { inner, hash: Sha256::new(), at: 0, blocks: Vec::new(), block: crc32fast::Hasher::new() }
    }

    fn passed(&mut self, mut bytes: &[u8]) {
        self.hash.update(bytes);
        while !bytes.is_empty() {
            let room = (BLOCK - self.at % BLOCK).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(room as usize);
            self.block.update(now);
            self.at += room;
            if self.at.is_multiple_of(BLOCK) {
                self.end_block();
            }
            bytes = later;
        }
    }

    fn end_block(&mut self) {
        let block = std::mem::replace(&mut self.block, crc32fast::Hasher::new());
        self.blocks.push(block.finalize());
    }

    /// The checksums of all blocks, the last maybe shorter.
    fn all_blocks(&mut self) -> &[u32] {
        if !self.at.is_multiple_of(BLOCK) {
            self.end_block();
        }
        &self.blocks
    }

    /// The table of checksums as it stands in a file.
    pub(super) fn table(&mut self) -> Vec<u8> {
        let blocks = self.all_blocks();
        let mut table = MAGIC.to_vec();
        table.extend((blocks.len() as u32).to_le_bytes());
        table.extend(blocks.iter().flat_map(|crc| crc.to_le_bytes()));
        let crc = crc32fast::hash(&table);
        table.extend(crc.to_le_bytes());
        table
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.passed(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.passed(&bytes[..read]);
        Ok(read)
    }
}

/// Reads a table, and that nothing follows it.
pub(super) fn read_table(input: &mut impl Read) -> Result<Vec<u32>, SnapshotError> {
    let wrong = || damaged("the table of checksums at its end");
    let mut head = [0; 12];
    input.read_exact(&mut head).map_err(|_| wrong())?;
    let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if &head[..8] != MAGIC || count > MOST_BLOCKS {
        return Err(wrong());
    }
    let mut rest = Vec::new();
    input.take(u64::from(count) * 4 + 5).read_to_end(&mut rest)?;
    if rest.len() as u64 != u64::from(count) * 4 + 4 {
        return Err(wrong());
    }
    let (sums, crc) = rest.split_at(rest.len() - 4);
    let mut hash = crc32fast::Hasher::new();
    hash.update(&head);
    hash.update(sums);
    if hash.finalize().to_le_bytes() != crc {
        return Err(wrong());
    }
    Ok(sums.chunks_exact(4).map(|crc| u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]])).collect())
}

/// Where what has passed differs from a table, in words.
pub(super) fn differs<T>(passed: &mut Hashing<T>, table: &[u32]) -> Option<String> {
    let end = passed.at;
    let found = passed.all_blocks();
    let first = found.iter().zip(table).position(|(found, expected)| found != expected)? as u64;
    let until = ((first + 1) * BLOCK).min(end);
    let more = found.iter().zip(table).filter(|(found, expected)| found != expected).count() - 1;
    let more = match more {
        0 => String::new(),
        more => format!(" and in {more} more places"),
    };
    Some(format!("between byte {} and byte {until}{more}", first * BLOCK))
}

/// Where a file that does not even have the form of a snapshot any more is damaged, by the table at its end.
pub(super) fn locate(file: &File) -> Option<String> {
    let mut file = file.try_clone().ok()?;
    let total = file.metadata().ok()?.len();
    // The table's length depends on the length of what it is of, and both are known only together.
    let rest = |blocks: u64| total.checked_sub(32 + 16 + 4 * blocks);
    let most = total.div_ceil(BLOCK);
    let blocks =
        (0..=most).rev().take(3).find(|n| rest(*n).is_some_and(|rest| rest.div_ceil(BLOCK) == *n))?;
    let main = rest(blocks)?;
    file.seek(SeekFrom::Start(main + 32)).ok()?;
    let table = read_table(&mut file).ok()?;
    file.rewind().ok()?;
    let mut passed = Hashing::new(BufReader::with_capacity(1 << 18, file).take(main));
    io::copy(&mut passed, &mut io::sink()).ok()?;
    differs(&mut passed, &table)
}
