//! Backups, digests of the states of all nodes, and the end of a restored cluster's rest.

use clawhive_proto::{
    CheckDigestsRequest, CheckDigestsResponse, ResumeClusterRequest, SaveSnapshotRequest, SnapshotChunk,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::timeout;
use tonic::Request;

use crate::call::{Effect, Tries};
use crate::error::{Error, Failure};
use crate::{Client, request_id};

/// The bytes of a snapshot. The first chunk has none: it says how many there are.
pub type SnapshotStream = BoxStream<'static, Result<SnapshotChunk, Error>>;

impl Client {
    /// A snapshot of the whole state, with everything that was acknowledged before this call, made by one of the servers.
    /// One that breaks off is worth nothing: begin again. Check what has come with the checksum at its end.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// use futures::StreamExt;
    /// let mut chunks = client.save_snapshot().await?;
    /// while let Some(chunk) = chunks.next().await {
    ///     println!("{} bytes", chunk?.data.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn save_snapshot(&self) -> Result<SnapshotStream, Error> {
        let endpoints = &self.inner.endpoints;
        let mut tries = Tries::new(self, Effect::Read);
        loop {
            let peer = tries.peer;
            let mut stub = endpoints.stub(peer);
            let opening = stub.save_snapshot(Request::new(SaveSnapshotRequest {}));
            let failure = match timeout(tries.budget(), opening).await {
                Ok(Ok(chunks)) => {
                    endpoints.prefer(peer);
                    let chunks = chunks.into_inner();
                    return Ok(chunks
                        .map(|chunk| chunk.map_err(|status| Failure::from_status(&status).error))
                        .boxed());
                }
                Ok(Err(status)) => Failure::from_status(&status),
                Err(_) => Failure::timeout(),
            };
            tries.failed(failure).await?;
        }
    }

    /// Takes the digest of the state of every node, right after one and the same log entry.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn check_digests(&self) -> Result<CheckDigestsResponse, Error> {
        let message = CheckDigestsRequest { request_id: request_id() };
        self.call(
            Effect::Write,
            message,
            |mut stub, request| async move { stub.check_digests(request).await },
        )
        .await
    }

    /// Lets a cluster that was restored of a snapshot start tasks; false when it may already.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resume_cluster(&self) -> Result<bool, Error> {
        let message = ResumeClusterRequest { request_id: request_id() };
        let answer =
            self.call(Effect::Write, message, |mut stub, request| async move {
                stub.resume_cluster(request).await
            })
            .await?;
        Ok(answer.resumed)
    }
}
