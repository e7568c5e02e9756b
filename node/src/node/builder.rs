//! Describing a node in code: the same settings as in a file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{Node, StartError};
use crate::config::{Begin, Partial, Role, Settings};

/// Describes a node to start; see [`Node::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    partial: Partial,
    begin: Option<Begin>,
}

impl Builder {
    /// The data directory.
    #[must_use]
    pub fn data(mut self, path: impl Into<PathBuf>) -> Builder {
        self.partial.data = Some(path.into());
        self
    }

    /// Address for clients; port 0 takes a free one.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.partial.listen = Some(address);
        self
    }

    /// Address for peers; port 0 takes a free one.
    #[must_use]
    pub fn peer_listen(mut self, address: SocketAddr) -> Builder {
        self.partial.peer_listen = Some(address);
        self
    }

    /// Makes a new cluster of one; refused when the data directory is not empty.
    #[must_use]
    pub fn bootstrap(mut self) -> Builder {
        self.begin = Some(Begin::Bootstrap);
        self
    }

    /// Makes a new cluster of one when the data directory is empty, else goes on with what is in it.
    #[must_use]
    pub fn bootstrap_if_empty(mut self) -> Builder {
        self.begin = Some(Begin::BootstrapIfEmpty);
        self
    }

    /// Goes on with what is in the data directory; refused when it is empty. The default.
    #[must_use]
    pub fn restart(mut self) -> Builder {
        self.begin = Some(Begin::Restart);
        self
    }

    /// Asks one of these peers for admission when the data directory is empty, else goes on with what is in it.
    #[must_use]
    pub fn join<S: Into<String>>(mut self, peers: impl IntoIterator<Item = S>) -> Builder {
        self.begin = Some(Begin::Join(peers.into_iter().map(Into::into).collect()));
        self
    }

    /// Voter (the default) or claw.
    #[must_use]
    pub fn role(mut self, role: Role) -> Builder {
        self.partial.role = Some(role);
        self
    }

    /// A label of the claw.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Builder {
        self.partial.labels.get_or_insert_with(BTreeMap::new).insert(name.into(), value.into());
        self
    }

    /// Slots of the claw.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Builder {
        self.partial.slots = Some(slots);
        self
    }

    /// A program that guards the claw's processes: started with
    /// [`GUARD_ARGUMENT`](crate::claw::GUARD_ARGUMENT) and a directory, it calls [`guard`](crate::claw::guard). Without
    /// one, tasks of a node that is killed run on until it starts again.
    #[must_use]
    pub fn guard(mut self, program: impl Into<PathBuf>) -> Builder {
        self.partial.guard = Some(program.into());
        self
    }

    /// Lease of the claw.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Builder {
        self.partial.lease = Some(lease);
        self
    }

    /// Heartbeat, and shortest and longest election timeout.
    #[must_use]
    pub fn election(mut self, heartbeat: Duration, min: Duration, max: Duration) -> Builder {
        self.partial.heartbeat = Some(heartbeat);
        self.partial.election_min = Some(min);
        self.partial.election_max = Some(max);
        self
    }

    /// Bytes of the store's page cache.
    #[must_use]
    pub fn cache(mut self, bytes: u64) -> Builder {
        self.partial.cache = Some(bytes);
        self
    }

    /// Settings from elsewhere (a file, the environment); what was said here before beats them.
    #[must_use]
    pub fn settings(mut self, partial: Partial) -> Builder {
        self.partial = self.partial.over(partial);
        self
    }

    /// The settings with all defaults, without starting anything: for a check, or to print them.
    pub fn complete(self) -> Result<Settings, StartError> {
        let mut settings = Settings::complete(self.partial)?;
        if let Some(begin) = self.begin {
            settings.begin = begin;
        }
        Ok(settings)
    }

    /// Starts the node. It serves once [`Node::ready`] returns.
    pub async fn start(self) -> Result<Node, StartError> {
        Node::start(self.complete()?).await
    }
}
