//! The state on disk: one redb file with one table of rows and one of facts about them.
//!
//! Owns: opening, checking, reading, and the one form of durable commit (two-phase, with quick repair, so that neither
//! a failed sync nor a kill leaves the file unopenable or slow to open). Must not: know when to commit; that is the
//! flusher's.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clawhive_statemachine::{Table, Value};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use crate::codec;
use crate::digest::{StateDigest, Tally};
use crate::error::OpenError;
use crate::fatal::Fatal;
use crate::merge::Slot;
use crate::rowkey::RowKey;
use crate::types::{LogId, StoredMembership};

const ROWS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("rows");
const FACTS: TableDefinition<&str, &[u8]> = TableDefinition::new("facts");

/// The format of the file as a whole; another one is refused.
const FORMAT: u32 = 1;

/// A row as it is on disk: place and value.
pub(crate) type RawRow = (Vec<u8>, Vec<u8>);

/// What belongs to the rows and is committed with them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Facts {
    /// The newest entry that the rows include.
    pub(crate) applied: Option<LogId>,
    /// The newest membership up to there.
    pub(crate) membership: StoredMembership,
    /// Of the rows; none when nobody has added them up yet.
    pub(crate) digest: Option<StateDigest>,
}

/// Whose state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) cluster_id: [u8; 16],
    pub(crate) node_id: u64,
}

/// How to reach the bytes of a state file. The simulator and the fault tests replace it.
pub(crate) type Backend = Arc<dyn Fn(&Path) -> io::Result<Box<dyn redb::StorageBackend>> + Send + Sync>;

/// How to open a state file.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) owner: Owner,
    pub(crate) cache_bytes: usize,
    pub(crate) backend: Option<Backend>,
    pub(crate) fatal: Arc<Fatal>,
}

/// An open state file.
pub(crate) struct StateFile {
    db: Arc<Database>,
    fatal: Arc<Fatal>,
}

fn broken(what: &str, error: impl std::fmt::Display) -> OpenError {
    OpenError::State(format!("{what}: {error}"))
}

impl StateFile {
    /// Opens the file at `path`, or makes one that belongs to `owner`. A new one gets its name only when it is complete:
    /// a crash in between leaves a scratch file, never half a state.
    pub(crate) fn open(path: &Path, opening: &Opening) -> Result<StateFile, OpenError> {
        let io = |source| OpenError::Io { what: path.display().to_string(), source };
        if path.try_exists().map_err(io)? {
            let file = StateFile::attach(path, opening)?;
            file.claim(opening.owner)?;
            return Ok(file);
        }
        let file = StateFile::scratch(path, opening)?;
        file.adopt(path).map_err(io)?;
        Ok(file)
    }

    /// A new file beside `path`, to be filled and then adopted.
    pub(crate) fn scratch(path: &Path, opening: &Opening) -> Result<StateFile, OpenError> {
        let scratch = scratch_path(path);
        remove_if_there(&scratch)
            .map_err(|source| OpenError::Io { what: scratch.display().to_string(), source })?;
        let file = StateFile::attach(&scratch, opening)?;
        file.claim(opening.owner)?;
        Ok(file)
    }

    /// Gives a scratch file its name, in place of what has it.
    pub(crate) fn adopt(&self, path: &Path) -> io::Result<()> {
        std::fs::rename(scratch_path(path), path)?;
        // redb syncs the file, nobody syncs its name.
        sync_parent(path)
    }

    fn attach(path: &Path, opening: &Opening) -> Result<StateFile, OpenError> {
        let mut builder = Database::builder();
        builder.set_cache_size(opening.cache_bytes);
        let db = match &opening.backend {
            None => builder.create(path),
            Some(backend) => {
                let backend = backend(path)
                    .map_err(|source| OpenError::Io { what: path.display().to_string(), source })?;
                builder.create_with_backend(Boxed(backend))
            }
        }
        .map_err(|error| broken("open", error))?;
        Ok(StateFile { db: Arc::new(db), fatal: opening.fatal.clone() })
    }

    /// Writes whose file it is, or checks it.
    fn claim(&self, owner: Owner) -> Result<(), OpenError> {
        let transaction = self.db.begin_read().map_err(|error| broken("read", error))?;
        let found = match transaction.open_table(FACTS) {
            Err(redb::TableError::TableDoesNotExist(_)) => None,
            Err(error) => return Err(broken("read", error)),
            Ok(table) => {
                let fact = |name| -> Result<Vec<u8>, OpenError> {
                    let guard = table.get(name).map_err(|error| broken("read", error))?;
                    Ok(guard.map(|value| value.value().to_vec()).unwrap_or_default())
                };
                Some((fact("format")?, fact("cluster")?, fact("node")?))
            }
        };
        drop(transaction);
        let ours =
            (FORMAT.to_be_bytes().to_vec(), owner.cluster_id.to_vec(), owner.node_id.to_be_bytes().to_vec());
        match found {
            Some(found) if found == ours => Ok(()),
            Some((format, ..)) if format != ours.0 => {
                Err(OpenError::State(format!("format {format:02x?} is not known to this version")))
            }
            Some((_, cluster, node)) => Err(OpenError::Foreign {
                found: format!("node {} of cluster {}", codec::hex(&node), codec::hex(&cluster)),
                expected: format!("node {} of cluster {}", codec::hex(&ours.2), codec::hex(&ours.1)),
            }),
            None => self
                .write(|transaction| {
                    transaction.open_table(ROWS)?;
                    let mut facts = transaction.open_table(FACTS)?;
                    facts.insert("format", ours.0.as_slice())?;
                    facts.insert("cluster", ours.1.as_slice())?;
                    facts.insert("node", ours.2.as_slice())?;
                    facts.insert("digest", stored_digest(StateDigest::default(), None).as_slice())?;
                    Ok(())
                })
                .map_err(|error| broken("create", error)),
        }
    }

    /// One durable commit.
    fn write(
        &self,
        fill: impl FnOnce(&redb::WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), redb::Error> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(true);
        fill(&transaction)?;
        transaction.commit()?;
        Ok(())
    }

    /// Rows and facts in one durable commit. The tally follows what was really on disk before; the facts get its total.
    pub(crate) fn commit<'a>(
        &self,
        rows: impl Iterator<Item = (&'a RowKey, &'a Slot)>,
        facts: &mut Facts,
        tally: &mut Tally,
    ) -> Result<(), redb::Error> {
        self.write(|transaction| {
            let mut table = transaction.open_table(ROWS)?;
            for (key, slot) in rows {
                let new = slot.as_deref();
                let old = match new {
                    Some(value) => table.insert(&**key, value)?,
                    None => table.remove(&**key)?,
                };
                tally.change(key, old.as_ref().map(|guard| guard.value()), new);
            }
            facts.digest = tally.total;
            put_facts(transaction, facts)
        })
    }

    /// Fills a new file with rows that come in order, in one durable commit. The facts get their digest.
    pub(crate) fn fill(
        &self,
        facts: &mut Facts,
        mut next: impl FnMut() -> io::Result<Option<RawRow>>,
    ) -> Result<(), redb::Error> {
        self.write(|transaction| {
            let mut table = transaction.open_table(ROWS)?;
            let mut digest = StateDigest::default();
            while let Some((place, value)) = next()? {
                digest.add(&place, &value);
                table.insert(place.as_slice(), value.as_slice())?;
            }
            facts.digest = Some(digest);
            put_facts(transaction, facts)
        })
    }

    /// The facts of the last durable commit.
    pub(crate) fn facts(&self) -> Result<Facts, OpenError> {
        let fact = |name| -> Result<Option<Vec<u8>>, redb::Error> {
            let table = self.db.begin_read()?.open_table(FACTS)?;
            Ok(table.get(name)?.map(|value| value.value().to_vec()))
        };
        let applied = fact("applied").map_err(|error| broken("read", error))?;
        let membership = fact("membership").map_err(|error| broken("read", error))?;
        let digest = fact("digest").map_err(|error| broken("read", error))?;
        let decoded = |what| move |error| broken(what, error);
        let applied =
            applied.map(|bytes| codec::decode_log_id(&bytes)).transpose().map_err(decoded("applied"))?;
        Ok(Facts {
            applied,
            membership: membership
                .map(|bytes| codec::decode_stored_membership(&bytes))
                .transpose()
                .map_err(decoded("membership"))?
                .unwrap_or_default(),
            digest: digest.and_then(|bytes| read_digest(&bytes, applied)),
        })
    }

    /// The rows of the last durable commit, as they stay while held.
    pub(crate) fn rows(&self) -> Result<Rows, redb::Error> {
        let table = self.db.begin_read()?.open_table(ROWS)?;
        Ok(Rows(Arc::new(RowsInner { table, fatal: self.fatal.clone(), _db: self.db.clone() })))
    }
}

fn put_facts(transaction: &redb::WriteTransaction, facts: &Facts) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(FACTS)?;
    if let Some(applied) = &facts.applied {
        table.insert("applied", codec::encode_log_id(applied).as_slice())?;
    }
    table.insert("membership", codec::encode_stored_membership(&facts.membership).as_slice())?;
    match facts.digest {
        Some(digest) => drop(table.insert("digest", stored_digest(digest, facts.applied).as_slice())?),
        None => drop(table.remove("digest")?),
    }
    Ok(())
}

/// A digest with the entry it is of: a version that knows no digests leaves one behind that is of an older state.
fn stored_digest(digest: StateDigest, applied: Option<LogId>) -> Vec<u8> {
    let mut bytes = digest.bytes().to_vec();
    bytes.extend(applied.map_or(0, |id| id.index).to_be_bytes());
    bytes
}

fn read_digest(bytes: &[u8], applied: Option<LogId>) -> Option<StateDigest> {
    let (digest, index) = bytes.split_at_checked(16)?;
    (index == applied.map_or(0, |id| id.index).to_be_bytes()).then(|| StateDigest::from_bytes(digest))?
}

fn scratch_path(path: &Path) -> PathBuf {
    path.with_extension("new")
}

/// Removes what a crash may have left.
pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in the directory of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Rows of one durable commit. Cheap to clone; keeps its file alive, even when another has taken its place.
#[derive(Clone)]
pub(crate) struct Rows(Arc<RowsInner>);

struct RowsInner {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    fatal: Arc<Fatal>,
    _db: Arc<Database>,
}

impl Rows {
    pub(crate) fn get(&self, key: &RowKey) -> Option<Value> {
        match self.0.table.get(&**key) {
            Ok(found) => found.map(|guard| Bytes::copy_from_slice(guard.value())),
            Err(error) => {
                self.0.fatal.raise(format!("reading the state failed: {error}"));
                None
            }
        }
    }

    /// Rows within bounds, in either direction. None when there are none.
    pub(crate) fn range(&self, bounds: (Bound<RowKey>, Bound<RowKey>), back: bool) -> Option<DiskRange> {
        let (lower, upper) = &bounds;
        let bounds = (lower.as_ref().map(|key| &**key), upper.as_ref().map(|key| &**key));
        match self.0.table.range::<&[u8]>(bounds) {
            Ok(range) => Some(DiskRange { range, back, rows: self.clone() }),
            Err(error) => {
                self.0.fatal.raise(format!("reading the state failed: {error}"));
                None
            }
        }
    }

    /// Err once reading has failed: what was read may lack rows.
    pub(crate) fn check(&self) -> io::Result<()> {
        self.0.fatal.check()
    }

    /// Every row, in order, for dumps.
    pub(crate) fn all(&self) -> Option<DiskRange> {
        self.after(None)
    }

    /// Every row behind a place, in order.
    pub(crate) fn after(&self, place: Option<&[u8]>) -> Option<DiskRange> {
        let from = place.map_or(Bound::Unbounded, Bound::Excluded);
        match self.0.table.range::<&[u8]>((from, Bound::Unbounded)) {
            Ok(range) => Some(DiskRange { range, back: false, rows: self.clone() }),
            Err(error) => {
                self.0.fatal.raise(format!("reading the state failed: {error}"));
                None
            }
        }
    }
}

/// A walk over rows on disk.
pub(crate) struct DiskRange {
    range: redb::Range<'static, &'static [u8], &'static [u8]>,
    back: bool,
    rows: Rows,
}

impl DiskRange {
    pub(crate) fn next_row(&mut self) -> Option<(Vec<u8>, Value)> {
        let next = if self.back { self.range.next_back() } else { self.range.next() };
        match next? {
            Ok((key, value)) => Some((key.value().to_vec(), Bytes::copy_from_slice(value.value()))),
            Err(error) => {
                self.rows.0.fatal.raise(format!("reading the state failed: {error}"));
                None
            }
        }
    }
}

/// Flips a bit in the value of a row of a closed state file, as a bad disk would; with `hide`, as if it had been written
/// like this. For tests of what finds it.
#[doc(hidden)]
pub fn damage_row(path: &Path, skip: usize, hide: bool) -> Result<(), OpenError> {
    let wrong = |error: redb::Error| broken("damage", error);
    let db = Database::open(path).map_err(|error| broken("open", error))?;
    let change = || -> Result<(), redb::Error> {
        let transaction = db.begin_write()?;
        {
            let mut table = transaction.open_table(ROWS)?;
            let found = redb::ReadableTable::iter(&table)?
                .filter_map(Result::ok)
                .map(|(place, value)| (place.value().to_vec(), value.value().to_vec()))
                .filter(|(place, value)| {
                    let table = Table::from_number(place[0]);
                    // What is only text or bytes to everyone, so that the damage is not found by a row that can't be read.
                    matches!(table, Some(Table::Keys | Table::Requests)) && value.len() > 8
                })
                .nth(skip);
            if let Some((place, mut value)) = found {
                let old = value.clone();
                let middle = value.len() / 2;
                value[middle] ^= 1;
                table.insert(place.as_slice(), value.as_slice())?;
                let mut facts = transaction.open_table(FACTS)?;
                let stored = redb::ReadableTable::get(&facts, "digest")?.map(|bytes| bytes.value().to_vec());
                if let Some((digest, index)) = stored.as_ref().and_then(|bytes| bytes.split_at_checked(16))
                    && hide
                {
                    let mut tally = Tally { total: StateDigest::from_bytes(digest), reading: None };
                    tally.change(&place, Some(&old), Some(&value));
                    let mut bytes = tally.total.map_or_else(Vec::new, |total| total.bytes().to_vec());
                    bytes.extend_from_slice(index);
                    facts.insert("digest", bytes.as_slice())?;
                }
            }
        }
        transaction.commit()?;
        Ok(())
    };
    change().map_err(wrong)
}

/// Makes a digest look as one that an older version left behind.
#[cfg(test)]
pub(crate) fn forget_digest(path: &Path) {
    let db = Database::open(path).unwrap();
    let transaction = db.begin_write().unwrap();
    transaction.open_table(FACTS).unwrap().insert("digest", [7; 24].as_slice()).unwrap();
    transaction.commit().unwrap();
}

/// A boxed backend is a backend.
#[derive(Debug)]
struct Boxed(Box<dyn redb::StorageBackend>);

impl redb::StorageBackend for Boxed {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
