//! What a client is told before it starts: servers, deadlines. Owns the reading of server addresses; opens nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::Client;
use crate::client::Inner;
use crate::endpoints::Endpoints;
use crate::error::Error;

/// How long a call may take with all its retries, unless set.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stream that was open keeps trying to resume, unless set.
pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

/// Builds a [`Client`].
///
/// ```no_run
/// # fn example() -> Result<(), clawhive_client::Error> {
/// use std::time::Duration;
/// let client = clawhive_client::Client::builder()
///     .servers(["127.0.0.1:7400", "127.0.0.1:7410", "127.0.0.1:7420"])
///     .timeout(Duration::from_secs(5))
///     .connect_lazy()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    servers: Vec<String>,
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) unreachable_after: Option<Duration>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            patience: DEFAULT_PATIENCE,
            unreachable_after: None,
        }
    }
}

impl Builder {
    /// Adds peers, as `HOST:PORT` or `http://HOST:PORT`. Each may hold a comma-separated list.
    pub fn servers<S: AsRef<str>>(mut self, servers: impl IntoIterator<Item = S>) -> Self {
        for server in servers {
            let names = server.as_ref().split(',').map(str::trim).filter(|name| !name.is_empty());
            self.servers.extend(names.map(str::to_owned));
        }
        self
    }

    /// The deadline of every call, retries included. Default: [`DEFAULT_TIMEOUT`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a stream (watch, events, logs) that was open once tries to resume before it gives up.
    /// Default: [`DEFAULT_PATIENCE`].
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Give up sooner when not one of the servers could be reached at all since the start of the call. For people at a
    /// terminal, who are told about a wrong address at once; a service keeps the default, which is the whole timeout.
    pub fn unreachable_after(mut self, limit: Duration) -> Self {
        self.unreachable_after = Some(limit);
        self
    }

    /// A client that connects with its first call.
    ///
    /// # Errors
    /// [`Error::Invalid`] when no server is named or an address cannot be read.
    pub fn connect_lazy(self) -> Result<Client, Error> {
        let endpoints = Endpoints::parse(&self.servers)?;
        Ok(Client { inner: Arc::new(Inner { endpoints }), limits: Limits::from(&self) })
    }
}

/// The time limits of a client; a clone of a client may have its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) unreachable_after: Duration,
}

impl From<&Builder> for Limits {
    fn from(builder: &Builder) -> Self {
        Self {
            timeout: builder.timeout,
            patience: builder.patience,
            unreachable_after: builder.unreachable_after.unwrap_or(builder.timeout).min(builder.timeout),
        }
    }
}
