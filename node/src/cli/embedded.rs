//! A node inside this process, for as long as one verb takes.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clawhive_node::{Node, env};

use super::claim::Claim;
use super::failure::Failure;
use crate::cli::GUARD;

/// Tasks that still run when the verb is done get so much time; a run that has ended has none.
const GRACE: Duration = Duration::from_millis(200);
const READY_WITHIN: Duration = Duration::from_secs(15);

/// Does the node run tasks?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Tasks,
    /// It only answers: a verb that looks must not start what another one left behind.
    Nothing,
}

/// A running node, with what goes away when it ends.
#[derive(Debug)]
pub(super) struct Embedded {
    node: Node,
    /// Dropped after the node.
    _home: Home,
}

/// Where its data is.
#[derive(Debug)]
pub(super) enum Home {
    Kept(Claim),
    Ephemeral(TempDir),
}

impl Embedded {
    pub(super) async fn start(mut home: Home, work: Work) -> Result<Self, Failure> {
        let data = match &home {
            Home::Kept(claim) => claim.node(1),
            Home::Ephemeral(temp) => temp.path().join("node-1"),
        };
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let builder =
            Node::builder().data(data).listen(any).peer_listen(any).bootstrap_if_empty().guard(GUARD);
        let builder = if work == Work::Nothing { builder.slots(0) } else { builder };
        let node = builder.start().await?;
        if tokio::time::timeout(READY_WITHIN, node.ready()).await.is_err() {
            return Err(Failure::no_server(format!(
                "the local node does not get ready within {READY_WITHIN:?}"
            )));
        }
        if let Home::Kept(claim) = &mut home {
            let published = claim.publish(&[node.listen().to_string()]);
            published
                .map_err(|error| Failure::unexpected(format!("cannot write the endpoint file: {error}")))?;
        }
        Ok(Self { node, _home: home })
    }

    pub(super) fn address(&self) -> String {
        self.node.listen().to_string()
    }

    pub(super) async fn stop(self) {
        self.node.shutdown(GRACE).await;
    }
}

/// A directory that is removed with the value.
#[derive(Debug)]
pub(super) struct TempDir(PathBuf);

impl TempDir {
    pub(super) fn new() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("clawhive-{:016x}", env::random_u64()));
        let failed = |error: std::io::Error| {
            Failure::unexpected(format!("cannot make the directory {}: {error}", path.display()))
        };
        std::fs::create_dir(&path).map_err(failed)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Left to the system's own cleaning when it cannot be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
