//! Snapshot files in the hands of people: looking into one, and making a cluster of one.
//!
//! Must not: touch a running replica, or change anything unless the whole file was found good.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clawhive_proto::command::Kind;
use clawhive_proto::prost::Message;
use clawhive_proto::{Command, Entry, RaiseLevel, RestoreCluster};
use clawhive_statemachine::{ENTRY_VERSION, Table, level};

use crate::disk::RealDisk;
use crate::fatal::Fatal;
use crate::log::{Ballot, LogEntry, LogError, LogOptions, LogPos, OnDurable, SegmentLog};
use crate::snapshot::{Reader, SnapshotError};
use crate::state::STATE_FILE;
use crate::statefile::{Facts, Opening, Owner, StateFile, sync_parent};
use crate::transport::Peer;
use crate::types::{Membership, Node, StoredMembership};

/// A snapshot file that can't be used; nothing was made of it.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It, or the place for what is made of it, could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is not what was written; says where as far as that can be told.
    #[error("damaged: {0}")]
    Damaged(String),
    /// Another version wrote it.
    #[error("{0}")]
    Format(String),
}

impl From<SnapshotError> for BackupError {
    fn from(error: SnapshotError) -> BackupError {
        match error {
            SnapshotError::Io(error) => BackupError::Io(error),
            SnapshotError::Damaged(what) => BackupError::Damaged(what),
            other => BackupError::Format(other.to_string()),
        }
    }
}

/// What a snapshot file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupInfo {
    /// The cluster it was taken of.
    pub cluster_id: [u8; 16],
    /// The newest entry that it covers.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
    /// The voters of that cluster.
    pub voters: Vec<u64>,
    /// All members with the addresses they had.
    pub members: Vec<Peer>,
    /// The digest of its rows; none in a file of a version that kept none.
    pub digest: Option<[u8; 16]>,
    /// The length of the file.
    pub bytes: u64,
    /// How many rows it has.
    pub rows: u64,
}

/// Reads a whole snapshot file, with all checks, and shows each row.
///
/// # Errors
/// [`BackupError`]; rows that were shown before then mean nothing.
pub fn inspect(path: &Path, show: &mut dyn FnMut(Table, &[u8], Bytes)) -> Result<BackupInfo, BackupError> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut reader = Reader::open_any(file)?;
    while let Some((place, value)) = reader.next_row()? {
        // The reader knows every table it gives out.
        if let Some(table) = place.first().and_then(|number| Table::from_number(*number)) {
            show(table, &place[1..], value.into());
        }
    }
    let facts = &reader.facts;
    let membership = facts.membership.membership();
    Ok(BackupInfo {
        cluster_id: reader.cluster_id,
        index: facts.applied.map_or(0, |id| id.index),
        term: facts.applied.map_or(0, |id| id.leader_id.term),
        voters: membership.voter_ids().collect(),
        members: membership.nodes().map(|(id, node)| Peer { id: *id, addr: node.addr.clone() }).collect(),
        digest: facts.digest.map(|digest| digest.bytes()),
        bytes,
        rows: reader.rows,
    })
}

/// The cluster to make of a snapshot.
#[derive(Clone, Debug)]
pub struct NewCluster<'a> {
    /// Its id: never that of the old one.
    pub cluster_id: [u8; 16],
    /// Of the directory of its first node.
    pub join_id: [u8; 16],
    /// When, for the first entry.
    pub time_ms: u64,
    /// Where that node listens for its peers, as long as it has not said so itself.
    pub peer_addr: &'a str,
}

/// Fills an empty directory with the log and state of the first node of a new cluster, made of a snapshot, and says which
/// id that node has. Its log goes on above what the snapshot covers, so that no index is used twice; its first entry is
/// [`RestoreCluster`].
///
/// # Errors
/// [`BackupError`]; the directory may then hold a part, and is not to be used.
pub fn restore(path: &Path, dir: &Path, new: &NewCluster<'_>) -> Result<u64, BackupError> {
    let mut reader = Reader::open_any(File::open(path)?)?;
    let Some(covered) = reader.facts.applied else {
        return Err(BackupError::Damaged("it covers nothing".to_owned()));
    };
    let node_id = covered.index + 1;
    let from_cluster = reader.cluster_id;
    let node = Node { addr: new.peer_addr.to_owned() };
    let membership = Membership::new(vec![BTreeSet::from([node_id])], BTreeMap::from([(node_id, node)]))
        .map_err(|error| BackupError::Io(io::Error::other(error.to_string())))?;
    let mut facts = Facts {
        applied: Some(covered),
        membership: StoredMembership::new(Some(covered), membership),
        digest: None,
    };
    std::fs::create_dir_all(dir)?;
    sync_parent(dir)?;
    let state = dir.join(STATE_FILE);
    let opening = Opening {
        owner: Owner { cluster_id: new.cluster_id, node_id },
        cache_bytes: 64 << 20,
        backend: None,
        fatal: Arc::new(Fatal::new(Arc::new(|_| {}))),
    };
    let file = StateFile::scratch(&state, &opening).map_err(io::Error::other)?;
    let mut refused = None;
    let filled = file.fill(&mut facts, || match reader.next_row() {
        Ok(row) => Ok(row),
        Err(error) => {
            refused = Some(error);
            Err(io::Error::other("the snapshot can't be read to its end"))
        }
    });
    if let Some(error) = refused {
        return Err(error.into());
    }
    filled.map_err(|error| match error {
        redb::Error::Io(error) => error,
        other => io::Error::other(other),
    })?;
    let first = RestoreCluster {
        join_id: new.join_id.to_vec(),
        from_cluster: from_cluster.to_vec(),
        from_index: covered.index,
    };
    begin_log(
        &dir.join("log"),
        covered.leader_id.term,
        covered.leader_id.node_id,
        node_id,
        first,
        new.time_ms,
    )?;
    file.adopt(&state)?;
    Ok(node_id)
}

/// A log that goes on behind the snapshot: one entry of the next term, which the new node has voted for itself in.
fn begin_log(
    dir: &Path,
    term: u64,
    old_leader: u64,
    node: u64,
    first: RestoreCluster,
    time_ms: u64,
) -> io::Result<()> {
    let covered = LogPos { term, node: old_leader, index: first.from_index };
    let entry = Entry {
        version: ENTRY_VERSION,
        time_ms,
        request_id: Vec::new(),
        actor: "restore".to_owned(),
        // The one node there is can do all that this version can.
        commands: [Kind::RaiseLevel(RaiseLevel { level: level::LEVEL }), Kind::RestoreCluster(first)]
            .map(|kind| Command { kind: Some(kind) })
            .into(),
    };
    let entry = LogEntry {
        pos: LogPos { term: term + 1, node, index: covered.index + 1 },
        tag: crate::log::store::COMMANDS,
        payload: entry.encode_to_vec().into(),
    };
    let log = SegmentLog::open(Arc::new(RealDisk), dir, LogOptions::default(), Arc::new(|_| {}))
        .map_err(|error| io::Error::other(error.to_string()))?;
    let durable = |start: &dyn Fn(OnDurable) -> Result<(), LogError>| -> io::Result<()> {
        let (done, wait) = std::sync::mpsc::channel();
        start(Box::new(move |result| drop(done.send(result))))?;
        Ok(wait.recv().map_err(|_| LogError::Closed)??)
    };
    durable(&|done| log.purge(covered, done))?;
    durable(&|done| log.save_vote(Ballot { term: term + 1, node, committed: false }, done))?;
    durable(&|done| log.append(vec![entry.clone()], done))?;
    log.close_and_wait()?;
    Ok(())
}

/// Puts a snapshot file, found good before by [`inspect`], in the place of the state below a stopped replica's directory:
/// the replica takes it in when it is opened. The file of the state itself must have been moved away.
///
/// # Errors
/// As the system says; the snapshot is then in its old place or in the new one, never half.
pub fn replace_by(dir: &Path, snapshot: &Path) -> io::Result<()> {
    let shelf = dir.join("snapshots");
    std::fs::create_dir_all(&shelf)?;
    sync_parent(&shelf)?;
    let current = shelf.join("current.snap");
    std::fs::rename(snapshot, &current)?;
    sync_parent(&current)?;
    sync_parent(snapshot)
}
