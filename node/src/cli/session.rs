//! Which server a verb asks: the one named, the process that has `.clawhive/`, or a node of its own.

use std::path::Path;
use std::time::Duration;

use clawhive_client::{Builder, Client};

use super::args::Global;
use super::claim::{Claim, DIRECTORY, Holder};
use super::embedded::{Embedded, Home, TempDir, Work};
use super::failure::{Exit, Failure};
use super::trace;

/// A wrong address is told soon.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(1);
/// A process that has gone does not come back under its address; its data waits for us.
const BORROWED_PATIENCE: Duration = Duration::from_secs(2);

/// A client, and the node it asks if that is in this process.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    embedded: Option<Embedded>,
    /// The client asks another process that has this directory, and may go away before us.
    pub(super) borrowed: bool,
}

/// What a verb needs of a local node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Local {
    pub(super) work: Work,
    /// Make `.clawhive/` when it is not there.
    pub(super) create: bool,
    pub(super) ephemeral: bool,
}

impl Local {
    /// For a verb that looks at what is there.
    pub(super) const LOOK: Self = Self { work: Work::Nothing, create: false, ephemeral: false };
    /// For a verb that needs tasks to go on.
    pub(super) const WORK: Self = Self { work: Work::Tasks, create: false, ephemeral: false };
}

impl Session {
    pub(super) async fn open(global: &Global, local: Local) -> Result<Self, Failure> {
        trace::verb()?;
        if local.ephemeral {
            let home = Home::Ephemeral(TempDir::new()?);
            return Self::of_own_node(Embedded::start(home, local.work).await?);
        }
        if let Some(servers) = &global.server {
            return Ok(Self { client: connect(builder(servers))?, embedded: None, borrowed: false });
        }
        let directory = Path::new(DIRECTORY);
        if !local.create && !directory.is_dir() {
            let failure =
                Failure::no_server(format!("no server is named, and there is no {DIRECTORY}/ here"));
            return Err(failure.hint(
                "name a cluster with --server ADDR or CLAWHIVE_SERVER, or start one: clawhive run FILE, clawhive dev",
            ));
        }
        match Claim::take(directory).await? {
            Holder::Other { addresses } => {
                let builder = builder(&addresses).patience(BORROWED_PATIENCE);
                Ok(Self { client: connect(builder)?, embedded: None, borrowed: true })
            }
            Holder::Us(claim) if claim.nodes() > 1 => {
                let nodes = claim.nodes();
                let failure = Failure::no_server(format!(
                    "{DIRECTORY}/ holds a cluster of {nodes} nodes, which is not running"
                ));
                Err(failure.hint(format!("start it: clawhive dev --nodes {nodes}")))
            }
            Holder::Us(claim) => Self::of_own_node(Embedded::start(Home::Kept(claim), local.work).await?),
        }
    }

    fn of_own_node(embedded: Embedded) -> Result<Self, Failure> {
        let client = connect(builder(&embedded.address()))?;
        Ok(Self { client, embedded: Some(embedded), borrowed: false })
    }

    /// The node is in this process: what it has not done stays undone until another one serves the directory.
    pub(super) fn is_own_node(&self) -> bool {
        self.embedded.is_some()
    }

    /// Ends the node if it is ours. Not called when a verb fails half way: the process ends the node then.
    pub(super) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

fn builder(servers: &str) -> Builder {
    Client::builder().servers([servers]).unreachable_after(UNREACHABLE_AFTER)
}

fn connect(builder: Builder) -> Result<Client, Failure> {
    builder.connect_lazy().map_err(|error| Failure::new(Exit::Usage, "usage", error.to_string()))
}
