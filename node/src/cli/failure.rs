//! How a verb ends: exit codes, and failures as one clear line with a hint, or as one document.

use clawhive_client::Error;
use clawhive_node::StartError;
use clawhive_node::identity::IdentityError;
use clawhive_proto::{Diagnostic, Reason, RunRow, RunState};
use serde_json::{Map, Value, json};

use super::output::{Format, Output, diagnostic_json};

/// The exit codes of client verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Exit {
    Done = 0,
    RunFailed = 1,
    Usage = 2,
    Cancelled = 3,
    TimedOut = 4,
    NotFound = 5,
    Conflict = 6,
    NoServer = 7,
    NotAllowed = 8,
    Unexpected = 9,
}

impl Exit {
    /// By the outcome of a run that has ended.
    pub(super) fn of_run(row: &RunRow) -> Self {
        match (row.state(), row.reason()) {
            (RunState::Succeeded, _) => Self::Done,
            (RunState::Cancelled, _) => Self::Cancelled,
            (_, Reason::RunTimeout) => Self::TimedOut,
            _ => Self::RunFailed,
        }
    }
}

/// Why a verb did not do what it was asked for.
#[derive(Debug, Clone)]
pub(super) struct Failure(Box<Told>);

#[derive(Debug, Clone)]
struct Told {
    exit: Exit,
    /// Stable short name.
    code: &'static str,
    message: String,
    hint: Option<String>,
    may_have_been_applied: bool,
    diagnostics: Vec<Diagnostic>,
    /// Instead of that of `exit`.
    exit_code: Option<u8>,
    /// For people, instead of the message.
    rendered: Option<String>,
    /// More fields of the document.
    fields: Map<String, Value>,
}

impl Failure {
    pub(super) fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Told {
            exit,
            code,
            message: message.into(),
            hint: None,
            may_have_been_applied: false,
            diagnostics: Vec::new(),
            exit_code: None,
            rendered: None,
            fields: Map::new(),
        }))
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    pub(super) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(Exit::Unexpected, "internal", message)
    }

    pub(super) fn no_server(message: impl Into<String>) -> Self {
        Self::new(Exit::NoServer, "unavailable", message)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(super) fn with(mut self, field: &str, value: Value) -> Self {
        self.0.fields.insert(field.to_owned(), value);
        self
    }

    /// Ends with a code of its own, as a shell would that cannot run a command.
    pub(super) fn exit_code(mut self, code: u8) -> Self {
        self.0.exit_code = Some(code);
        self
    }

    /// A refused definition, with its faults drawn for people.
    pub(super) fn refused(message: String, diagnostics: Vec<Diagnostic>, rendered: String) -> Self {
        let mut failure = Self::new(Exit::Usage, "invalid", message);
        failure.0.diagnostics = diagnostics;
        failure.0.rendered = Some(rendered);
        failure
    }

    /// Whoever read our output has gone away; there is nobody to tell anything.
    pub(super) fn output_closed() -> Self {
        Self::new(Exit::Done, "closed", "")
    }

    /// The faults of a definition that a server has refused.
    pub(super) fn diagnostics(&self) -> &[Diagnostic] {
        &self.0.diagnostics
    }

    pub(super) fn is_no_server(&self) -> bool {
        self.0.code == "unavailable"
    }

    /// Tells it, in the format asked for; answers with the exit code.
    pub(super) fn tell(&self, output: &Output) -> u8 {
        if self.0.code != "closed" {
            if output.format != Format::Table {
                // Nowhere to say that nothing can be said.
                let _ = output.document(&self.document());
            }
            if output.format == Format::Table || output.stderr.terminal {
                eprint!("{}", self.text(output));
            }
        }
        self.0.exit_code.unwrap_or(self.0.exit as u8)
    }

    pub(super) fn document(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".into(), json!(self.0.code));
        error.insert("message".into(), json!(self.0.message));
        error.insert("may_have_been_applied".into(), json!(self.0.may_have_been_applied));
        if let Some(hint) = &self.0.hint {
            error.insert("hint".into(), json!(hint));
        }
        if !self.0.diagnostics.is_empty() {
            error.insert("diagnostics".into(), self.0.diagnostics.iter().map(diagnostic_json).collect());
        }
        error.extend(self.0.fields.clone());
        json!({ "error": error })
    }

    fn text(&self, output: &Output) -> String {
        let mut text = match &self.0.rendered {
            Some(rendered) => rendered.clone(),
            None => format!("{} {}\n", output.stderr.red("error:"), self.0.message),
        };
        if self.0.may_have_been_applied {
            text.push_str("       it may have happened all the same\n");
        }
        if let Some(hint) = &self.0.hint {
            text.push_str(&format!("{} {hint}\n", output.stderr.cyan("hint:")));
        }
        text
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, hint) = match &error {
            Error::Invalid { .. } | Error::TooLarge { .. } => (Exit::Usage, None),
            Error::NotFound { .. } => (Exit::NotFound, Some("`clawhive ls` lists the runs that there are")),
            Error::Conflict { .. } => (Exit::Conflict, None),
            Error::NoQuorum { .. } => {
                (Exit::NoServer, Some("`clawhive cluster status` shows which nodes are down"))
            }
            Error::Unavailable { .. } => {
                (Exit::NoServer, Some("is it running, and does --server or CLAWHIVE_SERVER name it?"))
            }
            Error::Timeout { .. } => (Exit::NoServer, None),
            Error::NotAllowed { .. } => (Exit::NotAllowed, None),
            Error::Compacted { .. } => {
                (Exit::NotFound, Some("without --after it begins with the oldest event that is kept"))
            }
            _ => (Exit::Unexpected, None),
        };
        let mut failure = Self::new(exit, error.code(), error.to_string());
        failure.0.may_have_been_applied = error.may_have_been_applied();
        failure.0.hint = hint.map(str::to_owned);
        match error {
            Error::Invalid { diagnostics, .. } => {
                failure.0.diagnostics = diagnostics;
                failure
            }
            Error::TooLarge { limit, .. } => failure.with("limit", json!(limit)),
            Error::Compacted { at, .. } => failure.with("compacted_at", json!(at.to_string())),
            _ => failure,
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let exit = match &error {
            StartError::Config(_) | StartError::NotEmpty { .. } | StartError::Empty { .. } => Exit::Usage,
            StartError::Data(IdentityError::InUse { .. })
            | StartError::Listen { .. }
            | StartError::OtherCluster { .. } => Exit::Conflict,
            StartError::Join(_) => Exit::NoServer,
            _ => Exit::Unexpected,
        };
        let code = match exit {
            Exit::Usage => "invalid",
            Exit::Conflict => "conflict",
            Exit::NoServer => "unavailable",
            _ => "internal",
        };
        Self::new(exit, code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn exit(error: Error) -> u8 {
        Failure::from(error).0.exit as u8
    }

    #[test]
    fn each_error_has_its_exit_code() {
        let message = String::new;
        let maybe = false;
        assert_eq!(exit(Error::Invalid { message: message(), diagnostics: vec![] }), 2);
        assert_eq!(exit(Error::TooLarge { message: message(), limit: 1 }), 2);
        assert_eq!(exit(Error::NotFound { message: message() }), 5);
        assert_eq!(exit(Error::Conflict { message: message() }), 6);
        assert_eq!(exit(Error::NoQuorum { message: message(), may_have_been_applied: maybe }), 7);
        assert_eq!(exit(Error::Unavailable { message: message(), may_have_been_applied: maybe }), 7);
        assert_eq!(exit(Error::Timeout { message: message(), may_have_been_applied: maybe }), 7);
        assert_eq!(exit(Error::NotAllowed { message: message() }), 8);
        assert_eq!(exit(Error::Internal { message: message(), may_have_been_applied: maybe }), 9);
    }

    #[test]
    fn each_outcome_has_its_exit_code() {
        let of = |state: RunState, reason: Reason| {
            Exit::of_run(&RunRow { state: state.into(), reason: reason.into(), ..Default::default() }) as u8
        };
        assert_eq!(of(RunState::Succeeded, Reason::Unspecified), 0);
        assert_eq!(of(RunState::Failed, Reason::TaskFailed), 1);
        assert_eq!(of(RunState::Cancelled, Reason::Cancelled), 3);
        assert_eq!(of(RunState::Failed, Reason::RunTimeout), 4);
    }

    #[test]
    fn a_failure_is_a_line_and_a_hint_or_a_document() {
        let failure = Failure::from(Error::NoQuorum {
            message: "no quorum: 1 of 3 reachable".into(),
            may_have_been_applied: true,
        });
        expect![[r"
            error: no quorum: 1 of 3 reachable
                   it may have happened all the same
            hint: `clawhive cluster status` shows which nodes are down
        "]]
        .assert_eq(&failure.text(&Output::plain(Format::Table)));
        expect![[r#"{"error":{"code":"no_quorum","message":"no quorum: 1 of 3 reachable","may_have_been_applied":true,"hint":"`clawhive cluster status` shows which nodes are down"}}"#]]
        .assert_eq(&failure.document().to_string());
    }
}
