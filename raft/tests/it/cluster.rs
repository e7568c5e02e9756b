//! A cluster in this process: nodes by id, each with a directory that outlives it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clawhive_proto::{Command, Proposal, PutKey, command};
use clawhive_raft::{Clock, Committed, OpenError, Options, ProposeError, Replica, Seams, Status, View};
use clawhive_statemachine::{ReadStore, Table};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::hub::{Hub, Port};

pub const LONG: Duration = Duration::from_secs(20);

pub struct Cluster {
    pub hub: Arc<Hub>,
    pub nodes: BTreeMap<u64, Replica>,
    dirs: BTreeMap<u64, TempDir>,
    tune: fn(&mut Options),
}

/// A clock that moves with each look.
pub struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Cluster {
    /// Nodes 1 to `size`, all voters, node 1 leading.
    pub async fn start(size: u64) -> Cluster {
        Cluster::tuned(size, |_| {}).await
    }

    pub async fn tuned(size: u64, tune: fn(&mut Options)) -> Cluster {
        let mut cluster =
            Cluster { hub: Arc::default(), nodes: BTreeMap::new(), dirs: BTreeMap::new(), tune };
        cluster.open(1).await;
        cluster.nodes[&1].bootstrap("node-1").await.unwrap();
        for id in 2..=size {
            cluster.join(id).await;
        }
        cluster
    }

    /// Opens a node over its directory.
    pub async fn open(&mut self, id: u64) -> Replica {
        self.try_open(id).await.unwrap()
    }

    /// The directory of a node that was opened once.
    pub fn dir(&self, id: u64) -> PathBuf {
        self.dirs[&id].path().join("replica")
    }

    /// As [`Cluster::open`], for what may not open.
    pub async fn try_open(&mut self, id: u64) -> Result<Replica, OpenError> {
        let dir = self.dirs.entry(id).or_insert_with(|| tempfile::tempdir().unwrap());
        let mut options = Options {
            dir: dir.path().join("replica"),
            node_id: id,
            cluster_id: [7; 16],
            heartbeat_ms: 50,
            election_min_ms: 200,
            election_max_ms: 400,
            ..Options::default()
        };
        (self.tune)(&mut options);
        let transport = Arc::new(Port { hub: self.hub.clone(), from: id });
        let clock = Arc::new(Ticking(AtomicU64::new(1_700_000_000_000)));
        let replica = Replica::open(options, Seams::new(transport, clock)).await?;
        self.hub.plug(id, replica.clone());
        self.nodes.insert(id, replica.clone());
        Ok(replica)
    }

    /// Opens a new node and makes it a voter.
    pub async fn join(&mut self, id: u64) {
        self.open(id).await;
        let leader = self.leader().await;
        leader.add_learner(id, &format!("node-{id}"), LONG).await.unwrap();
        leader.promote([id], LONG).await.unwrap();
    }

    /// Ends a node as a crash would; its directory stays.
    pub async fn crash(&mut self, id: u64) {
        self.hub.unplug(id);
        self.nodes.remove(&id).unwrap().halt().await;
    }

    /// The node that leads and is ready to.
    pub async fn leader(&self) -> Replica {
        let all: Vec<Replica> = self.nodes.values().cloned().collect();
        until("a leader", || {
            all.iter().find(|node| {
                let status = node.status();
                let status = status.borrow();
                status.is_leader && status.quorum_ok
            })
        })
        .await
        .clone()
    }

    pub async fn follower(&self) -> Replica {
        let leader = id(&self.leader().await);
        self.nodes.values().find(|node| id(node) != leader).unwrap().clone()
    }

    /// Waits until all nodes have applied the same, and compares everything they hold.
    pub async fn assert_equal(&self) {
        let views = until("equal applied indices", || {
            let views: Vec<View> = self.nodes.values().map(Replica::view).collect();
            views.iter().all(|view| view.applied_index() == views[0].applied_index()).then_some(views)
        })
        .await;
        let digests: Vec<_> = views.iter().map(digest).collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]), "replicas differ");
    }
}

pub fn id(replica: &Replica) -> u64 {
    replica.status().borrow().node_id
}

pub fn status(replica: &Replica) -> Status {
    replica.status().borrow().clone()
}

/// Polls until there is something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..4_000 {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no {what} after 20 s");
}

/// SHA-256 over everything.
pub fn digest(view: &View) -> [u8; 32] {
    let mut hash = Sha256::new();
    for table in Table::ALL {
        view.scan(table, &[], None, &mut |key, value| {
            hash.update([table.number()]);
            hash.update((key.len() as u64).to_be_bytes());
            hash.update(key);
            hash.update((value.len() as u64).to_be_bytes());
            hash.update(value);
            ControlFlow::Continue(())
        });
    }
    hash.finalize().into()
}

pub fn put(key: &str, value: &str) -> Proposal {
    static REQUESTS: AtomicU64 = AtomicU64::new(1);
    let request = u128::from(REQUESTS.fetch_add(1, Ordering::Relaxed));
    let put =
        PutKey { namespace: "test".to_owned(), key: key.to_owned(), value: value.as_bytes().to_vec().into() };
    Proposal {
        request_id: request.to_be_bytes().to_vec(),
        actor: "test".to_owned(),
        commands: vec![Command { kind: Some(command::Kind::PutKey(put)) }],
    }
}

pub async fn write(replica: &Replica, key: &str, value: &str) -> Result<Committed, ProposeError> {
    replica.propose(put(key, value), LONG).await
}

/// True when the rows hold `value` somewhere: tests write values that occur nowhere else.
pub fn holds(view: &View, value: &str) -> bool {
    let mut found = false;
    view.scan(Table::Keys, &[], None, &mut |_, row| {
        found = row.windows(value.len()).any(|window| window == value.as_bytes());
        if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found
}
