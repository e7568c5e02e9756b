//! A cluster of real server processes on loopback: started, killed, restarted, stopped, asked. Owns the processes and
//! their directories; must not know what they are used for.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clawhive_client::Client;
use clawhive_client::proto::ClusterStatusResponse;
use rustix::process::{Pid, Signal, kill_process};

/// How long a node may take to say that it is ready, on a busy machine.
const READY: Duration = Duration::from_secs(30);

/// How to start a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// The `clawhive` binary.
    pub binary: PathBuf,
    /// Where the output of the nodes goes; none: into the temporary directory, away with it.
    pub out: Option<PathBuf>,
    /// Slots of each claw, in the order of nodes; the last holds for the rest, none is the default of the product.
    pub slots: Vec<u32>,
    /// Lease of the claws.
    pub lease: Option<Duration>,
    /// More variables of every node's environment.
    pub env: Vec<(String, String)>,
    /// By how many milliseconds the wall clocks of nodes are off, in the order of nodes; with it, [`Cluster::set_clock`]
    /// steps them.
    pub clocks: Option<Vec<i64>>,
}

impl Options {
    /// Nodes of a binary, all else as the product has it.
    pub fn new(nodes: usize, binary: impl Into<PathBuf>) -> Options {
        Options {
            nodes,
            binary: binary.into(),
            out: None,
            slots: Vec::new(),
            lease: None,
            env: Vec::new(),
            clocks: None,
        }
    }
}

/// One server process and what stays when it is gone.
#[derive(Debug)]
pub struct Member {
    /// Where clients reach it.
    pub listen: String,
    /// Where peers reach it.
    pub peer_listen: String,
    /// Its data directory.
    pub data: PathBuf,
    /// Its node id, once it was ready.
    pub id: u64,
    /// Settings of this node alone.
    pub env: Vec<(String, String)>,
    process: Option<Child>,
    starts: u32,
}

/// The processes; dropping it kills them all.
#[derive(Debug)]
pub struct Cluster {
    /// In the order of their start; the first one made the cluster.
    pub members: Vec<Member>,
    options: Options,
    out: PathBuf,
    _home: tempfile::TempDir,
}

/// The next port to try. Below the range that the system gives to outgoing connections.
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

fn free_port() -> Result<u16> {
    for _ in 0..2_000 {
        let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        // Other processes start elsewhere.
        let port = 20_000 + ((std::process::id() * 131 + step) % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port between 20000 and 32000")
}

impl Cluster {
    /// Starts the nodes one after the other and waits until all are ready.
    pub async fn start(options: Options) -> Result<Cluster> {
        let home = tempfile::Builder::new().prefix("clawhive-jepsen-").tempdir()?;
        let out = options.out.clone().unwrap_or_else(|| home.path().join("out"));
        std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let mut cluster = Cluster { members: Vec::new(), options, out, _home: home };
        for number in 0..cluster.options.nodes {
            cluster.add()?;
            cluster.spawn(number)?;
            cluster.ready(number).await?;
        }
        if cluster.options.nodes > 1 {
            cluster.voters(cluster.options.nodes as u32, READY).await?;
        }
        Ok(cluster)
    }

    /// A place for one more node, which joins when it is started for the first time; answers with its number.
    pub fn add(&mut self) -> Result<usize> {
        let number = self.members.len();
        let member = Member {
            listen: format!("127.0.0.1:{}", free_port()?),
            peer_listen: format!("127.0.0.1:{}", free_port()?),
            data: self._home.path().join(format!("node{}", number + 1)),
            id: 0,
            env: Vec::new(),
            process: None,
            starts: 0,
        };
        if let Some(clocks) = &self.options.clocks {
            self.set_clock(number, clocks.get(number).copied().unwrap_or(0))?;
        }
        self.members.push(member);
        Ok(number)
    }

    /// Other settings for every node, from its next start on.
    pub fn set_env(&mut self, env: Vec<(String, String)>) {
        self.options.env = env;
    }

    /// Starts the process of a member; it need not be ready yet.
    pub fn spawn(&mut self, number: usize) -> Result<()> {
        let first = self.members[0].peer_listen.clone();
        let member = &self.members[number];
        if member.process.is_some() {
            bail!("node {} runs already", number + 1);
        }
        let mut command = Command::new(&self.options.binary);
        command.arg("server").arg("--data").arg(&member.data);
        command.args(["--listen", &member.listen, "--peer-listen", &member.peer_listen]);
        if member.starts == 0 {
            match number {
                0 => command.arg("--bootstrap"),
                _ => command.args(["--join", &first]),
            };
        }
        // A node refuses settings that it does not know; those of the tool's caller are none of its business.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CLAWHIVE_"))
        {
            command.env_remove(name);
        }
        if let Some(slots) = self.options.slots.get(number).or(self.options.slots.last()) {
            command.env("CLAWHIVE_SLOTS", slots.to_string());
        }
        if let Some(lease) = self.options.lease {
            command.env("CLAWHIVE_LEASE", format!("{}ms", lease.as_millis()));
        }
        if self.options.clocks.is_some() {
            command.env("CLAWHIVE_TEST_CLOCK", self.clock_file(number));
        }
        command.envs(self.options.env.iter().chain(&member.env).map(|(name, value)| (name, value)));
        let start = member.starts + 1;
        let log = |kind: &str| File::create(self.log(number, start, kind));
        command.stdin(Stdio::null()).stdout(log("out")?).stderr(log("log")?);
        let process =
            command.spawn().with_context(|| format!("cannot start {}", self.options.binary.display()))?;
        let member = &mut self.members[number];
        member.process = Some(process);
        member.starts = start;
        Ok(())
    }

    /// What a node has logged since its last start.
    pub fn log_of(&self, number: usize) -> String {
        let path = self.log(number, self.members[number].starts, "log");
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn log(&self, number: usize, start: u32, kind: &str) -> PathBuf {
        self.out.join(format!("node{}.{start}.{kind}", number + 1))
    }

    fn clock_file(&self, number: usize) -> PathBuf {
        self._home.path().join(format!("node{}.clock", number + 1))
    }

    /// From the next second on, the wall clock of a node is off by so much. Only with [`Options::clocks`].
    pub fn set_clock(&self, number: usize, off_ms: i64) -> Result<()> {
        // Whole at any moment: the node reads it when it likes.
        let (file, scratch) = (self.clock_file(number), self.clock_file(number).with_extension("new"));
        std::fs::write(&scratch, off_ms.to_string())?;
        Ok(std::fs::rename(scratch, file)?)
    }

    /// What the newest process of a node has logged.
    pub fn log_text(&self, number: usize) -> String {
        let log = self.log(number, self.members[number].starts, "log");
        std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The member with a node id.
    pub fn member_of(&self, node: u64) -> Result<usize> {
        let found = self.members.iter().position(|member| member.id == node);
        found.with_context(|| format!("there is no node {node}"))
    }

    /// Where the output of the nodes is.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Waits until a node has printed that it is ready.
    pub async fn ready(&mut self, number: usize) -> Result<()> {
        let until = Instant::now() + READY;
        let path = self.log(number, self.members[number].starts, "out");
        loop {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| line.starts_with("ready ")) {
                let id = line.split_whitespace().find_map(|word| word.strip_prefix("node="));
                self.members[number].id = id.and_then(|id| id.parse().ok()).unwrap_or(0);
                return Ok(());
            }
            let member = &mut self.members[number];
            if let Some(process) = &mut member.process
                && let Some(status) = process.try_wait()?
            {
                member.process = None;
                let log = self.log(number, self.members[number].starts, "log");
                let log = std::fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(5).collect();
                bail!("node {} ended with {status} before it was ready: {}", number + 1, tail.join(" / "));
            }
            if Instant::now() > until {
                bail!("node {} was not ready within {READY:?}; see {}", number + 1, path.display());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Does the process of a member run?
    pub fn is_up(&self, number: usize) -> bool {
        self.members[number].process.is_some()
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let Some(process) = &self.members[number].process else { bail!("node {} does not run", number + 1) };
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).context("kill")
    }

    /// kill -9, and waits until the process is gone.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.signal(number, Signal::KILL)?;
        if let Some(mut process) = self.members[number].process.take() {
            process.wait()?;
        }
        Ok(())
    }

    /// SIGSTOP: the node stands still until [`Cluster::resume`].
    pub fn pause(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::STOP)
    }

    /// SIGCONT.
    pub fn resume(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::CONT)
    }

    /// SIGTERM; kills when it takes more than `patience`. True when the node ended by itself with code 0.
    pub async fn stop(&mut self, number: usize, patience: Duration) -> Result<bool> {
        self.signal(number, Signal::TERM)?;
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Some(process) = &mut self.members[number].process
                && let Some(status) = process.try_wait()?
            {
                self.members[number].process = None;
                return Ok(status.success());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.kill(number)?;
        Ok(false)
    }

    /// Starts a member again with what is in its directory, and waits until it is ready.
    pub async fn restart(&mut self, number: usize) -> Result<()> {
        self.spawn(number)?;
        self.ready(number).await
    }

    /// A client that knows every node.
    pub fn client(&self) -> Result<Client> {
        let servers = self.members.iter().map(|member| member.listen.as_str());
        Ok(Client::builder().servers(servers).timeout(Duration::from_secs(15)).connect_lazy()?)
    }

    /// A client of one node.
    pub fn client_of(&self, number: usize) -> Result<Client> {
        let server = [self.members[number].listen.as_str()];
        Ok(Client::builder().servers(server).timeout(Duration::from_secs(5)).connect_lazy()?)
    }

    /// What one node says of the cluster; none when it cannot be asked.
    pub async fn status_of(&self, number: usize) -> Option<ClusterStatusResponse> {
        if !self.is_up(number) {
            return None;
        }
        let client = self.client_of(number).ok()?.with_timeout(Duration::from_secs(1));
        client.cluster_status().await.ok()
    }

    /// The member that leads, as some node that is up sees it, and only if that one is up.
    pub async fn leader(&self) -> Option<usize> {
        for number in 0..self.members.len() {
            let Some(status) = self.status_of(number).await.filter(|status| status.leader != 0) else {
                continue;
            };
            let leads = self.members.iter().position(|member| member.id == status.leader);
            if let Some(leads) = leads.filter(|leads| self.is_up(*leads)) {
                return Some(leads);
            }
        }
        None
    }

    /// Waits until a member that is up leads with a quorum, by its own word.
    pub async fn wait_leader(&self, patience: Duration) -> Result<usize> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            for number in 0..self.members.len() {
                let id = self.members[number].id;
                if self.status_of(number).await.is_some_and(|status| status.leader == id && status.quorum) {
                    return Ok(number);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("no leader within {patience:?}; see {}", self.out.display())
    }

    /// Waits until the cluster has so many voters.
    pub async fn voters(&self, count: u32, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        let mut last = None;
        while Instant::now() < until {
            last = self.status_of(0).await;
            if last.as_ref().is_some_and(|status| status.voters >= count && status.quorum) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("not {count} voters within {patience:?}: {last:?}; see {}", self.out.display())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.members.len() {
            if self.is_up(number) {
                // Already dying is as good.
                let _ = self.kill(number);
            }
        }
    }
}
