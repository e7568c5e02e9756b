//! The one way to die. Storage traits without errors, the flusher's thread and apply all end here.

use std::sync::OnceLock;

use crate::seams::AbortHook;

/// Remembers the first reason, and calls the abort hook with it once.
pub(crate) struct Fatal {
    hook: AbortHook,
    reason: OnceLock<String>,
}

impl Fatal {
    pub(crate) fn new(hook: AbortHook) -> Fatal {
        Fatal { hook, reason: OnceLock::new() }
    }

    /// Ends the process, as far as the hook does. Callers must still leave nothing wrong behind when it returns.
    pub(crate) fn raise(&self, reason: impl Into<String>) {
        let mut first = false;
        let reason = self.reason.get_or_init(|| {
            first = true;
            reason.into()
        });
        if first {
            tracing::error!(reason, "fatal");
            (self.hook)(reason);
        }
    }

    /// Ends the replica without ending the process. True when nothing had ended it before.
    pub(crate) fn retire(&self, reason: impl Into<String>) -> bool {
        let mut first = false;
        let reason = self.reason.get_or_init(|| {
            first = true;
            reason.into()
        });
        if first {
            tracing::warn!(reason, "this replica takes itself out");
        }
        first
    }

    /// The reason, once raised.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Err once raised: nothing may be published or answered any more.
    pub(crate) fn check(&self) -> std::io::Result<()> {
        match self.reason() {
            None => Ok(()),
            Some(reason) => Err(std::io::Error::other(reason.to_owned())),
        }
    }
}
