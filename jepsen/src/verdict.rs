//! How every verb of this tool ends.

use std::process::ExitCode;

/// The verdict of a run; a pass means that something could have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything promised was kept.
    Valid,
    /// A promise was broken.
    Invalid,
    /// The checker could not tell.
    Unknown,
    /// Nothing could have failed: no operation succeeded, or a fault that was asked for did not take effect.
    Vacuous,
}

impl Exit {
    /// The exit code: 0 valid, 1 invalid, 2 unknown, 3 vacuous.
    pub const fn code(self) -> u8 {
        match self {
            Exit::Valid => 0,
            Exit::Invalid => 1,
            Exit::Unknown => 2,
            Exit::Vacuous => 3,
        }
    }

    /// As the report prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Exit::Valid => "valid",
            Exit::Invalid => "invalid",
            Exit::Unknown => "unknown",
            Exit::Vacuous => "vacuous",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
