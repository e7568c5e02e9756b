//! An etcd of three members on loopback, with its defaults, as the yardstick. Only the few fields of its v3 API that
//! are needed (`api/etcdserverpb/rpc.proto` of etcd).

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clawhive_proto::prost;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::probe::Puts;

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct PutRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

struct Member {
    client_url: String,
    peer_url: String,
    process: Option<Child>,
    channel: Channel,
}

/// The processes; dropping it kills them.
pub(super) struct EtcdCluster {
    binary: PathBuf,
    home: tempfile::TempDir,
    members: Vec<Member>,
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                // Already dead is as good.
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

impl EtcdCluster {
    /// Starts three members and waits until they have a leader.
    pub(super) async fn start(binary: &Path) -> Result<EtcdCluster> {
        let home = tempfile::Builder::new().prefix("clawhive-etcd-").tempdir()?;
        // Held together until all are chosen: each is another port.
        let ports: Vec<TcpListener> =
            (0..6).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<_>>()?;
        let urls: Vec<String> = ports
            .iter()
            .map(|port| Ok(format!("http://{}", port.local_addr()?)))
            .collect::<std::io::Result<_>>()?;
        drop(ports);
        let mut cluster = EtcdCluster { binary: binary.to_owned(), home, members: Vec::new() };
        for pair in urls.chunks(2) {
            let channel = Endpoint::from_shared(pair[0].clone())?.connect_lazy();
            let (client_url, peer_url) = (pair[0].clone(), pair[1].clone());
            cluster.members.push(Member { client_url, peer_url, process: None, channel });
        }
        for number in 0..3 {
            cluster.spawn(number)?;
        }
        cluster.leader().await?;
        Ok(cluster)
    }

    fn spawn(&mut self, number: usize) -> Result<()> {
        let initial: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(number, member)| format!("m{number}={}", member.peer_url))
            .collect();
        let member = &mut self.members[number];
        let child = Command::new(&self.binary)
            .args(["--name", &format!("m{number}"), "--log-level", "error"])
            .arg("--data-dir")
            .arg(self.home.path().join(format!("m{number}")))
            .args(["--listen-client-urls", &member.client_url, "--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.peer_url, "--initial-advertise-peer-urls", &member.peer_url])
            .args(["--initial-cluster", &initial.join(","), "--initial-cluster-state", "new"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        member.process = Some(child);
        Ok(())
    }

    /// The member that leads, by its own word.
    pub(super) async fn leader(&self) -> Result<usize> {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            for (number, member) in self.members.iter().enumerate() {
                let status: Result<StatusAnswer, _> =
                    unary(member.channel.clone(), "/etcdserverpb.Maintenance/Status", Nothing {}).await;
                let leads = |answer: StatusAnswer| {
                    answer.leader != 0
                        && answer.header.is_some_and(|header| header.member_id == answer.leader)
                };
                if member.process.is_some() && status.is_ok_and(leads) {
                    return Ok(number);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("etcd has no leader")
    }

    /// Writes through all members but one.
    pub(super) fn puts(&self, but: usize) -> Puts {
        let channels: Vec<Channel> = (0..self.members.len())
            .filter(|number| *number != but)
            .map(|number| self.members[number].channel.clone())
            .collect();
        Puts::new(channels.len(), move |member, key| {
            let channel = channels[member].clone();
            Box::pin(async move {
                let put = PutRequest { key, value: vec![7; 256] };
                unary::<_, Nothing>(channel, "/etcdserverpb.KV/Put", put).await.is_ok()
            })
        })
    }

    /// kill -9.
    pub(super) fn kill(&mut self, number: usize) -> Result<()> {
        if let Some(mut process) = self.members[number].process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Starts a killed member again and waits until it answers as a follower.
    pub(super) async fn restart(&mut self, number: usize) -> Result<()> {
        self.spawn(number)?;
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            let status: Result<StatusAnswer, _> =
                unary(self.members[number].channel.clone(), "/etcdserverpb.Maintenance/Status", Nothing {})
                    .await;
            if status.is_ok_and(|answer| answer.leader != 0) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("member {number} of etcd does not come back")
    }
}

async fn unary<Q, A>(channel: Channel, path: &'static str, request: Q) -> Result<A, tonic::Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}
