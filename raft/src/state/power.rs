//! The state file through power cuts, on a simulated disk that loses and tears what was not synced.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::tests::{dump, entry, fatal, model, options};
use super::{STATE_FILE, State};
use crate::disk::{Disk, DiskFile, Fault, SimDisk, Tear, read_full};
use crate::statefile::Backend;
use crate::types::LogEntry;

/// redb on a file of the log's file layer.
struct OnDisk(Arc<dyn DiskFile>);

impl std::fmt::Debug for OnDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnDisk")
    }
}

impl redb::StorageBackend for OnDisk {
    fn len(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let wanted = out.len();
        match read_full(&*self.0, out, offset)? {
            read if read == wanted => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}

/// The state on `disk`. A file of no bytes holds its name in the real directory.
fn open(dir: &Path, disk: &SimDisk) -> (State, Arc<std::sync::Mutex<Vec<String>>>) {
    std::fs::write(dir.join(STATE_FILE), b"").unwrap();
    let disk = disk.clone();
    let backend: Backend = Arc::new(move |_| {
        let path = Path::new("/state");
        let file = match disk.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = disk.create(path)?;
                disk.sync_dir(Path::new("/"))?;
                file
            }
            other => other?,
        };
        Ok(Box::new(OnDisk(file)))
    });
    let (fatal, reasons) = fatal();
    (State::open(&options(dir), Some(backend), fatal).unwrap(), reasons)
}

/// Applies and flushes until the disk fails; gives how many entries were reported durable.
fn run(state: &State, log: &[LogEntry]) -> usize {
    let mut durable = 0;
    for (n, batch) in log.chunks(2).enumerate() {
        if state.apply(batch).is_err() || state.flush().is_err() {
            break;
        }
        durable = (n + 1) * 2;
    }
    durable
}

#[test]
fn what_was_reported_durable_survives_a_power_cut_at_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let log: Vec<LogEntry> =
        (1..=16).map(|n| entry(n, &[(n as u8, Some(n as u8)), (n as u8 / 2, None)])).collect();
    let (mut cuts, mut halted) = (0, 0);
    for after in 0..120 {
        // A disk that fails once and is cut later is the case that one-phase commits do not survive.
        for fault in [Fault::PowerCut, Fault::Io] {
            let disk = SimDisk::new();
            let (state, reasons) = open(dir.path(), &disk);
            disk.fail_at(disk.operations() + after, fault);
            let durable = run(&state, &log);
            halted += usize::from(!reasons.lock().unwrap().is_empty());
            for tear in [Tear::LoseAll, Tear::KeepAll, Tear::Prefix(after), Tear::Sectors(after)] {
                let later = disk.after_cut(tear);
                let (again, _) = open(dir.path(), &later);
                let found = again.applied().0.map_or(0, |id| id.index) as usize;
                assert!(
                    found == durable || found == durable + 2,
                    "found {found}, durable {durable} ({fault:?} after {after}, {tear:?})"
                );
                assert_eq!(dump(&again.view()), model(&log[..found]));
                cuts += 1;
            }
        }
    }
    assert!(cuts > 500 && halted > 100, "{cuts} cuts, {halted} halts");
}
