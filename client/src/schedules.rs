//! The calls about schedules. A schedule is named `[namespace/]workflow[:schedule]`.

use clawhive_proto::{
    GetScheduleRequest, ListSchedulesRequest, ListSchedulesResponse, PauseScheduleRequest, ScheduleView,
    SubmitRunResponse, TriggerScheduleRequest,
};

use crate::call::Effect;
use crate::error::Error;
use crate::{Client, request_id};

impl Client {
    /// All schedules of the cluster, or of one namespace.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_schedules(
        &self,
        message: ListSchedulesRequest,
    ) -> Result<ListSchedulesResponse, Error> {
        self.call(
            Effect::Read,
            message,
            |mut stub, request| async move { stub.list_schedules(request).await },
        )
        .await
    }

    /// A schedule, with at most so many records of what became of its occurrences, newest first.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such schedule.
    pub async fn get_schedule(
        &self,
        schedule: impl Into<String>,
        occurrences: u32,
    ) -> Result<ScheduleView, Error> {
        let message = GetScheduleRequest { schedule: schedule.into(), occurrences, stale: false };
        self.call(Effect::Read, message, |mut stub, request| async move { stub.get_schedule(request).await })
            .await
    }

    /// Makes a run of a schedule now. It is no occurrence of it.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// match client.trigger_schedule("data/nightly-etl", [("limit", "10")], false).await {
    ///     Ok(submitted) => println!("run {}", submitted.run),
    ///     Err(Error::Conflict { message }) => eprintln!("not now: {message}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] when its overlap policy is to skip, an earlier run has not ended, and it is not forced.
    pub async fn trigger_schedule<N: Into<String>, V: Into<String>>(
        &self,
        schedule: impl Into<String>,
        params: impl IntoIterator<Item = (N, V)>,
        force: bool,
    ) -> Result<SubmitRunResponse, Error> {
        let params = params.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let schedule = schedule.into();
        let message = TriggerScheduleRequest { request_id: request_id(), schedule, force, params };
        self.call(
            Effect::Write,
            message,
            |mut stub, request| async move { stub.trigger_schedule(request).await },
        )
        .await
    }

    /// Pauses a schedule, or resumes one that is paused or suspended. To do it again changes nothing.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such schedule.
    pub async fn pause_schedule(
        &self,
        schedule: impl Into<String>,
        paused: bool,
        reason: impl Into<String>,
    ) -> Result<ScheduleView, Error> {
        let (schedule, reason) = (schedule.into(), reason.into());
        let message = PauseScheduleRequest { request_id: request_id(), schedule, paused, reason };
        self.call(
            Effect::Write,
            message,
            |mut stub, request| async move { stub.pause_schedule(request).await },
        )
        .await
    }
}
