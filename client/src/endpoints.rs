//! The peers a client may ask, and which one it asks first. Owns the connections; knows nothing of calls.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clawhive_proto::clawhive_client::ClawhiveClient;
use tonic::transport::{Channel, Endpoint};

use crate::error::Error;

/// A connection that is not there in this time will not come.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// A peer that answers no ping for this long, with a call open, is lost: its streams break and resume elsewhere.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
/// Answers are bounded by the server; a run of 10,000 tasks is bigger than a request may be.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Endpoints {
    peers: Vec<Peer>,
    /// The peer that answered last: asked first.
    preferred: AtomicUsize,
}

#[derive(Debug)]
struct Peer {
    address: String,
    endpoint: Endpoint,
    /// Made with the first call, so that a client may be built outside a runtime.
    channel: OnceLock<Channel>,
}

impl Endpoints {
    pub(crate) fn parse(servers: &[String]) -> Result<Self, Error> {
        if servers.is_empty() {
            return Err(Error::invalid("no server named"));
        }
        let peers = servers.iter().map(|server| Peer::parse(server)).collect::<Result<_, _>>()?;
        Ok(Self { peers, preferred: AtomicUsize::new(0) })
    }

    pub(crate) fn len(&self) -> usize {
        self.peers.len()
    }

    pub(crate) fn preferred(&self) -> usize {
        self.preferred.load(Ordering::Relaxed)
    }

    /// This peer answered: ask it first from now on.
    pub(crate) fn prefer(&self, peer: usize) {
        self.preferred.store(peer, Ordering::Relaxed);
    }

    /// The peer to ask after this one failed.
    pub(crate) fn after(&self, peer: usize) -> usize {
        (peer + 1) % self.peers.len()
    }

    pub(crate) fn stub(&self, peer: usize) -> ClawhiveClient<Channel> {
        let peer = &self.peers[peer];
        let channel = peer.channel.get_or_init(|| peer.endpoint.connect_lazy()).clone();
        ClawhiveClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// All addresses, for messages.
    pub(crate) fn addresses(&self) -> String {
        self.peers.iter().map(|peer| peer.address.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Peer {
    fn parse(server: &str) -> Result<Self, Error> {
        let host = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
        let port = host.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let bad = || Error::invalid(format!("server address {server:?} is not HOST:PORT"));
        if port.is_none() || host.starts_with(':') || host.contains('/') {
            return Err(bad());
        }
        let endpoint = Endpoint::from_shared(format!("http://{host}"))
            .map_err(|_| bad())?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE);
        Ok(Self { address: host.to_owned(), endpoint, channel: OnceLock::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(server: &str) -> Result<Endpoints, Error> {
        Endpoints::parse(&[server.to_owned()])
    }

    #[test]
    fn addresses_are_host_and_port() {
        assert_eq!(parse("127.0.0.1:7400").unwrap().addresses(), "127.0.0.1:7400");
        assert_eq!(parse("http://node-1.example:7400/").unwrap().addresses(), "node-1.example:7400");
        assert_eq!(parse("[::1]:7400").unwrap().addresses(), "[::1]:7400");
        for bad in ["localhost", ":7400", "host:port", "host:70000", "https://host:1/x", "a b:1", "http://"] {
            let error = parse(bad).expect_err(bad);
            assert!(error.to_string().contains(bad), "{error}");
        }
        assert!(Endpoints::parse(&[]).is_err());
    }

    #[test]
    fn the_next_peer_goes_round() {
        let all = Endpoints::parse(&["a:1".into(), "b:1".into()]).unwrap();
        assert_eq!((all.preferred(), all.after(0), all.after(1)), (0, 1, 0));
        all.prefer(1);
        assert_eq!(all.preferred(), 1);
    }
}
