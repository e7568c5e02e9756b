//! One simulated file: what programs see, what is safe, and what lies between the two.
//!
//! Owns: the bytes of a file and what a power cut makes of them. Must not: know names or faults.

use super::SECTOR;

/// What a power cut leaves of the changes that no sync covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// Nothing of them.
    LoseAll,
    /// All of them, as after a mere kill of the process.
    KeepAll,
    /// Whole writes are kept or lost, each by chance.
    Writes(u64),
    /// Each sector of each write is kept or lost by chance.
    Sectors(u64),
}

impl Tear {
    /// The dice of this tear for one file or directory, told apart by `salt`.
    pub(super) fn dice(self, salt: u64) -> Dice {
        match self {
            Tear::LoseAll | Tear::KeepAll => Dice(salt),
            Tear::Writes(seed) | Tear::Sectors(seed) => Dice(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Whether a change that is one thing, such as a rename, survives.
    pub(super) fn keeps(self, dice: &mut Dice) -> bool {
        match self {
            Tear::LoseAll => false,
            Tear::KeepAll => true,
            Tear::Writes(_) | Tear::Sectors(_) => dice.flip(),
        }
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

    /// Applies what a power cut leaves of this change.
    fn tear(&self, to: &mut Vec<u8>, tear: Tear, dice: &mut Dice) {
        match (self, tear) {
            (Change::Write { offset, bytes }, Tear::Sectors(_)) => {
                let end = offset + bytes.len();
                let mut from = *offset;
                while from < end {
                    let until = end.min((from / SECTOR + 1) * SECTOR);
                    if dice.flip() {
                        let part = bytes[from - offset..until - offset].to_vec();
                        Change::Write { offset: from, bytes: part }.apply(to);
                    }
                    from = until;
                }
            }
            _ => {
                if tear.keeps(dice) {
                    self.apply(to);
                }
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
        let tear = Tear::Sectors(0);
        for change in std::mem::take(&mut self.pending) {
            change.tear(&mut self.safe, tear, dice);
        }
    }

    /// The file as found after a power cut.
    pub(super) fn after_cut(&self, tear: Tear, dice: &mut Dice) -> SimFile {
        let mut safe = self.safe.clone();
        for change in &self.pending {
            change.tear(&mut safe, tear, dice);
        }
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
