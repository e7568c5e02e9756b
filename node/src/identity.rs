//! The data directory: who may use it, and whose it is.
//!
//! Owns: the lock that keeps a second process out, and the identity file (cluster, node, join id, format). Must not: look
//! into what the log, the state and the claw keep below it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The newest format of data directories that this version writes and reads: that of clusters of level 2.
pub const FORMAT: u32 = 2;

/// The format of a directory whose cluster is still at level 1: release 0.1 reads it too.
pub const FIRST_FORMAT: u32 = 1;

const LOCK: &str = "LOCK";
const IDENTITY: &str = "identity.json";

/// Whose data a directory holds. Written once the node belongs to a cluster, and a first time with the join id alone
/// before it asks to join: a join that is repeated after a crash gets the same node id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Format of the directory.
    pub format: u32,
    /// Hexadecimal; empty before the node has been welcomed.
    pub cluster_id: String,
    /// 0 before the node has been welcomed.
    pub node: u64,
    /// Hexadecimal, made once per directory.
    pub join_id: String,
    /// True until the log of this node was opened for the first time. Later a directory without a log has lost it.
    pub fresh: bool,
}

impl Identity {
    /// True once the node belongs to a cluster.
    pub fn is_member(&self) -> bool {
        self.node != 0
    }

    /// The cluster id as bytes; none before the node has been welcomed.
    pub fn cluster(&self) -> Option<[u8; 16]> {
        parse_id(&self.cluster_id)
    }

    /// The join id as bytes.
    pub fn join(&self) -> Option<[u8; 16]> {
        parse_id(&self.join_id)
    }
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Another process holds the lock.
    #[error("data directory {path} is in use by process {pid}", path = path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// What the lock file says, "unknown" when it cannot be read.
        pid: String,
    },
    /// Written by another version.
    #[error(
        "data directory {path} has format {found}, this version reads formats {FIRST_FORMAT} to {FORMAT}; nothing was \
         changed",
        path = path.display()
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// The identity file cannot be understood.
    #[error("{path} is damaged: {message}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Files without an identity: not a data directory of clawhive.
    #[error("{path} is not empty and not a clawhive data directory (it has no {IDENTITY})", path = path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A data directory held by this process. The lock goes with the value, and with the process.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Option<Identity>,
    lock: File,
}

impl Drop for DataDir {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that is being started at this moment holds a copy of it.
        if let Err(errno) = flock(&self.lock, FlockOperation::Unlock) {
            tracing::warn!(path = %self.path.display(), %errno, "the data directory is not unlocked");
        }
    }
}

impl DataDir {
    /// Creates the directory if needed, locks it and reads whose it is.
    pub fn open(path: &Path) -> Result<DataDir, IdentityError> {
        fs::create_dir_all(path).map_err(|source| io_error(path, source))?;
        let lock = lock(path)?;
        let identity = read_identity(path)?;
        if identity.is_none() && has_foreign_files(path)? {
            return Err(IdentityError::Foreign { path: path.to_owned() });
        }
        Ok(DataDir { path: path.to_owned(), identity, lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose it is; none for a new directory.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Keeps older versions out: the state below may hold what they do not know. Does nothing when that was done before.
    pub fn raise_format(&mut self, format: u32) -> Result<(), IdentityError> {
        match self.identity.clone() {
            Some(identity) if identity.format < format => self.set_identity(Identity { format, ..identity }),
            _ => Ok(()),
        }
    }

    /// Writes whose it is: whole, durable, or not at all.
    pub fn set_identity(&mut self, identity: Identity) -> Result<(), IdentityError> {
        let path = self.path.join(IDENTITY);
        let temporary = self.path.join("identity.json.new");
        let mut text = serde_json::to_string_pretty(&identity)
            .map_err(|error| IdentityError::Damaged { path: path.clone(), message: error.to_string() })?;
        text.push('\n');
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|source| io_error(&path, source))?;
        self.identity = Some(identity);
        Ok(())
    }
}

fn lock(path: &Path) -> Result<File, IdentityError> {
    let lock_path = path.join(LOCK);
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&lock_path)
        .map_err(|source| io_error(&lock_path, source))?;
    if let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if errno != rustix::io::Errno::WOULDBLOCK {
            return Err(io_error(&lock_path, errno.into()));
        }
        let mut pid = String::new();
        let known = file.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
        let pid = if known { pid.trim().to_owned() } else { "unknown".to_owned() };
        return Err(IdentityError::InUse { path: path.to_owned(), pid });
    }
    let mut write = || -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write().map_err(|source| io_error(&lock_path, source))?;
    Ok(file)
}

fn read_identity(path: &Path) -> Result<Option<Identity>, IdentityError> {
    let file = path.join(IDENTITY);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io_error(&file, source)),
    };
    let damaged = |message: String| IdentityError::Damaged { path: file.clone(), message };
    // The format first: another one may have other fields.
    let raw: serde_json::Value = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    let format = raw.get("format").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if !(u64::from(FIRST_FORMAT)..=u64::from(FORMAT)).contains(&format) {
        let found = u32::try_from(format).unwrap_or(u32::MAX);
        return Err(IdentityError::Format { path: path.to_owned(), found });
    }
    let identity: Identity = serde_json::from_value(raw).map_err(|error| damaged(error.to_string()))?;
    if identity.join().is_none() || (identity.is_member() && identity.cluster().is_none()) {
        return Err(damaged("an id in it is not 32 hexadecimal digits".to_owned()));
    }
    Ok(Some(identity))
}

fn has_foreign_files(path: &Path) -> Result<bool, IdentityError> {
    let entries = fs::read_dir(path).map_err(|source| io_error(path, source))?;
    for entry in entries {
        let name = entry.map_err(|source| io_error(path, source))?.file_name();
        // What a start that was cut off may have left behind, and what a fresh file system holds.
        if !["LOCK", "identity.json.new", "lost+found"].iter().any(|known| name == *known) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn io_error(path: &Path, source: io::Error) -> IdentityError {
    IdentityError::Io { path: path.to_owned(), source }
}

/// 32 hexadecimal digits.
pub fn format_id(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 16 bytes from 32 hexadecimal digits.
pub fn parse_id(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(node: u64) -> Identity {
        Identity {
            format: FIRST_FORMAT,
            cluster_id: format_id(&[7; 16]),
            node,
            join_id: format_id(&[9; 16]),
            fresh: false,
        }
    }

    #[test]
    fn a_directory_in_use_names_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::open(dir.path()).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("is in use by process {}", std::process::id())), "{error}");
        drop(held);
        DataDir::open(dir.path()).unwrap();
    }

    #[test]
    fn an_identity_survives() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = DataDir::open(dir.path()).unwrap();
        assert_eq!(data.identity(), None);
        data.set_identity(identity(4)).unwrap();
        drop(data);
        let data = DataDir::open(dir.path()).unwrap();
        assert_eq!(data.identity(), Some(&identity(4)));
        assert_eq!(data.identity().unwrap().cluster(), Some([7; 16]));
    }

    #[test]
    fn a_format_only_grows_and_keeps_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let mut data = DataDir::open(dir.path()).unwrap();
        data.set_identity(identity(4)).unwrap();
        for format in [FORMAT, FIRST_FORMAT] {
            data.raise_format(format).unwrap();
            assert_eq!(data.identity(), Some(&Identity { format: FORMAT, ..identity(4) }));
        }
        drop(data);
        let data = DataDir::open(dir.path()).unwrap();
        assert_eq!(data.identity().unwrap().format, FORMAT);
    }

    #[test]
    fn another_format_a_damaged_file_and_foreign_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(IDENTITY), r#"{"format": 9, "other": 1}"#).unwrap();
        let error = DataDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has format 9, this version reads formats 1 to 2"), "{error}");
        fs::write(dir.path().join(IDENTITY), r#"{"format": 1, "cluster_id": "x"#).unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(IdentityError::Damaged { .. })));
        fs::remove_file(dir.path().join(IDENTITY)).unwrap();
        fs::write(dir.path().join("thesis.txt"), "dear reader").unwrap();
        assert!(matches!(DataDir::open(dir.path()), Err(IdentityError::Foreign { .. })));
    }
}
