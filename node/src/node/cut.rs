//! Connections that end when the node does. The gRPC library leaves open ones to themselves; a stopped node must answer
//! nobody any more, and must not be kept in memory by a caller that stays.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures::{Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

/// A connection that breaks when it is told to, or when nobody is left to tell it.
pub(super) struct Cut {
    stream: TcpStream,
    end: WatchStream<bool>,
}

/// The connections of a listener, each of which breaks once `end` is true.
pub(super) fn connections(
    incoming: TcpIncoming,
    end: watch::Receiver<bool>,
) -> impl Stream<Item = io::Result<Cut>> {
    incoming.map(move |stream| Ok(Cut { stream: stream?, end: WatchStream::new(end.clone()) }))
}

impl Cut {
    /// An error once it is cut. Registers for the wake-up.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        loop {
            match pin!(&mut self.end).poll_next(context) {
                Poll::Ready(Some(false)) => {}
                Poll::Ready(Some(true) | None) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Poll::Pending => return Ok(()),
            }
        }
    }
}

impl AsyncRead for Cut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Cut {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Connected for Cut {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}
