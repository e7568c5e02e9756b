//! Starting a node: data directory, identity, replica, servers, loops, claw, in this order.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use clawhive_proto::{AddNode, NodeRole};
use clawhive_raft::{DivergeHook, OpenError, Options, Replica, Seams};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::claw_deps::NodeClaw;
use super::desk::NodeDesk;
use super::{Node, StartError, disk, presence, serve};
use crate::api::Api;
use crate::claw::{Claw, ClawConfig};
use crate::config::{Begin, Role, Settings};
use crate::context::{Context, VERSION};
use crate::env::{self, Clock};
use crate::identity::{DataDir, FIRST_FORMAT, Identity, IdentityError, format_id};
use crate::leader::{self, Beats, Health, Pace};
use crate::peer::{self, JoinError, Links, PeerService};
use crate::rebuild;
use crate::storage::{Space, Storage};

/// The id of the node that founds a cluster: the index of an entry that adds nobody.
const FOUNDER: u64 = 1;

/// Where the replica keeps its log and state, below the data directory.
pub(crate) const RAFT_DIR: &str = "raft";

/// How long the cluster may take to let a node in before the start fails.
const JOIN_PATIENCE: Duration = Duration::from_secs(30);

struct WallClock(Arc<Clock>);

impl clawhive_raft::Clock for WallClock {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }
}

impl Node {
    /// Starts a node. It serves once [`Node::ready`] returns.
    pub async fn start(settings: Settings) -> Result<Node, StartError> {
        let space = Arc::new(room_to_start(&settings)?);
        let mut data = DataDir::open(&settings.data)?;
        let (client_listener, listen) = serve::bind(settings.listen, "clients").await?;
        let (peer_listener, peer_listen) = serve::bind(settings.peer_listen, "peers").await?;
        let told = |advertise: &Option<String>, taken: std::net::SocketAddr| {
            advertise.clone().unwrap_or_else(|| taken.to_string())
        };
        let mut own = AddNode {
            join_id: Vec::new(),
            node: 0,
            listen: told(&settings.advertise, listen),
            peer_listen: told(&settings.peer_advertise, peer_listen),
            role: match settings.role {
                Role::Voter => NodeRole::Voter.into(),
                Role::Claw => NodeRole::Claw.into(),
            },
            version: VERSION.to_owned(),
            level: settings.level,
        };
        let identity = identify(&settings, &mut data, &mut own).await?;
        let me = peer::Identity { cluster_id: identity.cluster().unwrap_or_default(), node: identity.node };
        let clock = Arc::new(Clock::new());
        let links = Links::new(me);
        let whole: Whole = Arc::default();
        let seams = seams(&links, &clock, &whole);
        let (diverged, diverges) = watch::channel(None);
        let seams = seams.with_diverge(on_divergence(data.path(), me.node, diverged));
        rebuild::if_marked(data.path(), &data.path().join(RAFT_DIR), me.cluster_id, &links).await?;
        let replica = open_replica(&settings, &mut data, &space, me, seams, &own.peer_listen).await?;

        let ctx = Arc::new(Context {
            me,
            level: settings.level,
            replica,
            links,
            clock,
            beats: Beats::default(),
            storage: Storage::new(space),
            // Half of the machine at most is busy with long reads.
            scans: Semaphore::new(
                std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2).max(1),
            ),
            health: Health::default(),
            digests: Pace { entries: settings.digest_entries, interval: settings.digest_interval },
            logs: OnceLock::new(),
        });
        // Set once, here.
        let _ = whole.set(Arc::downgrade(&ctx));
        let (stop, stop_seen) = watch::channel(false);
        let (cut, cut_seen) = watch::channel(false);
        let ends = serve::Ends { stop: stop_seen, cut: cut_seen };
        let mut servers = JoinSet::new();
        let desk = Arc::new(NodeDesk { ctx: ctx.clone() });
        let service = PeerService::server(me, ctx.replica.clone(), desk);
        servers.spawn(serve::peers(peer_listener, service, ends.clone()));

        let claw_deps = Arc::new(NodeClaw::new(ctx.clone()));
        let claw = Claw::start(claw_config(&settings, &ctx, &own), claw_deps.clone())?;
        // Set once, here.
        let logs = Arc::new(claw.logs());
        let _ = ctx.logs.set(Arc::downgrade(&logs));
        let mut tasks = JoinSet::new();
        tasks.spawn(leader::run(ctx.clone()));
        tasks.spawn(presence::follow_moves(ctx.clone()));
        let seeds = match &settings.begin {
            Begin::Join(seeds) => seeds.clone(),
            _ => Vec::new(),
        };
        tasks.spawn(presence::seek(ctx.clone(), own.peer_listen.clone(), seeds));
        tasks.spawn(presence::announce(ctx.clone(), own));
        let data_dir = data.path().to_owned();
        let data = Arc::new(Mutex::new(data));
        tasks.spawn(presence::keep_older_versions_out(ctx.clone(), data.clone()));
        tasks.spawn(presence::greet_leaders(ctx.clone(), claw_deps.clone()));
        tasks.spawn(disk::watch(ctx.clone(), claw_deps.clone(), settings.election_max));
        servers.spawn(serve::clients(client_listener, Api::server(ctx.clone()), ends));
        tracing::info!(node = me.node, %listen, %peer_listen, cluster = format_id(&me.cluster_id), "started");
        Ok(Node {
            ctx,
            claw,
            logs,
            claw_deps,
            listen,
            peer_listen,
            stop,
            cut,
            servers,
            tasks,
            data,
            data_dir,
            diverges,
        })
    }
}

/// A start writes: without any room it would fail somewhere in the middle, in words of the system.
fn room_to_start(settings: &Settings) -> Result<Space, StartError> {
    let io = |source| IdentityError::Io { path: settings.data.clone(), source };
    std::fs::create_dir_all(&settings.data).map_err(io)?;
    let space = Space::of(&settings.data, settings.min_free).map_err(io)?;
    let measure = space.measure().map_err(io)?;
    if measure.free < disk::needed_to_start(measure) {
        return Err(StartError::NoSpace { path: settings.data.clone(), short: disk::short(measure) });
    }
    Ok(space)
}

fn claw_config(settings: &Settings, ctx: &Context, own: &AddNode) -> ClawConfig {
    let mut config = ClawConfig::new(ctx.me.node, &settings.data);
    config.slots = settings.slots;
    // A node that runs nothing has nothing to guard.
    config.guard = settings.guard.clone().filter(|_| settings.slots > 0);
    config.lease = settings.lease;
    config.task_nice = settings.task_nice;
    config.labels = settings.labels.clone();
    config.server_addr = own.listen.clone();
    config.version = VERSION.to_owned();
    config.space = Some(ctx.storage.space().clone());
    config
}

/// Finds out who this node is: from its directory, by founding a cluster, or by being let in.
async fn identify(
    settings: &Settings,
    data: &mut DataDir,
    own: &mut AddNode,
) -> Result<Identity, StartError> {
    let path = data.path().to_owned();
    let known = data.identity().filter(|identity| identity.is_member()).cloned();
    let identity = match (known, &settings.begin) {
        (Some(identity), Begin::Bootstrap) => {
            return Err(StartError::NotEmpty { path, node: identity.node, cluster: identity.cluster_id });
        }
        (Some(identity), begin) => {
            let me =
                peer::Identity { cluster_id: identity.cluster().unwrap_or_default(), node: identity.node };
            if let Begin::Join(peers) = begin {
                match peer::look_around(peers, &me).await {
                    None => {}
                    Some(peer::Stranger::OtherCluster(reason)) => {
                        return Err(StartError::OtherCluster { path, cluster: identity.cluster_id, reason });
                    }
                    Some(peer::Stranger::Removed(reason)) => {
                        return Err(StartError::Removed { path, reason });
                    }
                }
            }
            identity
        }
        (None, Begin::Restart) => return Err(StartError::Empty { path }),
        (None, Begin::Bootstrap | Begin::BootstrapIfEmpty) => {
            let identity = Identity {
                format: FIRST_FORMAT,
                cluster_id: format_id(&env::random_id()),
                node: FOUNDER,
                join_id: format_id(&env::random_id()),
                fresh: true,
            };
            data.set_identity(identity.clone())?;
            identity
        }
        (None, Begin::Join(peers)) => join(peers, data, own).await?,
    };
    own.node = identity.node;
    own.join_id = identity.join().unwrap_or_default().to_vec();
    Ok(identity)
}

/// The join id is written before anyone is asked: a join that is cut off is repeated as the same one.
async fn join(peers: &[String], data: &mut DataDir, own: &AddNode) -> Result<Identity, StartError> {
    let mut identity = match data.identity() {
        Some(identity) => identity.clone(),
        None => Identity {
            format: FIRST_FORMAT,
            cluster_id: String::new(),
            node: 0,
            join_id: format_id(&env::random_id()),
            fresh: true,
        },
    };
    data.set_identity(identity.clone())?;
    let mut request = own.clone();
    request.join_id = identity.join().unwrap_or_default().to_vec();
    let started = tokio::time::Instant::now();
    let welcome = loop {
        match peer::join(peers, &request).await {
            Ok(welcome) => break welcome,
            Err(refused @ JoinError::Refused(_)) => return Err(refused.into()),
            Err(error) if started.elapsed() > JOIN_PATIENCE => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "not let in yet");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    };
    if welcome.node == 0 || welcome.cluster_id.len() != 16 {
        return Err(StartError::Welcome(format!("node {} of {:?}", welcome.node, welcome.cluster_id)));
    }
    identity.node = welcome.node;
    identity.cluster_id = format_id(&welcome.cluster_id);
    data.set_identity(identity.clone())?;
    Ok(identity)
}

/// Remembers that the state is wrong, then tells whoever runs the node.
fn on_divergence(data: &Path, me: u64, diverged: watch::Sender<Option<String>>) -> DivergeHook {
    let data = data.to_owned();
    Arc::new(move |out| {
        let reason = out.divergence.to_string();
        rebuild::mark(&data, out, me);
        diverged.send_replace(Some(reason));
    })
}

/// The node around the replica, once there is one.
type Whole = Arc<OnceLock<Weak<Context>>>;

fn seams(links: &Links, clock: &Arc<Clock>, whole: &Whole) -> Seams {
    let for_admit = whole.clone();
    let admit = move |proposal: &_| match for_admit.get().and_then(Weak::upgrade) {
        Some(ctx) => ctx.storage.admit(ctx.me.node, proposal),
        None => Ok(()),
    };
    let whole = whole.clone();
    let prepare = move |proposal| match whole.get().and_then(Weak::upgrade) {
        Some(ctx) => leader::handover::enrich(&ctx, proposal),
        None => proposal,
    };
    Seams::new(Arc::new(links.clone()), Arc::new(WallClock(clock.clone())))
        .with_prepare(Arc::new(prepare))
        .with_admit(Arc::new(admit))
}

async fn open_replica(
    settings: &Settings,
    data: &mut DataDir,
    space: &Space,
    me: peer::Identity,
    seams: Seams,
    peer_listen: &str,
) -> Result<Replica, StartError> {
    let dir = data.path().join(RAFT_DIR);
    let fresh = data.identity().is_some_and(|identity| identity.fresh);
    // A state without its log is as bad: what this node has acknowledged and voted for is in the log.
    let is_there = dir.join("log").read_dir().is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.path().extension().is_some_and(|name| name == "log"))
    });
    if !fresh && !is_there {
        return Err(StartError::LogLost { path: data.path().to_owned(), node: me.node });
    }
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let options = Options {
        dir,
        node_id: me.node,
        cluster_id: me.cluster_id,
        heartbeat_ms: millis(settings.heartbeat),
        election_min_ms: millis(settings.election_min),
        election_max_ms: millis(settings.election_max),
        segment_bytes: space.segment_bytes(),
        cache_bytes: usize::try_from(settings.cache).unwrap_or(usize::MAX),
        snapshot_entries: settings.snapshot_entries,
        keep_entries: settings.snapshot_keep,
        ..Options::default()
    };
    let fault = |error: String| StartError::Replica(error);
    let replica = Replica::open(options, seams).await.map_err(|error| match error {
        OpenError::DamagedState { .. } | OpenError::Log(_) => {
            StartError::Storage { path: data.path().to_owned(), node: me.node, reason: error.to_string() }
        }
        other => fault(other.to_string()),
    })?;
    if fresh {
        if me.node == FOUNDER {
            replica.bootstrap(peer_listen).await.map_err(|error| fault(error.to_string()))?;
        }
        if let Some(mut identity) = data.identity().cloned() {
            identity.fresh = false;
            data.set_identity(identity)?;
        }
    }
    Ok(replica)
}
