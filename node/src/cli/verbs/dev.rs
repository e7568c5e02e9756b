//! `dev`: nodes for development, in this process or as processes of their own that end with it.

mod child;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clawhive_client::Client;
use clawhive_node::Node;
use tokio::sync::mpsc;

use super::server::end;
use crate::cli::GUARD;
use crate::cli::args::DevArgs;
use crate::cli::claim::{Claim, Holder};
use crate::cli::embedded::TempDir;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::Output;
use crate::cli::signals::Interrupts;
use crate::cli::trace;
use child::{Child, News};

/// Tasks get so much time when everything is stopped at once.
const GRACE: Duration = Duration::from_secs(2);
/// Between the death of a child and its next start.
const RESTART_AFTER: Duration = Duration::from_millis(500);
/// A child that does not stop within this time is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);

pub(in crate::cli) async fn run(args: &DevArgs, output: &Output) -> Result<Exit, Failure> {
    trace::verb()?;
    let temporary = if args.ephemeral { Some(TempDir::new()?) } else { None };
    let directory = temporary.as_ref().map_or_else(|| args.data.clone(), |temp| temp.path().to_owned());
    // Also with data elsewhere, the verbs used in this directory shall find the nodes by themselves.
    let is_new = !directory.exists();
    let claim = match Claim::take(&directory).await? {
        Holder::Us(claim) => claim,
        Holder::Other { addresses } => {
            let message =
                format!("another clawhive process has {}: it serves {addresses}", directory.display());
            return Err(Failure::new(Exit::Conflict, "conflict", message));
        }
    };
    let nodes = args.nodes.max(claim.nodes());
    if nodes > args.nodes {
        eprintln!("{} holds a cluster of {nodes} nodes: all of them are started", directory.display());
    }
    let specs: Vec<Spec> = (1..=nodes).map(|n| Spec::new(n, args.port, &claim)).collect();
    let ended = match specs.as_slice() {
        [only] => one(only, claim, output).await,
        _ => {
            if let Err(taken) = ports_are_free(&specs) {
                drop(claim);
                if is_new {
                    // Nothing but the claim is in it. What cannot be removed does no harm.
                    let _ = std::fs::remove_dir_all(&directory);
                }
                return Err(taken);
            }
            several(specs, claim, output).await
        }
    };
    drop(temporary);
    ended
}

/// Where one node is.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    pub(super) n: u16,
    pub(super) data: PathBuf,
    pub(super) listen: SocketAddr,
    pub(super) peer_listen: SocketAddr,
}

impl Spec {
    fn new(n: u16, first_port: u16, claim: &Claim) -> Self {
        let port = first_port + (n - 1) * 10;
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self { n, data: claim.node(n), listen: at(port), peer_listen: at(port + 1) }
    }
}

async fn one(spec: &Spec, mut claim: Claim, output: &Output) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let builder =
        Node::builder().guard(GUARD).data(&spec.data).listen(spec.listen).peer_listen(spec.peer_listen);
    // Not dropped by the select: half started, it cannot be.
    let mut start = std::pin::pin!(builder.bootstrap_if_empty().start());
    let node = tokio::select! {
        node = &mut start => node?,
        // Half started: what is on disk is whole at any moment, and nothing has been promised to anyone.
        () = interrupts.next() => std::process::exit(Exit::Done as i32),
    };
    tokio::select! {
        () = node.ready() => {}
        () = interrupts.next() => return Ok(Exit::Done),
    }
    publish(&mut claim, std::slice::from_ref(spec))?;
    output.print(&format!(
        "node {}  listen={} data={}\nready\n",
        node.id(),
        node.listen(),
        spec.data.display()
    ))?;
    interrupts.next().await;
    eprintln!("stopping");
    end(node, GRACE, &mut interrupts).await;
    Ok(Exit::Done)
}

/// Before any node is started: one that finds its port taken later leaves the others half a cluster.
fn ports_are_free(specs: &[Spec]) -> Result<(), Failure> {
    for spec in specs {
        for (address, whom) in [(spec.listen, "clients"), (spec.peer_listen, "peers")] {
            if let Err(error) = std::net::TcpListener::bind(address) {
                let message = format!("cannot listen on {address} for {whom}: {error}");
                return Err(Failure::new(Exit::Conflict, "conflict", message)
                    .hint("`--port` chooses others: each node takes two, the next node ten higher"));
            }
        }
    }
    Ok(())
}

fn publish(claim: &mut Claim, specs: &[Spec]) -> Result<(), Failure> {
    let addresses: Vec<String> = specs.iter().map(|spec| spec.listen.to_string()).collect();
    claim
        .publish(&addresses)
        .map_err(|error| Failure::unexpected(format!("cannot write the endpoint file: {error}")))
}

async fn several(specs: Vec<Spec>, mut claim: Claim, output: &Output) -> Result<Exit, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let (tell, mut news) = mpsc::unbounded_channel();
    let peers: Vec<SocketAddr> = specs.iter().map(|spec| spec.peer_listen).collect();
    let mut children = Vec::new();
    for spec in &specs {
        children.push(Child::start(spec.clone(), &peers, GRACE, tell.clone())?);
    }
    let mut ready = 0;
    let mut announced = false;
    loop {
        tokio::select! {
            some = news.recv() => match some {
                Some(News::Ready { n, id }) => {
                    let child = &children[usize::from(n) - 1];
                    let (spec, pid) = (child.spec(), child.pid());
                    output.print(&format!("node {id}  listen={} pid={pid} data={}\n", spec.listen, spec.data.display()))?;
                    ready += 1;
                    if ready == specs.len() && !announced {
                        announced = true;
                        publish(&mut claim, &specs)?;
                        leader_serves(&specs).await?;
                        output.print("ready\n")?;
                    }
                }
                Some(News::Ended { n, how }) if !announced => {
                    stop(children, &mut news, &mut interrupts).await;
                    return Err(Failure::unexpected(format!("the node in {} {how}", specs[usize::from(n) - 1].data.display())));
                }
                Some(News::Ended { n, how }) => {
                    eprintln!("the node in {} {how}; it is started again", specs[usize::from(n) - 1].data.display());
                    tokio::time::sleep(RESTART_AFTER).await;
                    let spec = specs[usize::from(n) - 1].clone();
                    children[usize::from(n) - 1] = Child::start(spec, &peers, GRACE, tell.clone())?;
                }
                None => return Ok(Exit::Done),
            },
            () = interrupts.next() => break,
        }
    }
    eprintln!("stopping");
    stop(children, &mut news, &mut interrupts).await;
    Ok(Exit::Done)
}

/// Asks all to stop, and kills those that take too long or when a second signal comes.
async fn stop(children: Vec<Child>, news: &mut mpsc::UnboundedReceiver<News>, interrupts: &mut Interrupts) {
    for child in &children {
        child.terminate();
    }
    let deadline = tokio::time::sleep(STOP_WITHIN);
    let mut deadline = std::pin::pin!(deadline);
    while children.iter().any(Child::is_running) {
        tokio::select! {
            _ = news.recv() => {}
            () = interrupts.next() => break,
            () = &mut deadline => break,
        }
    }
    for child in children.iter().filter(|child| child.is_running()) {
        child.kill();
    }
}

async fn leader_serves(specs: &[Spec]) -> Result<(), Failure> {
    let servers = specs.iter().map(|spec| spec.listen.to_string());
    let client = Client::builder().servers(servers).connect_lazy()?;
    loop {
        let status = client.cluster_status().await?;
        if status.quorum && status.leader != 0 && status.voters as usize == specs.len() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}
