//! A disk in memory that can lose, tear, flip and fail, for tests and simulation.
//!
//! Owns: names, handles, and the count of operations that faults hang on. Everything is a function of the
//! calls made and the seeds given. Must not: use a clock, a thread or the system's randomness.
//!
//! Every call but `id` counts as one operation. Faults are set by the operation's number, so a test can
//! run once without faults, look at [`SimDisk::operations`], and then fail or cut at each of them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sim_file::{Dice, SimFile, Tear};
use super::{Disk, DiskFile};

/// What goes wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device reports an I/O error.
    Io,
    /// The device is full: writes, creates and extensions fail, reads and syncs go on.
    Full,
    /// The power is gone: this operation and all that follow fail and change nothing.
    PowerCut,
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Fault::Io => io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()),
            Fault::Full => io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()),
            Fault::PowerCut => io::Error::new(io::ErrorKind::BrokenPipe, "the simulated power is gone"),
        }
    }
}

#[derive(Debug, Clone)]
enum NameChange {
    Link { path: PathBuf, node: u64 },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, node: u64 },
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Link { path, node } => {
                names.insert(path.clone(), *node);
            }
            NameChange::Unlink { path } => {
                names.remove(path);
            }
            NameChange::Rename { from, to, node } => {
                names.remove(from);
                names.insert(to.clone(), *node);
            }
        }
    }

    fn dir(&self) -> Option<&Path> {
        match self {
            NameChange::Link { path, .. } | NameChange::Unlink { path } => path.parent(),
            NameChange::Rename { to, .. } => to.parent(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, SimFile>,
    names: BTreeMap<PathBuf, u64>,
    safe_names: BTreeMap<PathBuf, u64>,
    pending_names: Vec<NameChange>,
    next_node: u64,
    operations: u64,
    /// The number of an operation, what it suffers, and the step to the next that does (0: none).
    fault: Option<(u64, Fault, u64)>,
    off: bool,
    /// The operation during which the power went.
    cut_at: Option<u64>,
}

/// A simulated disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    id: u64,
    state: Arc<Mutex<State>>,
}

struct SimHandle {
    disk: SimDisk,
    node: u64,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::with(State::default())
    }

    fn with(state: State) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), state: Arc::new(Mutex::new(state)) }
    }

    /// How many operations were made.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Lets the operation with number `at` (counted from 0 since the disk was made) suffer `fault`.
    pub fn fail_at(&self, at: u64, fault: Fault) {
        self.lock().fault = Some((at, fault, 0));
    }

    /// Lets every `step`-th operation from now on suffer `fault`.
    pub fn fail_every(&self, step: u64, fault: Fault) {
        let mut state = self.lock();
        let step = step.max(1);
        state.fault = Some((state.operations + step - 1, fault, step));
    }

    /// Ends all faults but a power cut.
    pub fn heal(&self) {
        self.lock().fault = None;
    }

    /// Takes the power away now.
    pub fn cut(&self) {
        self.lock().off = true;
    }

    /// The disk as found after a power cut at this moment: another disk, without faults. This one is left
    /// as it is, so one moment can be looked at under many tears.
    pub fn after_cut(&self, tear: Tear) -> SimDisk {
        let state = self.lock();
        let mut names = state.safe_names.clone();
        let mut dice = tear.dice(u64::MAX);
        let survivors = tear.survivors(&state.pending_names, &mut dice);
        for (change, _) in state.pending_names.iter().zip(survivors).filter(|(_, survives)| *survives) {
            change.apply(&mut names);
        }
        let files = state.files.iter();
        let files = files.map(|(node, file)| (*node, file.after_cut(tear, &mut tear.dice(*node)))).collect();
        let next_node = state.next_node;
        Self::with(State { files, safe_names: names.clone(), names, next_node, ..State::default() })
    }

    /// Flips one bit of a file; nothing happens if there is no such file or byte.
    pub fn flip(&self, path: &Path, offset: u64, bit: u8) {
        let mut state = self.lock();
        let node = state.names.get(path).copied();
        if let (Some(file), Ok(offset)) =
            (node.and_then(|n| state.files.get_mut(&n)), usize::try_from(offset))
        {
            file.flip(offset, bit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread doesn't make the simulated disk wrong.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation; `Err` is what it suffers. `grows` says that it needs space.
    fn operation(&self, grows: bool) -> Result<MutexGuard<'_, State>, (MutexGuard<'_, State>, io::Error)> {
        let mut state = self.lock();
        let number = state.operations;
        state.operations += 1;
        if state.off {
            return Err((state, Fault::PowerCut.error()));
        }
        match state.fault {
            Some((at, fault, step)) if number >= at => {
                if fault == Fault::PowerCut {
                    state.off = true;
                    state.cut_at = Some(number);
                }
                let due = fault != Fault::Full || grows;
                if due {
                    state.fault = (step > 0).then_some((number + step, fault, step));
                    return Err((state, fault.error()));
                }
                Ok(state)
            }
            _ => Ok(state),
        }
    }

    fn plain(&self, grows: bool) -> io::Result<MutexGuard<'_, State>> {
        self.operation(grows).map_err(|(_, error)| error)
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", path.display()))
}

impl Disk for SimDisk {
    fn id(&self) -> u64 {
        self.id
    }

    fn create_dir(&self, _dir: &Path) -> io::Result<()> {
        self.plain(false).map(drop)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.plain(true)?;
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = state.next_node;
        state.next_node += 1;
        state.files.insert(node, SimFile::default());
        state.names.insert(path.to_owned(), node);
        state.pending_names.push(NameChange::Link { path: path.to_owned(), node });
        Ok(Arc::new(SimHandle { disk: self.clone(), node }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.plain(false)?;
        let node = *state.names.get(path).ok_or_else(|| not_found(path))?;
        Ok(Arc::new(SimHandle { disk: self.clone(), node }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.plain(false)?;
        let names = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.plain(false)?;
        let node = *state.names.get(from).ok_or_else(|| not_found(from))?;
        let change = NameChange::Rename { from: from.to_owned(), to: to.to_owned(), node };
        change.apply(&mut state.names);
        state.pending_names.push(change);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.plain(false)?;
        state.names.remove(path).ok_or_else(|| not_found(path))?;
        state.pending_names.push(NameChange::Unlink { path: path.to_owned() });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.plain(false)?;
        let (synced, kept) =
            std::mem::take(&mut state.pending_names).into_iter().partition(|c| c.dir() == Some(dir));
        state.pending_names = kept;
        let synced: Vec<NameChange> = synced;
        for change in synced {
            change.apply(&mut state.safe_names);
        }
        Ok(())
    }
}

impl SimHandle {
    fn file<'s>(&self, state: &'s mut State) -> io::Result<&'s mut SimFile> {
        // Nodes are never dropped while the disk lives, so this is about a foreign disk only.
        state.files.get_mut(&self.node).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn to_usize(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

impl DiskFile for SimHandle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.plain(false)?;
        Ok(self.file(&mut state)?.read(buf, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = to_usize(offset)?;
        match self.disk.operation(true) {
            Ok(mut state) => {
                self.file(&mut state)?.write(bytes, offset);
                Ok(())
            }
            Err((mut state, error)) => {
                if !state.off {
                    let mut dice = Dice(state.operations);
                    self.file(&mut state)?.write_failing(bytes, offset, &mut dice);
                } else if state.cut_at.is_some_and(|at| at + 1 == state.operations) {
                    // The power went during this write: it is one of the unsynced ones.
                    self.file(&mut state)?.write(bytes, offset);
                }
                Err(error)
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.disk.operation(false) {
            Ok(mut state) => {
                self.file(&mut state)?.sync();
                Ok(())
            }
            Err((mut state, error)) => {
                if !state.off {
                    let mut dice = Dice(state.operations);
                    self.file(&mut state)?.sync_failing(&mut dice);
                }
                Err(error)
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = to_usize(len)?;
        let mut state = self.disk.plain(true)?;
        self.file(&mut state)?.set_len(len);
        Ok(())
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        let len = to_usize(len)?;
        let mut state = self.disk.plain(true)?;
        let file = self.file(&mut state)?;
        if file.len() < len {
            file.set_len(len);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        let mut state = self.disk.plain(false)?;
        Ok(self.file(&mut state)?.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(disk: &SimDisk, safe: &[u8], pending: &[u8]) -> Arc<dyn DiskFile> {
        let file = disk.create(Path::new("/d/x")).expect("create");
        file.write_at(safe, 0).expect("write");
        file.sync_data().expect("sync");
        disk.sync_dir(Path::new("/d")).expect("sync_dir");
        file.write_at(pending, 0).expect("write");
        file
    }

    fn bytes(disk: &SimDisk, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        disk.open(Path::new("/d/x")).expect("open").read_at(&mut buf, 0).expect("read");
        buf
    }

    #[test]
    fn a_cut_takes_only_what_was_not_synced() {
        let disk = SimDisk::new();
        file_with(&disk, &[1; 2048], &[2; 2048]);
        assert_eq!(bytes(&disk, 2048), [2; 2048]);
        assert_eq!(bytes(&disk.after_cut(Tear::LoseAll), 2048), [1; 2048]);
        assert_eq!(bytes(&disk.after_cut(Tear::KeepAll), 2048), [2; 2048]);
        let mut mixed = 0;
        for seed in 0..64 {
            let torn = bytes(&disk.after_cut(Tear::Sectors(seed)), 2048);
            assert!(torn.chunks(512).all(|s| s == [1; 512] || s == [2; 512]), "sectors are whole");
            mixed += u32::from(torn.contains(&1) && torn.contains(&2));
            assert_eq!(torn, bytes(&disk.after_cut(Tear::Sectors(seed)), 2048), "a seed is a result");
        }
        assert!(mixed > 32, "most tears must mix old and new sectors, {mixed} did");
    }

    #[test]
    fn a_sector_never_has_a_later_write_without_the_earlier() {
        let disk = SimDisk::new();
        let file = file_with(&disk, &[1; 1024], &[2; 100]);
        file.write_at(&[3; 800], 100).expect("write");
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let torn = bytes(&disk.after_cut(Tear::Sectors(seed)), 1024);
            assert!([[1, 1], [2, 1], [2, 3]].contains(&[torn[0], torn[200]]), "{:?}", &torn[..300]);
            seen.insert([torn[0], torn[200], torn[600]]);
            let prefix = bytes(&disk.after_cut(Tear::Prefix(seed)), 1024);
            assert!([[1, 1, 1], [2, 1, 1], [2, 3, 3]].contains(&[prefix[0], prefix[200], prefix[600]]));
        }
        assert_eq!(seen.len(), 6, "every combination comes up");
    }

    #[test]
    fn names_need_a_sync_of_their_directory() {
        let disk = SimDisk::new();
        let file = disk.create(Path::new("/d/x")).expect("create");
        file.sync_data().expect("sync");
        assert!(disk.after_cut(Tear::LoseAll).open(Path::new("/d/x")).is_err());
        disk.sync_dir(Path::new("/d")).expect("sync_dir");
        disk.rename(Path::new("/d/x"), Path::new("/d/y")).expect("rename");
        assert!(disk.after_cut(Tear::LoseAll).open(Path::new("/d/x")).is_ok());
        assert!(disk.after_cut(Tear::KeepAll).open(Path::new("/d/y")).is_ok());
    }

    #[test]
    fn a_failed_sync_loses_what_a_later_one_does_not_bring_back() {
        let disk = SimDisk::new();
        let file = file_with(&disk, &[1; 8192], &[2; 8192]);
        disk.fail_at(disk.operations(), Fault::Io);
        assert!(file.sync_data().is_err());
        file.sync_data().expect("a later sync succeeds, and lies");
        assert_eq!(bytes(&disk, 8192), [2; 8192], "reads still show the lost pages");
        assert!(bytes(&disk.after_cut(Tear::KeepAll), 8192).contains(&1), "but they never got to the disk");
    }

    #[test]
    fn faults_come_where_they_were_put() {
        let disk = SimDisk::new();
        let file = file_with(&disk, &[1; 10], &[2; 10]);
        disk.fail_every(2, Fault::Io);
        let outcomes: Vec<bool> = (0..6).map(|_| file.sync_data().is_ok()).collect();
        assert_eq!(outcomes, [true, false, true, false, true, false]);
        disk.heal();
        disk.fail_at(disk.operations(), Fault::Full);
        assert!(file.sync_data().is_ok(), "a full disk can sync");
        let error = file.write_at(&[3], 0).expect_err("but not write");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        disk.fail_at(disk.operations(), Fault::PowerCut);
        assert!(file.size().is_err());
        assert!(file.size().is_err(), "the power does not come back");
        disk.flip(Path::new("/d/x"), 0, 0);
    }
}
