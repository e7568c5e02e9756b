//! The two servers of a node.

use std::net::SocketAddr;

use clawhive_proto::clawhive_server::ClawhiveServer;
use clawhive_proto::peer_server::PeerServer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::StartError;
use crate::api::Api;
use crate::peer::PeerService;

/// Takes an address, with an error that names it.
pub(super) async fn bind(
    address: SocketAddr,
    whom: &'static str,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let fault = |source| StartError::Listen { address, whom, source };
    let listener = TcpListener::bind(address).await.map_err(fault)?;
    let taken = listener.local_addr().map_err(fault)?;
    Ok((listener, taken))
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves peers until told to stop.
pub(super) async fn peers(
    listener: TcpListener,
    service: PeerServer<PeerService>,
    stop: watch::Receiver<bool>,
) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = Server::builder()
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stopped(stop))
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the server for peers failed");
    }
}

/// Serves clients until told to stop.
pub(super) async fn clients(
    listener: TcpListener,
    service: ClawhiveServer<Api>,
    stop: watch::Receiver<bool>,
) {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let served = Server::builder()
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stopped(stop))
        .await;
    if let Err(error) = served {
        tracing::error!(%error, "the server for clients failed");
    }
}
