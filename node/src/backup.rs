//! Backups in the hands of people: what a snapshot file holds, and a new cluster made of one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clawhive_proto::prost::Message;
use clawhive_proto::{Meta, NodeRow};
use clawhive_raft::{BackupError, BackupInfo, NewCluster};
use clawhive_statemachine::{Table, key, level};

use crate::env;
use crate::identity::{DataDir, FORMAT, Identity, IdentityError, format_id};

/// What a snapshot file holds.
#[derive(Clone, Debug)]
pub struct Contents {
    /// The file as a whole.
    pub info: BackupInfo,
    /// The time of the newest entry that it covers.
    pub time_ms: u64,
    /// The nodes that the cluster had.
    pub nodes: Vec<(u64, NodeRow)>,
    /// Rows and bytes of each table that has any, by the table's name.
    pub tables: Vec<(String, u64, u64)>,
}

/// A snapshot file that can't be read, or nothing can be made of.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: BackupError,
    },
    /// The directory.
    #[error(transparent)]
    Data(#[from] IdentityError),
    /// There is something in the directory.
    #[error("data directory {path} is not empty: it belongs to node {node} of cluster {cluster}; nothing was changed", path = path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        node: u64,
        /// Of which cluster.
        cluster: String,
    },
}

/// Reads all of a snapshot file and checks it.
///
/// # Errors
/// [`RestoreError::File`].
pub fn inspect(path: &Path) -> Result<Contents, RestoreError> {
    let mut tables: BTreeMap<Table, (u64, u64)> = BTreeMap::new();
    let mut nodes = Vec::new();
    let mut meta = Meta::default();
    let mut unreadable = None;
    let info = clawhive_raft::inspect(path, &mut |table, row_key, value| {
        let sum = tables.entry(table).or_default();
        *sum = (sum.0 + 1, sum.1 + (row_key.len() + value.len()) as u64);
        match table {
            Table::Meta => match Meta::decode(value) {
                Ok(row) => meta = row,
                Err(error) => unreadable = Some(error.to_string()),
            },
            Table::Nodes => match (key::u64_at(row_key, 0), NodeRow::decode(value)) {
                (Some(id), Ok(row)) => nodes.push((id, row)),
                _ => unreadable = Some("a row of the table of nodes".to_owned()),
            },
            _ => {}
        }
    });
    let file = |source| RestoreError::File { path: path.to_owned(), source };
    let info = info.map_err(file)?;
    if meta.level > level::LEVEL {
        let (found, ours) = (meta.level, level::LEVEL);
        return Err(file(BackupError::Format(format!(
            "it is of a cluster of level {found}, this version can do level {ours}"
        ))));
    }
    if let Some(what) = unreadable {
        return Err(file(BackupError::Damaged(what)));
    }
    let named = |(table, (rows, bytes))| (snake(&format!("{table:?}")), rows, bytes);
    let tables = tables.into_iter().map(named).collect();
    Ok(Contents { info, time_ms: meta.last_time_ms, nodes, tables })
}

/// `RunEvents` as `run_events`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

/// What was made of a snapshot.
#[derive(Clone, Debug)]
pub struct Restored {
    /// The snapshot.
    pub contents: Contents,
    /// The id of the new cluster, as 32 hexadecimal digits.
    pub cluster_id: String,
    /// Its first node.
    pub node: u64,
}

/// Makes the first node of a new cluster of a snapshot file, in an empty directory. The file is read to its end and
/// checked before anything of the directory can be started.
///
/// # Errors
/// [`RestoreError`]; the directory is as empty as before.
pub fn restore(path: &Path, data: &Path) -> Result<Restored, RestoreError> {
    let contents = inspect(path)?;
    let existed = data.exists();
    let mut dir = DataDir::open(data)?;
    if let Some(identity) = dir.identity() {
        let (node, cluster) = (identity.node, identity.cluster_id.clone());
        return Err(RestoreError::NotEmpty { path: data.to_owned(), node, cluster });
    }
    let (cluster_id, join_id) = (env::random_id(), env::random_id());
    let new =
        NewCluster { cluster_id, join_id, time_ms: env::Clock::new().now_ms(), peer_addr: "127.0.0.1:7401" };
    let raft = data.join(crate::node::RAFT_DIR);
    let made = clawhive_raft::restore(path, &raft, &new)
        .map_err(|source| RestoreError::File { path: path.to_owned(), source });
    let node = match made {
        Ok(node) => node,
        Err(error) => {
            // Half of a node is worth nothing, and would keep the next try from the directory.
            let _left_for_people = fs::remove_dir_all(&raft);
            if !existed {
                drop(dir);
                let _left_for_people = fs::remove_dir_all(data);
            }
            return Err(error);
        }
    };
    let cluster = format_id(&cluster_id);
    dir.set_identity(Identity {
        format: FORMAT,
        cluster_id: cluster.clone(),
        node,
        join_id: format_id(&join_id),
        fresh: false,
    })?;
    Ok(Restored { contents, cluster_id: cluster, node })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_as_people_write_them() {
        assert_eq!(snake("RunEvents"), "run_events");
        assert_eq!(snake("Keys"), "keys");
    }
}
