//! The two servers of a node.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clawhive_proto::clawhive_server::ClawhiveServer;
use clawhive_proto::peer_server::PeerServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::{StartError, cut};
use crate::api::Api;
use crate::peer::PeerService;

/// How long whoever had the address before may take to leave it: a child that is being started holds a copy of every
/// descriptor for a moment.
const LEAVING: Duration = Duration::from_millis(300);

/// Takes an address, with an error that names it.
pub(super) async fn bind(
    address: SocketAddr,
    whom: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let fault = |source| StartError::Listen { address, whom, source };
    let started = tokio::time::Instant::now();
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && started.elapsed() < LEAVING => {
                tokio::time::sleep(LEAVING / 10).await;
            }
            Err(error) => return Err(fault(error)),
        }
    };
    let taken = listener.local_addr().map_err(fault)?;
    Ok((listener, taken))
}

/// When the servers of a node end. A sender that is gone means the same as `true`.
#[derive(Clone)]
pub(super) struct Ends {
    /// Nothing new is taken; what is under way goes on.
    pub(super) stop: watch::Receiver<bool>,
    /// Every connection breaks.
    pub(super) cut: watch::Receiver<bool>,
}

async fn told(mut end: watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = end.wait_for(|end| *end).await;
}

/// Serves peers until told to stop.
pub(super) async fn peers(listener: TcpListener, service: PeerServer<PeerService>, ends: Ends) {
    let incoming = cut::connections(TcpIncoming::from(listener).with_nodelay(Some(true)), ends.cut);
    let served = Server::builder()
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, told(ends.stop))
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the server for peers failed");
    }
}

/// Serves clients until told to stop.
pub(super) async fn clients(listener: TcpListener, service: ClawhiveServer<Api>, ends: Ends) {
    let incoming = cut::connections(TcpIncoming::from(listener).with_nodelay(Some(true)), ends.cut);
    let served = Server::builder()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, told(ends.stop))
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the server for clients failed");
    }
}
