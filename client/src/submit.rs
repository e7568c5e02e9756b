//! What is submitted, and the calls that submit it. Owns the request id of a submit, which is made with the value and
//! not with the call: a caller that submits the same value again submits the same run.

use clawhive_proto::prost::Message;
use clawhive_proto::submit_result::Result as Answer;
use clawhive_proto::submit_run_request::What;
use clawhive_proto::{SubmitError, SubmitRunRequest, SubmitRunResponse, SubmitRunsRequest};

use crate::call::Effect;
use crate::error::Error;
use crate::{Client, request_id};

/// Submits of one message, at most: by count and by bytes (a message may have 4 MiB).
const MANY: usize = 1_000;
const MANY_BYTES: usize = 3 * 1024 * 1024;

/// A run to be started: of a definition, or of a stored workflow by its name.
///
/// The request id is made here. Keep the value and submit it again after an error, and there will still be one run
/// (within 10 minutes; with an idempotency key within its longer window).
///
/// ```
/// use clawhive_client::Submit;
/// let submit = Submit::workflow("data/nightly-etl")
///     .param("date", "2026-03-01")
///     .idempotency_key("etl:2026-03-01")
///     .label("by", "ops");
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Submit {
    request: SubmitRunRequest,
}

impl Submit {
    /// Starts a run of this YAML or JSON text; the definition is stored on the way.
    pub fn definition(text: impl Into<Vec<u8>>) -> Self {
        Self::of(What::Definition(text.into()))
    }

    /// Starts a run of a stored workflow, named `name` or `namespace/name`.
    pub fn workflow(name: impl Into<String>) -> Self {
        Self::of(What::Workflow(name.into()))
    }

    fn of(what: What) -> Self {
        let request = SubmitRunRequest { request_id: request_id(), what: Some(what), ..Default::default() };
        Self { request }
    }

    /// Of the stored workflow, this version instead of the newest.
    pub fn version(mut self, version: u64) -> Self {
        self.request.version = version;
        self
    }

    /// Gives a parameter its value, as text; it is read by the type that the workflow declares.
    pub fn param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.params.insert(name.into(), value.into());
        self
    }

    /// Gives many parameters their values.
    pub fn params<N: Into<String>, V: Into<String>>(
        mut self,
        params: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        self.request.params.extend(params.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// One run per key: a repeat of the same submit answers with the first run, another one is a conflict.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.request.idempotency_key = key.into();
        self
    }

    /// Marks the run.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.labels.insert(name.into(), value.into());
        self
    }

    /// The request id, 16 bytes.
    pub fn request_id(&self) -> &[u8] {
        &self.request.request_id
    }
}

impl Client {
    /// Starts a run.
    ///
    /// # Errors
    /// See [`Error`]; after one that [may have been applied](Error::may_have_been_applied), submit the same value again.
    pub async fn submit(&self, submit: Submit) -> Result<SubmitRunResponse, Error> {
        self.call(
            Effect::Write,
            submit.request,
            |mut stub, request| async move { stub.submit_run(request).await },
        )
        .await
    }

    /// Starts many runs; the answers are in the order of the submits. Much faster than one by one.
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, Submit};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let days = ["2026-03-01", "2026-03-02"];
    /// let submits = days.map(|day| Submit::workflow("nightly-etl").param("date", day));
    /// for (day, answer) in days.iter().zip(client.submit_many(submits).await?) {
    ///     match answer {
    ///         Ok(submitted) => println!("{day}: run {}", submitted.run),
    ///         Err(error) => eprintln!("{day}: {error}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a whole message failed; those before it may have been applied.
    pub async fn submit_many(
        &self,
        submits: impl IntoIterator<Item = Submit>,
    ) -> Result<Vec<Result<SubmitRunResponse, Error>>, Error> {
        let mut answers = Vec::new();
        for runs in messages(submits.into_iter().map(|submit| submit.request)) {
            let asked = runs.len();
            let before = !answers.is_empty();
            let results = self
                .call(Effect::Write, SubmitRunsRequest { runs }, |mut stub, request| async move {
                    stub.submit_runs(request).await
                })
                .await
                .map_err(|error| error.or_applied(before))?
                .results;
            if results.len() != asked {
                let message = format!("{} answers to {asked} submits", results.len());
                return Err(Error::Internal { message, may_have_been_applied: true });
            }
            answers.extend(results.into_iter().map(|one| match one.result {
                Some(Answer::Run(run)) => Ok(run),
                Some(Answer::Error(SubmitError { message, info })) => {
                    Err(Error::from_info(message, info.unwrap_or_default()))
                }
                None => Err(Error::Internal {
                    message: "an empty answer to a submit".into(),
                    may_have_been_applied: true,
                }),
            }));
        }
        Ok(answers)
    }
}

/// Cuts the submits into messages that fit.
fn messages(submits: impl Iterator<Item = SubmitRunRequest>) -> Vec<Vec<SubmitRunRequest>> {
    let mut all: Vec<Vec<SubmitRunRequest>> = Vec::new();
    let mut bytes = 0;
    for submit in submits {
        let size = submit.encoded_len();
        match all.last_mut() {
            Some(open) if open.len() < MANY && bytes + size <= MANY_BYTES => {
                open.push(submit);
                bytes += size;
            }
            _ => {
                all.push(vec![submit]);
                bytes = size;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_request_id() {
        let submit = Submit::workflow("etl");
        assert_eq!(submit.request_id().len(), 16);
        assert_eq!(submit.clone().request_id(), submit.request_id());
        assert_ne!(Submit::workflow("etl").request_id(), submit.request_id());
    }

    #[test]
    fn many_are_cut_by_count_and_by_size() {
        let small = vec![Submit::workflow("etl").request; 2_500];
        let cut: Vec<usize> = messages(small.into_iter()).iter().map(Vec::len).collect();
        assert_eq!(cut, [1_000, 1_000, 500]);
        let big = vec![Submit::definition(vec![b'x'; 1_400_000]).request; 5];
        let cut: Vec<usize> = messages(big.into_iter()).iter().map(Vec::len).collect();
        assert_eq!(cut, [2, 2, 1]);
        assert!(messages(std::iter::empty()).is_empty());
    }
}
