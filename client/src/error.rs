//! The one error type of the client: variants by what the caller can do. Owns the reading of gRPC statuses.

use std::error::Error as _;
use std::time::Duration;

use clawhive_proto::prost::Message as _;
use clawhive_proto::{Diagnostic, ErrorCode, ErrorInfo, MAX_MESSAGE_BYTES};
use tonic::{Code, Status};

/// Why a call failed, by what the caller can do about it.
///
/// Ask [`Error::may_have_been_applied`] before you repeat a write by hand. The client itself repeats only under the same
/// request id, which is safe.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Change the request. For a definition, `diagnostics` hold all faults with their places.
    #[error("{message}")]
    Invalid {
        /// One line.
        message: String,
        /// All faults of one pass over the definition; empty when it is not about a definition.
        diagnostics: Vec<Diagnostic>,
    },
    /// There is no such thing.
    #[error("{message}")]
    NotFound {
        /// What was not found.
        message: String,
    },
    /// It contradicts what is there, such as an idempotency key with another body.
    #[error("{message}")]
    Conflict {
        /// What contradicts what.
        message: String,
    },
    /// The cluster has no majority; it cannot decide anything until nodes come back.
    #[error("{message}")]
    NoQuorum {
        /// Says how many nodes are reachable.
        message: String,
        /// The write may be in the log of a node and come true with the quorum.
        may_have_been_applied: bool,
    },
    /// No server could be reached, or none would answer.
    #[error("{message}")]
    Unavailable {
        /// Names the servers tried.
        message: String,
        /// A request had been sent when the connection broke.
        may_have_been_applied: bool,
    },
    /// No answer within the deadline.
    #[error("{message}")]
    Timeout {
        /// One line.
        message: String,
        /// The write may be in the log.
        may_have_been_applied: bool,
    },
    /// The request is over the limit of one message; it is never retried.
    #[error("{message}")]
    TooLarge {
        /// One line; names the limit.
        message: String,
        /// In bytes.
        limit: u64,
    },
    /// The caller may not do this.
    #[error("{message}")]
    NotAllowed {
        /// What is not allowed.
        message: String,
    },
    /// The events after the place to go on from are no longer kept. Look at the state anew, then go on from `at`, or start
    /// with what is kept.
    #[error("{message}")]
    Compacted {
        /// One line; names the index.
        message: String,
        /// Events up to this log index are gone.
        at: u64,
    },
    /// A fault of the server, or an answer that makes no sense.
    #[error("{message}")]
    Internal {
        /// One line.
        message: String,
        /// The write may be in the log.
        may_have_been_applied: bool,
    },
}

impl Error {
    /// May a write that failed with this error have happened all the same? Always false for reads.
    pub fn may_have_been_applied(&self) -> bool {
        match self {
            Self::NoQuorum { may_have_been_applied, .. }
            | Self::Unavailable { may_have_been_applied, .. }
            | Self::Timeout { may_have_been_applied, .. }
            | Self::Internal { may_have_been_applied, .. } => *may_have_been_applied,
            _ => false,
        }
    }

    /// The stable short name: `invalid`, `not_found`, `conflict`, `no_quorum`, `unavailable`, `timeout`, `too_large`,
    /// `not_allowed`, `compacted`, `internal`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::NotFound { .. } => "not_found",
            Self::Conflict { .. } => "conflict",
            Self::NoQuorum { .. } => "no_quorum",
            Self::Unavailable { .. } => "unavailable",
            Self::Timeout { .. } => "timeout",
            Self::TooLarge { .. } => "too_large",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Compacted { .. } => "compacted",
            Self::Internal { .. } => "internal",
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), diagnostics: Vec::new() }
    }

    pub(crate) fn timeout(after: Duration) -> Self {
        Self::Timeout { message: format!("no answer within {after:?}"), may_have_been_applied: false }
    }

    pub(crate) fn too_large(bytes: usize) -> Self {
        Self::TooLarge {
            message: format!(
                "the request has {bytes} bytes; the limit of one message is {MAX_MESSAGE_BYTES}"
            ),
            limit: MAX_MESSAGE_BYTES as u64,
        }
    }

    /// The same, with what earlier tries of the same write left open.
    pub(crate) fn or_applied(mut self, maybe: bool) -> Self {
        match &mut self {
            Self::NoQuorum { may_have_been_applied, .. }
            | Self::Unavailable { may_have_been_applied, .. }
            | Self::Timeout { may_have_been_applied, .. }
            | Self::Internal { may_have_been_applied, .. } => *may_have_been_applied |= maybe,
            _ => {}
        }
        self
    }

    /// An answer inside another answer (one of many submits).
    pub(crate) fn from_info(message: String, info: ErrorInfo) -> Self {
        let may_have_been_applied = info.may_have_been_applied;
        match info.code() {
            ErrorCode::Invalid => Self::Invalid { message, diagnostics: info.diagnostics },
            ErrorCode::NotFound => Self::NotFound { message },
            ErrorCode::Conflict => Self::Conflict { message },
            ErrorCode::NoQuorum => Self::NoQuorum { message, may_have_been_applied },
            ErrorCode::Unavailable => Self::Unavailable { message, may_have_been_applied },
            ErrorCode::Timeout => Self::Timeout { message, may_have_been_applied },
            ErrorCode::TooLarge => Self::TooLarge { message, limit: MAX_MESSAGE_BYTES as u64 },
            ErrorCode::NotAllowed => Self::NotAllowed { message },
            ErrorCode::Compacted => Self::Compacted { message, at: info.compacted_at },
            ErrorCode::Internal | ErrorCode::Unspecified => Self::Internal { message, may_have_been_applied },
        }
    }
}

/// Could not one server be reached: is this about the address, rather than about what was asked?
pub fn is_no_server(error: &Error) -> bool {
    matches!(error, Error::Unavailable { .. } | Error::NoQuorum { .. })
}

/// What one failed try means.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Another try, here or elsewhere, may go better.
    pub(crate) retry: bool,
    /// A server was reached.
    pub(crate) reached: bool,
}

impl Failure {
    pub(crate) fn from_status(status: &Status) -> Self {
        // A status with a source was made on this side: the transport failed. Without one it is the server's word.
        if let Some(source) = status.source() {
            return Self::from_transport(status, source);
        }
        let message = status.message().to_owned();
        let info = ErrorInfo::decode(status.details()).ok();
        let error = match info {
            Some(info) if info.code() != ErrorCode::Unspecified => Error::from_info(message, info),
            _ => from_code(status.code(), message),
        };
        let retry =
            matches!(error, Error::Unavailable { .. } | Error::Timeout { .. } | Error::NoQuorum { .. });
        Self { error, retry, reached: true }
    }

    fn from_transport(status: &Status, source: &(dyn std::error::Error + 'static)) -> Self {
        let mut cause = Some(source);
        while let Some(error) = cause {
            if error.is::<tonic::ConnectError>() {
                let message = status.message().to_owned();
                let error = Error::Unavailable { message, may_have_been_applied: false };
                return Self { error, retry: true, reached: false };
            }
            if error.is::<tonic::TimeoutExpired>() {
                return Self::timeout();
            }
            cause = error.source();
        }
        if status.code() == Code::OutOfRange {
            let message = status.message().to_owned();
            let error = Error::Internal { message, may_have_been_applied: true };
            return Self { error, retry: false, reached: true };
        }
        let message = format!("the connection broke: {}", status.message());
        let error = Error::Unavailable { message, may_have_been_applied: true };
        Self { error, retry: true, reached: true }
    }

    /// This try got no answer in its time.
    pub(crate) fn timeout() -> Self {
        let message = "no answer in time".to_owned();
        Self { error: Error::Timeout { message, may_have_been_applied: true }, retry: true, reached: true }
    }
}

/// A status without our details: from a proxy, or from the gRPC library of the server.
fn from_code(code: Code, message: String) -> Error {
    let may_have_been_applied = true;
    match code {
        Code::InvalidArgument | Code::FailedPrecondition => Error::invalid(message),
        Code::NotFound => Error::NotFound { message },
        Code::AlreadyExists | Code::Aborted => Error::Conflict { message },
        Code::Unavailable => Error::Unavailable { message, may_have_been_applied },
        Code::DeadlineExceeded | Code::Cancelled => Error::Timeout { message, may_have_been_applied },
        Code::ResourceExhausted | Code::OutOfRange => {
            Error::TooLarge { message, limit: MAX_MESSAGE_BYTES as u64 }
        }
        Code::PermissionDenied | Code::Unauthenticated => Error::NotAllowed { message },
        Code::Unimplemented => Error::Internal {
            message: format!("the server does not know this call; is it a clawhive server? {message}"),
            may_have_been_applied: false,
        },
        _ => Error::Internal { message, may_have_been_applied },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_of_a_status_decide() {
        let diagnostics = vec![Diagnostic { code: "cycle".into(), line: 3, ..Default::default() }];
        let info = ErrorInfo {
            code: ErrorCode::Invalid.into(),
            may_have_been_applied: false,
            diagnostics: diagnostics.clone(),
            ..ErrorInfo::default()
        };
        let status = Status::with_details(Code::Internal, "1 problem", info.encode_to_vec().into());
        let failure = Failure::from_status(&status);
        assert!(!failure.retry);
        assert_eq!(failure.error, Error::Invalid { message: "1 problem".into(), diagnostics });
        assert_eq!(failure.error.code(), "invalid");
    }

    #[test]
    fn statuses_without_details_are_read_by_their_code() {
        for (code, name, retry, maybe) in [
            (Code::NotFound, "not_found", false, false),
            (Code::AlreadyExists, "conflict", false, false),
            (Code::Unavailable, "unavailable", true, true),
            (Code::DeadlineExceeded, "timeout", true, true),
            (Code::OutOfRange, "too_large", false, false),
            (Code::Unauthenticated, "not_allowed", false, false),
            (Code::Unknown, "internal", false, true),
        ] {
            let failure = Failure::from_status(&Status::new(code, "x"));
            assert_eq!(failure.error.code(), name);
            assert_eq!(failure.retry, retry, "{name}");
            assert_eq!(failure.error.may_have_been_applied(), maybe, "{name}");
        }
    }

    #[test]
    fn earlier_tries_are_not_forgotten() {
        let refused = Error::Unavailable { message: "refused".into(), may_have_been_applied: false };
        assert!(!refused.clone().or_applied(false).may_have_been_applied());
        assert!(refused.or_applied(true).may_have_been_applied());
        let definite = Error::Conflict { message: "key".into() };
        assert!(!definite.or_applied(true).may_have_been_applied());
    }
}
