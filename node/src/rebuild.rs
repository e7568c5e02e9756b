//! A replica whose state was found to be wrong gets another one: of a peer's snapshot, under its old id, with its own log
//! and vote. What was wrong is kept for whoever wants to know why.
//!
//! Owns: the mark that says so across restarts, and the order of steps, each of which may be the last before a crash: as
//! long as the mark is there, the old state is not opened, and the next start begins again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clawhive_raft::{Peer, TakenOut};
use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::peer::Links;

const MARK: &str = "REBUILD.json";
const ASIDE: &str = "quarantine";
/// Between two rounds of asking.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known when a state is found to be wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// For people: the indexes and digests.
    pub(crate) reason: String,
    /// The new state must cover this entry.
    pub(crate) at_least: u64,
    /// Where other members were at that time.
    pub(crate) members: Vec<(u64, String)>,
}

/// A rebuild that cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The file system said no.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// There is no other member to get a state of, and the own snapshot is no good either.
    #[error(
        "{reason}; this node is the only one of its cluster, and its own snapshot is no good either ({error}): restore the \
         newest backup with `clawhive snapshot restore FILE --data NEWDIR`"
    )]
    Alone {
        /// Why it was to be rebuilt.
        reason: String,
        /// What is wrong with the snapshot.
        error: String,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> RebuildError {
    let path = path.to_owned();
    move |source| RebuildError::Io { path, source }
}

/// Remembers that the state below `data` is not to be used again.
pub(crate) fn mark(data: &Path, out: &TakenOut, me: u64) {
    let members = out.members.iter().filter(|peer| peer.id != me).map(|peer| (peer.id, peer.addr.clone()));
    let mark =
        Mark { reason: out.divergence.to_string(), at_least: out.applied.max(1), members: members.collect() };
    let path = data.join(MARK);
    let write = || -> io::Result<()> {
        let temporary = data.join("REBUILD.json.new");
        let mut file = File::create(&temporary)?;
        file.write_all(serde_json::to_string_pretty(&mark)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(data)?.sync_all()
    };
    if let Err(error) = write() {
        tracing::error!(path = %path.display(), %error, "the mark for a rebuild is not written; it will be found again");
    }
}

/// Rebuilds the state if it is marked. Does not return before some peer has given a good one.
pub(crate) async fn if_marked(
    data: &Path,
    raft: &Path,
    cluster_id: [u8; 16],
    links: &Links,
) -> Result<(), RebuildError> {
    let path = data.join(MARK);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(at(&path))?,
    };
    let mark: Mark =
        serde_json::from_str(&text).map_err(|error| at(&path)(io::Error::other(error.to_string())))?;
    if mark.members.is_empty() {
        alone(raft, &mark).await?;
        put_aside(data, raft, mark.at_least).map_err(at(data))?;
        return done(data, &path);
    }
    tracing::warn!(
        reason = mark.reason,
        "asking other members for a good state; not serving or voting before"
    );
    let fetched = raft.join("rebuild.snap");
    loop {
        for (id, addr) in &mark.members {
            let peer = Peer { id: *id, addr: addr.clone() };
            match fetch(links, &peer, mark.at_least, &fetched, cluster_id).await {
                Ok(index) => {
                    put_aside(data, raft, mark.at_least).map_err(at(data))?;
                    clawhive_raft::replace_by(raft, &fetched).map_err(at(raft))?;
                    done(data, &path)?;
                    tracing::warn!(
                        from = id,
                        log_index = index,
                        aside = %data.join(ASIDE).display(),
                        "this node has rebuilt its state; the old one is put aside for inspection"
                    );
                    return Ok(());
                }
                Err(error) => tracing::warn!(from = id, %addr, %error, "no state from this node yet"),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The mark is gone: from here on the state is as good as any.
fn done(data: &Path, mark: &Path) -> Result<(), RebuildError> {
    fs::remove_file(mark).map_err(at(mark))?;
    File::open(data).and_then(|dir| dir.sync_all()).map_err(at(data))
}

/// The only node of a cluster makes its state again of what it has: its snapshot, if there is one, and the log behind it.
/// Without a snapshot nothing was ever purged from the log.
async fn alone(raft: &Path, mark: &Mark) -> Result<(), RebuildError> {
    let snapshot = raft.join("snapshots/current.snap");
    tracing::warn!(
        reason = mark.reason,
        "the only node of its cluster makes its state again, of its snapshot and its log"
    );
    let checked = tokio::task::spawn_blocking(move || match snapshot.exists() {
        true => {
            clawhive_raft::inspect(&snapshot, &mut |_, _, _| {}).map(drop).map_err(|error| error.to_string())
        }
        false => Ok(()),
    });
    let checked = checked.await.map_err(|error| error.to_string()).and_then(|checked| checked);
    checked.map_err(|error| RebuildError::Alone { reason: mark.reason.clone(), error })
}

/// Gets a snapshot of a peer into a file, found good; answers with the entry that it covers.
async fn fetch(
    links: &Links,
    peer: &Peer,
    at_least: u64,
    to: &Path,
    cluster_id: [u8; 16],
) -> Result<u64, String> {
    let words = |error: io::Error| format!("{}: {error}", to.display());
    let mut chunks = links.fetch(peer, at_least).await.map_err(|error| error.to_string())?;
    let mut file = tokio::fs::File::create(to).await.map_err(words)?;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| error.to_string())?;
        tokio::io::AsyncWriteExt::write_all(&mut file, &chunk.data).await.map_err(words)?;
    }
    file.sync_all().await.map_err(words)?;
    drop(file);
    let path = to.to_owned();
    let checked = tokio::task::spawn_blocking(move || clawhive_raft::inspect(&path, &mut |_, _, _| {})).await;
    let info = checked.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    match info.index >= at_least && info.cluster_id == cluster_id {
        true => Ok(info.index),
        false => Err(format!("its snapshot covers log index {}, {at_least} is needed", info.index)),
    }
}

fn put_aside(data: &Path, raft: &Path, index: u64) -> io::Result<()> {
    let aside = data.join(ASIDE);
    fs::create_dir_all(&aside)?;
    let state = raft.join("state.redb");
    match fs::rename(&state, aside.join(format!("state-at-{index}.redb"))) {
        // A crash came between this and the next step.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::open(&aside)?.sync_all()?;
    File::open(raft)?.sync_all()
}
