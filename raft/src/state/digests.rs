//! The digests of the state: taking them where an entry asks for one, and reading all rows again to see whether they
//! still add up.

use std::io;

use super::{Held, State, lock};
use crate::audit::{Divergence, TakenOut};
use crate::digest::{Reading, StateDigest, Tally};
use crate::overlay::Layer;
use crate::statefile::{DiskRange, Rows};
use crate::transport::Peer;

/// What one step of reading the rows again reads at most; a row costs something beside its bytes.
const READ_BYTES: usize = 4 << 20;
const READ_ROW: usize = 256;

/// The rows that were not on disk yet when a digest was asked for, right after an entry.
pub(super) struct Mark {
    pub(super) index: u64,
    pub(super) layer: Layer,
}

/// The digests at the marks: what is on disk, with the rows above it.
pub(super) fn take_digests(tally: &Tally, disk: &Rows, marks: Vec<Mark>) -> Vec<(u64, StateDigest)> {
    let mut digests = Vec::with_capacity(marks.len());
    for Mark { index, layer } in marks {
        let mut at = Tally { total: tally.total, reading: None };
        if at.total.is_none() {
            continue;
        }
        for (key, slot) in layer.rows.iter() {
            at.change(key, disk.get(key).as_deref(), slot.as_deref());
        }
        digests.extend(at.total.map(|digest| (index, digest)));
    }
    digests
}

impl State {
    /// Takes this replica out: it applies and answers nothing more, and whoever runs it is told why.
    pub(super) fn diverged(&self, found: &Divergence) {
        match self.diverge.get() {
            None => self.fatal.raise(found.to_string()),
            Some(hook) => {
                if self.fatal.retire(found.to_string()) {
                    let (applied, membership) = self.applied();
                    let members = membership.membership().nodes();
                    hook(&TakenOut {
                        divergence: found.clone(),
                        applied: applied.map_or(0, |id| id.index),
                        members: members
                            .map(|(id, node)| Peer { id: *id, addr: node.addr.clone() })
                            .collect(),
                    });
                }
            }
        }
        self.room.notify_all();
    }

    /// Starts to read all rows again, to see whether they still add up to what was written.
    pub(crate) fn read_again(&self) {
        lock(&self.file).tally.reading = Some(Reading::default());
    }

    /// Reads some more rows for that; false when there is nothing (more) to read. Short, so that commits go on.
    pub(crate) fn read_on(&self) -> io::Result<bool> {
        let mut held = lock(&self.file);
        let Held { file, tally } = &mut *held;
        self.fatal.check()?;
        let Some(reading) = &mut tally.reading else { return Ok(false) };
        let rows = file.rows().map_err(|error| {
            self.fatal.raise(format!("reading the state failed: {error}"));
            io::Error::other(error)
        })?;
        let mut left = READ_BYTES;
        let mut range = rows.after(reading.until.as_deref());
        while let Some((place, value)) = range.as_mut().and_then(DiskRange::next_row) {
            reading.sum.add(&place, &value);
            left = left.saturating_sub(place.len() + value.len() + READ_ROW);
            reading.until = Some(place);
            if left == 0 {
                return Ok(true);
            }
        }
        rows.check()?;
        let sum = reading.sum;
        tally.reading = None;
        match tally.total {
            // A file of a version that kept no digest.
            None => tally.total = Some(sum),
            Some(total) if total != sum => {
                let index = lock(&self.live).disk_facts.applied.map_or(0, |id| id.index);
                drop(held);
                let (found, written) = (sum.to_string(), total.to_string());
                self.diverged(&Divergence::Disk { index, found, written });
            }
            Some(_) => {}
        }
        Ok(false)
    }
}
