//! Errors as clients see them: a gRPC status whose details hold an encoded `ErrorInfo`.

use clawhive_proto::prost::Message;
use clawhive_proto::{
    Diagnostic, ErrorCode, ErrorInfo, MAX_MESSAGE_BYTES, Rejection, RejectionCode, SubmitError,
};
use clawhive_raft::{ProposeError, ReadError};
use tonic::{Code, Status};

/// Details travel in a header, and the usual limit of all headers together is 16 KiB, after base64.
const MAX_DETAIL_BYTES: usize = 8 * 1024;

/// As much of a message as fits in a header beside the details.
const MAX_MESSAGE: usize = 1_000;

/// An error of the API, before it is a status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    code: ErrorCode,
    message: String,
    may_have_been_applied: bool,
    diagnostics: Vec<Diagnostic>,
    compacted_at: u64,
}

impl ApiError {
    fn new(code: ErrorCode, message: impl Into<String>) -> ApiError {
        ApiError {
            code,
            message: message.into(),
            may_have_been_applied: false,
            diagnostics: Vec::new(),
            compacted_at: 0,
        }
    }

    /// Change the request.
    pub(crate) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorCode::Invalid, message)
    }

    /// There is no such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorCode::NotFound, message)
    }

    /// Not now, not here.
    pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(ErrorCode::Unavailable, message)
    }

    /// A fault of this server.
    pub(crate) fn internal(message: impl Into<String>) -> ApiError {
        ApiError { may_have_been_applied: true, ..ApiError::new(ErrorCode::Internal, message) }
    }

    /// Events after the place to go on from are gone.
    pub(crate) fn compacted(at: u64) -> ApiError {
        let message = format!("compacted at {at}: events up to this log index are no longer kept");
        ApiError { compacted_at: at, ..ApiError::new(ErrorCode::Compacted, message) }
    }

    /// Over the limit of one message.
    pub(crate) fn too_large(what: &str, bytes: usize) -> ApiError {
        let message =
            format!("{what} has {bytes} bytes; the limit of one message is {MAX_MESSAGE_BYTES} bytes");
        ApiError::new(ErrorCode::TooLarge, message)
    }

    /// A definition with all that is wrong with it.
    pub(crate) fn definition(diagnostics: Vec<Diagnostic>, omitted: usize) -> ApiError {
        let count = diagnostics.len() + omitted;
        let message = match diagnostics.as_slice() {
            [one] => format!("the definition is refused: {}", place(one)),
            [first, ..] => {
                format!("the definition is refused: {} problems, the first: {}", count, place(first))
            }
            [] => "the definition is refused".to_owned(),
        };
        ApiError { diagnostics, ..ApiError::invalid(message) }
    }

    /// As one of many answers.
    pub(crate) fn into_submit_error(self) -> SubmitError {
        SubmitError { message: self.message.clone(), info: Some(self.info()) }
    }

    fn info(self) -> ErrorInfo {
        ErrorInfo {
            code: self.code.into(),
            may_have_been_applied: self.may_have_been_applied,
            diagnostics: self.diagnostics,
            compacted_at: self.compacted_at,
        }
    }
}

fn place(diagnostic: &Diagnostic) -> String {
    match diagnostic.line {
        0 => diagnostic.message.clone(),
        line => format!("{line}:{}: {}", diagnostic.column, diagnostic.message),
    }
}

impl From<ApiError> for Status {
    fn from(error: ApiError) -> Status {
        let code = match error.code {
            ErrorCode::Invalid => Code::InvalidArgument,
            ErrorCode::NotFound => Code::NotFound,
            ErrorCode::Conflict => Code::AlreadyExists,
            ErrorCode::NoQuorum | ErrorCode::Unavailable => Code::Unavailable,
            ErrorCode::Timeout => Code::DeadlineExceeded,
            ErrorCode::TooLarge => Code::ResourceExhausted,
            ErrorCode::NotAllowed => Code::PermissionDenied,
            ErrorCode::Compacted => Code::OutOfRange,
            ErrorCode::Internal | ErrorCode::Unspecified => Code::Internal,
        };
        let mut message = shortened(&error.message);
        let mut info = error.info();
        let mut left_out = 0;
        while info.encoded_len() > MAX_DETAIL_BYTES && info.diagnostics.pop().is_some() {
            left_out += 1;
        }
        if left_out > 0 {
            message.push_str(&format!(" ({left_out} more problems are left out here)"));
        }
        Status::with_details(code, message, info.encode_to_vec().into())
    }
}

fn shortened(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MAX_MESSAGE);
    format!("{}…", &message[..end])
}

impl From<ProposeError> for ApiError {
    fn from(error: ProposeError) -> ApiError {
        let code = match &error {
            ProposeError::NoQuorum { .. } => ErrorCode::NoQuorum,
            ProposeError::Timeout { .. } => ErrorCode::Timeout,
            ProposeError::NotYet(_) => ErrorCode::Conflict,
            ProposeError::TooLarge { bytes, .. } => return ApiError::too_large("the write", *bytes),
            ProposeError::NotLeader { .. }
            | ProposeError::LeaderLost
            | ProposeError::NoCluster
            | ProposeError::Shutdown { .. } => ErrorCode::Unavailable,
        };
        let may_have_been_applied = error.may_have_been_applied();
        ApiError { may_have_been_applied, ..ApiError::new(code, error.to_string()) }
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> ApiError {
        let code = match error {
            ReadError::NoQuorum { .. } => ErrorCode::NoQuorum,
            ReadError::Timeout => ErrorCode::Timeout,
            ReadError::NoCluster | ReadError::Shutdown => ErrorCode::Unavailable,
        };
        ApiError::new(code, error.to_string())
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> ApiError {
        let code = match rejection.code() {
            RejectionCode::NotFound => ErrorCode::NotFound,
            RejectionCode::Invalid => ErrorCode::Invalid,
            RejectionCode::Conflict
            | RejectionCode::StaleFence
            | RejectionCode::WrongState
            | RejectionCode::Renewed
            | RejectionCode::LockHeld
            | RejectionCode::LockLost
            | RejectionCode::NoSlot => ErrorCode::Conflict,
            RejectionCode::UnknownClaw => ErrorCode::NotFound,
            RejectionCode::NotYet => ErrorCode::Conflict,
            RejectionCode::Unspecified => ErrorCode::Internal,
        };
        ApiError::new(code, rejection.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_diagnostics_fit_into_a_header() {
        let one = |line| Diagnostic {
            code: "unknown-key".into(),
            message: "x".repeat(200),
            line,
            ..Default::default()
        };
        let status = Status::from(ApiError::definition((1..=100).map(one).collect(), 0));
        let info = ErrorInfo::decode(status.details()).unwrap();
        assert!(status.details().len() <= MAX_DETAIL_BYTES);
        assert!(info.diagnostics.len() > 20 && info.diagnostics[0].line == 1);
        let left_out = 100 - info.diagnostics.len();
        assert!(status.message().ends_with(&format!("({left_out} more problems are left out here)")));
        assert!(status.message().starts_with("the definition is refused: 100 problems, the first: 1:0: xxx"));
    }

    #[test]
    fn no_quorum_says_how_many_and_what_may_have_happened() {
        let error = ProposeError::NoQuorum { reachable: 1, voters: 3, may_have_been_applied: true };
        let status = Status::from(ApiError::from(error));
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "no quorum: 1 of 3 reachable"));
        let info = ErrorInfo::decode(status.details()).unwrap();
        assert!(info.may_have_been_applied && info.code() == ErrorCode::NoQuorum);
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let status = Status::from(ApiError::invalid("é".repeat(2_000)));
        assert!(status.message().len() < 1_010 && status.message().ends_with('…'));
    }
}
