//! The client and its plain calls. Owns nothing of how a call is tried; see `call`.

use std::sync::Arc;
use std::time::Duration;

use clawhive_proto::{
    CancelRunRequest, CancelRunResponse, ClusterStatusRequest, ClusterStatusResponse, GetKeyRequest,
    GetKeyResponse, GetRunRequest, ListNodesRequest, ListNodesResponse, ListRunsRequest, ListRunsResponse,
    NodeView, PutKeyRequest, PutWorkflowRequest, PutWorkflowResponse, RunView,
};
use futures::StreamExt;

use crate::builder::{Builder, Limits};
use crate::call::Effect;
use crate::endpoints::Endpoints;
use crate::error::Error;
use crate::{has_ended, request_id};

/// A client of one cluster. A clone shares the connections.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
    pub(crate) limits: Limits,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) endpoints: Endpoints,
}

impl Client {
    /// Starts with no servers and the default deadlines.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The same client with another deadline for its calls.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut other = self.clone();
        other.limits.timeout = timeout;
        other.limits.unreachable_after = other.limits.unreachable_after.min(timeout);
        other
    }

    /// The servers it was built with.
    pub fn servers(&self) -> String {
        self.inner.endpoints.addresses()
    }

    /// Stores a definition (YAML or JSON text) as a version; an unchanged one makes no new version.
    ///
    /// # Errors
    /// [`Error::Invalid`] holds all faults of the definition.
    pub async fn put_workflow(&self, definition: impl Into<Vec<u8>>) -> Result<PutWorkflowResponse, Error> {
        let message = PutWorkflowRequest { request_id: request_id(), definition: definition.into() };
        self.call(Effect::Write, message, |mut stub, request| async move { stub.put_workflow(request).await })
            .await
    }

    /// The run with its tasks and their attempts.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such run.
    pub async fn get_run(&self, run: u64) -> Result<RunView, Error> {
        self.get_run_with(GetRunRequest { run, ..Default::default() }).await
    }

    /// The run as asked: `brief` is without its tasks, `stale` from the state of the peer asked, which may be behind.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such run.
    pub async fn get_run_with(&self, message: GetRunRequest) -> Result<RunView, Error> {
        self.call(Effect::Read, message, |mut stub, request| async move { stub.get_run(request).await }).await
    }

    /// Runs, newest first, without their tasks; page on with `next_cursor`.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, proto::{ListRunsRequest, RunState}};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let failed = ListRunsRequest { states: vec![RunState::Failed.into()], limit: 20, ..Default::default() };
    /// for run in client.list_runs(failed).await?.runs {
    ///     println!("{}", run.id);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_runs(&self, message: ListRunsRequest) -> Result<ListRunsResponse, Error> {
        self.call(Effect::Read, message, |mut stub, request| async move { stub.list_runs(request).await })
            .await
    }

    /// Waits until the run has ended, over lost nodes and lost connections, and answers with all of it. There is no
    /// deadline: put one around it (`tokio::time::timeout`); dropping it does nothing to the run.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such run, [`Error::Unavailable`] when the servers stay away for longer than
    /// the [patience](Builder::patience).
    pub async fn wait(&self, run: u64) -> Result<RunView, Error> {
        let mut views = self.watch_run(run, true);
        while let Some(view) = views.next().await {
            let state = view?.run.map_or(clawhive_proto::RunState::Unspecified, |row| row.state());
            if has_ended(state) {
                break;
            }
        }
        self.get_run(run).await
    }

    /// Cancels the run: waiting tasks never start, running ones are stopped. Answers before they are. To cancel again,
    /// or a run that has ended, changes nothing and is no error.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such run.
    pub async fn cancel(&self, run: u64, reason: impl Into<String>) -> Result<CancelRunResponse, Error> {
        let message = CancelRunRequest { request_id: request_id(), run, reason: reason.into() };
        self.call(Effect::Write, message, |mut stub, request| async move { stub.cancel_run(request).await })
            .await
    }

    /// The nodes of the cluster.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn nodes(&self) -> Result<Vec<NodeView>, Error> {
        Ok(self.list_nodes(false).await?.nodes)
    }

    /// The nodes of the cluster and how new the answer is; `stale` works without a quorum.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_nodes(&self, stale: bool) -> Result<ListNodesResponse, Error> {
        self.call(Effect::Read, ListNodesRequest { stale }, |mut stub, request| async move {
            stub.list_nodes(request).await
        })
        .await
    }

    /// What the node asked knows of the cluster. Works without a quorum.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when not one node could be reached.
    pub async fn cluster_status(&self) -> Result<ClusterStatusResponse, Error> {
        self.call(Effect::Read, ClusterStatusRequest {}, |mut stub, request| async move {
            stub.cluster_status(request).await
        })
        .await
    }

    /// Sets a key; answers with the log index of the write.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn put_key(
        &self,
        namespace: impl Into<String>,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
    ) -> Result<u64, Error> {
        let message = PutKeyRequest {
            request_id: request_id(),
            namespace: namespace.into(),
            key: key.into(),
            value: value.into().into(),
        };
        let answer = self
            .call(Effect::Write, message, |mut stub, request| async move { stub.put_key(request).await })
            .await?;
        Ok(answer.log_index)
    }

    /// A key's value and the log index that set it; `found` is false when there is none. Linearizable unless `stale`.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_key(&self, message: GetKeyRequest) -> Result<GetKeyResponse, Error> {
        self.call(Effect::Read, message, |mut stub, request| async move { stub.get_key(request).await }).await
    }
}
