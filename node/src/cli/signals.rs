//! Signals that people and supervisors send.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::failure::Failure;

/// Ctrl-C and SIGTERM alike.
#[derive(Debug)]
pub(super) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::unexpected(format!("cannot listen for signals: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
