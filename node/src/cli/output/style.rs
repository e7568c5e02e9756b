//! Colours and widths of the two output streams.

use std::io::IsTerminal;

use clawhive_proto::{RunState, TaskState};

/// A colour by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Hue {
    Plain,
    Good,
    Bad,
    Busy,
    Odd,
    Dim,
    Bold,
}

impl Hue {
    pub(in crate::cli) fn of_run(state: RunState) -> Self {
        match state {
            RunState::Succeeded => Self::Good,
            RunState::Failed => Self::Bad,
            RunState::Running => Self::Busy,
            RunState::Cancelled | RunState::Paused => Self::Odd,
            RunState::Pending | RunState::Unspecified => Self::Dim,
        }
    }

    pub(in crate::cli) fn of_task(state: TaskState) -> Self {
        match state {
            TaskState::Succeeded => Self::Good,
            TaskState::Failed | TaskState::Quarantined => Self::Bad,
            TaskState::Running | TaskState::Dispatched => Self::Busy,
            TaskState::Retrying | TaskState::UpstreamFailed | TaskState::Cancelled => Self::Odd,
            TaskState::Skipped | TaskState::Pending | TaskState::Ready | TaskState::Unspecified => Self::Dim,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Busy => "36",
            Self::Odd => "33",
            Self::Dim => "2",
            Self::Bold => "1",
        }
    }
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct Stream {
    pub(in crate::cli) terminal: bool,
    pub(in crate::cli) colour: bool,
    pub(in crate::cli) width: usize,
}

impl Stream {
    pub(super) fn stdout() -> Self {
        Self::of(std::io::stdout().is_terminal(), console_width())
    }

    pub(super) fn stderr() -> Self {
        Self::of(std::io::stderr().is_terminal(), console_width())
    }

    /// Neither terminal nor colour.
    #[cfg(test)]
    pub(super) fn plain() -> Self {
        Self { terminal: false, colour: false, width: 80 }
    }

    fn of(terminal: bool, width: usize) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        Self { terminal, colour: terminal && !refused && !dumb, width }
    }

    pub(in crate::cli) fn paint(&self, text: &str, hue: Hue) -> String {
        if !self.colour || hue == Hue::Plain {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", hue.code())
    }

    pub(in crate::cli) fn red(&self, text: &str) -> String {
        self.paint(text, Hue::Bad)
    }

    pub(in crate::cli) fn cyan(&self, text: &str) -> String {
        self.paint(text, Hue::Busy)
    }

    pub(in crate::cli) fn dim(&self, text: &str) -> String {
        self.paint(text, Hue::Dim)
    }
}

/// Columns of the terminal; 80 when there is none.
fn console_width() -> usize {
    comfy_table::Table::new().width().map_or(80, |width| usize::from(width).max(20))
}
