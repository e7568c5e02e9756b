//! Whether this node's disk does what is asked of it.
//!
//! Owns: how much room there is and how much is kept, who is told of it, and what is refused for it. Must not: free
//! anything, or decide who leads (that is `node/disk.rs`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{Command, Proposal};
use clawhive_raft::NoSpace;
use tokio::sync::watch;

const MIB: u64 = 1 << 20;

/// Bytes of output between two looks at the disk, at most.
const OUTPUT_STEP: u64 = 16 * MIB;

/// What the volume of the data directory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Measure {
    pub(crate) free: u64,
    /// Kept free for the log and the state.
    pub(crate) needed: u64,
}

/// The volume of the data directory.
#[derive(Debug)]
pub struct Space {
    dir: PathBuf,
    /// Device and inode: another directory of the same name is not ours.
    identity: (u64, u64),
    min_free: Option<u64>,
    /// Bytes of output that may be written before the next look.
    allowance: AtomicI64,
    /// Output is being dropped.
    cut: AtomicBool,
}

impl Space {
    /// The volume of a directory that exists. `min_free` is what is kept free on it, absent: by its size.
    pub fn of(dir: &Path, min_free: Option<u64>) -> io::Result<Space> {
        let identity = identity(dir)?;
        let (allowance, cut) = (AtomicI64::new(0), AtomicBool::new(false));
        Ok(Space { dir: dir.to_owned(), identity, min_free, allowance, cut })
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// How it is now.
    pub(crate) fn measure(&self) -> io::Result<Measure> {
        let volume = rustix::fs::statvfs(&self.dir)?;
        let total = volume.f_blocks.saturating_mul(volume.f_frsize);
        let free = volume.f_bavail.saturating_mul(volume.f_frsize);
        Ok(Measure { free, needed: self.min_free.unwrap_or_else(|| default_min_free(total)) })
    }

    /// Whether the directory is still the one that this node was started with.
    pub(crate) fn is_there(&self) -> io::Result<bool> {
        match identity(&self.dir) {
            Ok(found) => Ok(found == self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The size of a log segment: four or so are there at any time, which must not fill a small volume.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let total = rustix::fs::statvfs(&self.dir)
            .map_or(u64::MAX, |volume| volume.f_blocks.saturating_mul(volume.f_frsize));
        (total / 32 / MIB * MIB).clamp(MIB, 64 * MIB)
    }

    /// Whether a task may write so much output. It ends at twice what is kept free: what tasks print takes neither the
    /// leadership nor the log's last room.
    pub(crate) fn allows_output(&self, bytes: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if self.allowance.fetch_sub(bytes, Ordering::AcqRel) >= bytes {
            return true;
        }
        // A disk that cannot be looked at is not known to be full: writing to it says what is wrong.
        let Ok(Measure { free, needed }) = self.measure() else { return true };
        let spare = free.saturating_sub(needed.saturating_mul(2));
        let wanted = if self.cut.load(Ordering::Acquire) { needed / 4 } else { 0 };
        let allowance = if spare > wanted { (spare / 2).min(OUTPUT_STEP) } else { 0 };
        let allowance = i64::try_from(allowance).unwrap_or(i64::MAX).saturating_sub(bytes);
        self.allowance.store(allowance.max(0), Ordering::Release);
        self.cut.store(allowance < 0, Ordering::Release);
        allowance >= 0
    }
}

fn identity(dir: &Path) -> io::Result<(u64, u64)> {
    let found = rustix::fs::stat(dir)?;
    Ok((found.st_dev, found.st_ino))
}

/// A twentieth of the volume, at most 64 MiB, and at least 8 MiB or an eighth.
fn default_min_free(total: u64) -> u64 {
    (total / 20).max((8 * MIB).min(total / 8)).min(64 * MIB)
}

/// What is wrong with the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Less is free than is kept free.
    NoSpace(Measure),
    /// A write has not returned for so long.
    Hangs(Duration),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoSpace(measure) => write!(f, "no space left: {measure}"),
            Trouble::Hangs(long) => {
                write!(f, "a write to the disk has not returned for {:.1} s", long.as_secs_f64())
            }
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} free, {} needed", size(self.free), size(self.needed))
    }
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..MIB => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / MIB),
    }
}

/// The disk as the parts of a node see it.
#[derive(Debug)]
pub(crate) struct Storage {
    space: Arc<Space>,
    trouble: watch::Sender<Option<Trouble>>,
    /// This node leads without room, and nobody else could: what takes room is refused.
    refuses: AtomicBool,
}

impl Storage {
    pub(crate) fn new(space: Arc<Space>) -> Storage {
        Storage { space, trouble: watch::Sender::new(None), refuses: AtomicBool::new(false) }
    }

    pub(crate) fn space(&self) -> &Arc<Space> {
        &self.space
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        *self.trouble.borrow()
    }

    /// Says how it is now; true when trouble began or ended.
    pub(crate) fn set_trouble(&self, now: Option<Trouble>) -> bool {
        let before = self.trouble.send_replace(now);
        before.is_some() != now.is_some()
    }

    pub(crate) fn set_refuses(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Release);
    }

    /// Whether a proposal may be written to the log of this leader. What the cluster itself does goes on, and so does
    /// what frees room.
    pub(crate) fn admit(&self, node: u64, proposal: &Proposal) -> Result<(), NoSpace> {
        if !self.refuses.load(Ordering::Acquire) || is_internal(proposal) {
            return Ok(());
        }
        match self.trouble() {
            Some(Trouble::NoSpace(measure)) => {
                Err(NoSpace { message: format!("no space left on node {node}: {measure}; reads go on") })
            }
            _ => Ok(()),
        }
    }
}

fn is_internal(proposal: &Proposal) -> bool {
    let goes_on = |command: &Command| {
        matches!(
            command.kind,
            // What frees room, what repairs the cluster, and locks: they would be lost.
            Some(
                Kind::CancelRun(_)
                    | Kind::DeleteKey(_)
                    | Kind::RemoveNode(_)
                    | Kind::SetNodeRole(_)
                    | Kind::SetNodeState(_)
                    | Kind::RenewLock(_)
                    | Kind::ReleaseLock(_)
            )
        )
    };
    proposal.actor.starts_with("node:") || proposal.commands.iter().all(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::{CancelRun, RenewLock, SubmitRun};

    #[test]
    fn what_is_kept_free_follows_the_size() {
        assert_eq!(default_min_free(64 * MIB), 8 * MIB);
        assert_eq!(default_min_free(16 * MIB), 2 * MIB);
        assert_eq!(default_min_free(1024 * MIB), 1024 * MIB / 20);
        assert_eq!(default_min_free(1 << 40), 64 * MIB);
    }

    #[test]
    fn only_what_takes_room_is_refused_and_only_when_nobody_else_can_lead() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(Arc::new(Space::of(dir.path(), None).unwrap()));
        let proposal = |actor: &str, kind| Proposal {
            request_id: Vec::new(),
            actor: actor.to_owned(),
            commands: vec![Command { kind: Some(kind) }],
        };
        let submit = || proposal("api", Kind::SubmitRun(SubmitRun::default()));
        let full = Trouble::NoSpace(Measure { free: 3 * MIB, needed: 64 * MIB });
        assert!(storage.set_trouble(Some(full)) && !storage.set_trouble(Some(full)));
        assert_eq!(storage.admit(1, &submit()), Ok(()));
        let renew = proposal("cli", Kind::RenewLock(RenewLock::default()));
        storage.set_refuses(true);
        let refused = storage.admit(1, &submit()).unwrap_err();
        assert_eq!(refused.message, "no space left on node 1: 3 MiB free, 64 MiB needed; reads go on");
        assert_eq!(storage.admit(1, &proposal("api", Kind::CancelRun(CancelRun::default()))), Ok(()));
        assert_eq!(storage.admit(1, &proposal("node:2", Kind::SubmitRun(SubmitRun::default()))), Ok(()));
        assert_eq!(storage.admit(1, &renew), Ok(()));
        storage.set_trouble(None);
        assert_eq!(storage.admit(1, &submit()), Ok(()));
    }

    #[test]
    fn output_ends_before_the_log_has_to() {
        let dir = tempfile::tempdir().unwrap();
        let roomy = Space::of(dir.path(), Some(1)).unwrap();
        assert!(roomy.allows_output(64 << 10) && roomy.allows_output(64 << 10));
        let tight = Space::of(dir.path(), Some(u64::MAX / 4)).unwrap();
        assert!(!tight.allows_output(1));
    }

    #[test]
    fn a_directory_that_was_replaced_is_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::create_dir(&path).unwrap();
        let space = Space::of(&path, None).unwrap();
        assert!(space.is_there().unwrap());
        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        assert!(!space.is_there().unwrap());
        std::fs::create_dir(&path).unwrap();
        assert!(!space.is_there().unwrap());
    }
}
