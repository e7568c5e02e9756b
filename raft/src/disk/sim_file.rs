//! One simulated file: what programs see, what is safe, and what lies between the two.
//!
//! Owns: the bytes of a file and what a power cut makes of them. Must not: know names or faults.

use std::collections::BTreeMap;

use super::SECTOR;

/// What a power cut leaves of the changes that no sync covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// Nothing of them.
    LoseAll,
    /// All of them, as after a mere kill of the process.
    KeepAll,
    /// The oldest of them up to some point, by chance.
    Prefix(u64),
    /// Each sector has, by chance, its bytes as of some moment since it was last synced. Since a cache holds
    /// whole pages, a sector never has a later write without the earlier ones.
    Sectors(u64),
}

impl Tear {
    /// The dice of this tear for one file or directory, told apart by `salt`.
    pub(super) fn dice(self, salt: u64) -> Dice {
        match self {
            Tear::LoseAll | Tear::KeepAll => Dice(salt),
            Tear::Prefix(seed) | Tear::Sectors(seed) => Dice(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Picks from changes that are one thing each, such as renames, those that survive.
    pub(super) fn survivors<T>(self, changes: &[T], dice: &mut Dice) -> Vec<bool> {
        let prefix = dice.below(changes.len() + 1);
        let keeps = |i: usize, dice: &mut Dice| match self {
            Tear::LoseAll => false,
            Tear::KeepAll => true,
            Tear::Prefix(_) => i < prefix,
            Tear::Sectors(_) => dice.flip(),
        };
        (0..changes.len()).map(|i| keeps(i, dice)).collect()
    }
}

/// splitmix64: small, and the same everywhere for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.roll() % n.max(1) as u64) as usize
    }

    pub(super) fn flip(&mut self) -> bool {
        self.roll() & 1 == 1
    }
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Change::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*offset..end].copy_from_slice(bytes);
            }
            Change::SetLen(len) => to.resize(*len, 0),
        }
    }

    /// The sectors a write touches, and the bytes for each.
    fn sectors(&self) -> Vec<(usize, Change)> {
        let Change::Write { offset, bytes } = self else { return Vec::new() };
        let end = offset + bytes.len();
        let mut parts = Vec::new();
        let mut from = *offset;
        while from < end {
            let until = end.min((from / SECTOR + 1) * SECTOR);
            let part = bytes[from - offset..until - offset].to_vec();
            parts.push((from / SECTOR, Change::Write { offset: from, bytes: part }));
            from = until;
        }
        parts
    }
}

/// Applies what a power cut leaves of these changes.
fn tear(changes: &[Change], to: &mut Vec<u8>, tear: Tear, dice: &mut Dice) {
    if !matches!(tear, Tear::Sectors(_)) {
        let survivors = tear.survivors(changes, dice);
        for (change, _) in changes.iter().zip(survivors).filter(|(_, survives)| *survives) {
            change.apply(to);
        }
        return;
    }
    let mut writes: BTreeMap<usize, usize> = BTreeMap::new();
    for (sector, _) in changes.iter().flat_map(Change::sectors) {
        *writes.entry(sector).or_default() += 1;
    }
    let mut kept: BTreeMap<usize, usize> =
        writes.into_iter().map(|(sector, count)| (sector, dice.below(count + 1))).collect();
    for change in changes {
        if let Change::SetLen(_) = change
            && dice.flip()
        {
            change.apply(to);
        }
        for (sector, part) in change.sectors() {
            if let Some(left) = kept.get_mut(&sector)
                && *left > 0
            {
                *left -= 1;
                part.apply(to);
            }
        }
    }
}

/// A file in memory with its synced and unsynced bytes apart.
#[derive(Debug, Clone, Default)]
pub(super) struct SimFile {
    /// What reads see.
    live: Vec<u8>,
    /// What no power cut takes.
    safe: Vec<u8>,
    /// What the next sync makes safe.
    pending: Vec<Change>,
}

impl SimFile {
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.live.len());
        let n = buf.len().min(self.live.len() - from);
        buf[..n].copy_from_slice(&self.live[from..from + n]);
        n
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: usize) {
        self.change(Change::Write { offset, bytes: bytes.to_vec() });
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.change(Change::SetLen(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// A write that fails: any of its sectors may have got into the cache.
    pub(super) fn write_failing(&mut self, bytes: &[u8], offset: usize, dice: &mut Dice) {
        let mut from = 0;
        while from < bytes.len() {
            let until = bytes.len().min(((offset + from) / SECTOR + 1) * SECTOR - offset);
            if dice.flip() {
                self.write(&bytes[from..until], offset + from);
            }
            from = until;
        }
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.safe);
        }
    }

    /// A sync that fails, as Linux does it: some pages got through, the others are marked clean all the
    /// same, so reads still show them and no later sync writes them.
    pub(super) fn sync_failing(&mut self, dice: &mut Dice) {
        tear(&std::mem::take(&mut self.pending), &mut self.safe, Tear::Sectors(0), dice);
    }

    /// The file as found after a power cut.
    pub(super) fn after_cut(&self, how: Tear, dice: &mut Dice) -> SimFile {
        let mut safe = self.safe.clone();
        tear(&self.pending, &mut safe, how, dice);
        SimFile { live: safe.clone(), safe, pending: Vec::new() }
    }

    /// Flips one bit on the medium and in what reads see.
    pub(super) fn flip(&mut self, offset: usize, bit: u8) {
        for bytes in [&mut self.live, &mut self.safe] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << (bit & 7);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }
}
