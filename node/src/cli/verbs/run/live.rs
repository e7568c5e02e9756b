//! The board on a terminal, redrawn in place; or as lines when standard error is a pipe.

use clawhive_proto::EventView;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::board::{Board, Kept};
use crate::cli::output::{Hue, Stream, duration, now_ms};

/// Running tasks shown by name.
const ROWS: usize = 8;
/// Up to this many tasks, also the ones that succeeded stay on the terminal as a line.
const SMALL: u32 = 30;

/// Shows a board while it changes.
pub(super) struct Screen {
    board: Board,
    stream: Stream,
    /// Someone is to be told.
    talks: bool,
    live: Option<Live>,
}

struct Live {
    all: MultiProgress,
    head: ProgressBar,
    rows: Vec<ProgressBar>,
}

impl Screen {
    pub(super) fn new(board: Board, stream: Stream, talks: bool) -> Self {
        let live = (talks && stream.terminal).then(|| Live::new(&board));
        Self { board, stream, talks, live }
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    pub(super) fn take(&mut self, event: &EventView) {
        let Some(kept) = self.board.take(event) else { return };
        if !self.talks {
            return;
        }
        match &self.live {
            None => self.say(&plain(&kept, &self.board)),
            Some(_) => {
                let quiet =
                    kept.ended && matches!(kept.word.as_str(), "succeeded" | "upstream_failed" | "cancelled");
                if !quiet || self.board.total <= SMALL {
                    self.say(&coloured(&kept, self.stream));
                }
            }
        }
    }

    /// Prints a line that stays.
    pub(super) fn say(&self, text: &str) {
        match &self.live {
            // A terminal that takes no more lines has nobody in front of it.
            Some(live) => drop(live.all.println(text)),
            None => eprintln!("{text}"),
        }
    }

    pub(super) fn draw(&mut self) {
        if let Some(live) = &mut self.live {
            live.draw(&self.board, self.stream, now_ms());
        }
    }

    /// Takes what moves off the terminal.
    pub(super) fn clear(&mut self) {
        if let Some(live) = self.live.take() {
            // As above.
            let _ = live.all.clear();
        }
    }
}

impl Live {
    fn new(board: &Board) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(15));
        let head = all.add(ProgressBar::new(board.total.into()));
        head.set_style(style("{bar:24.cyan/dim} {pos}/{len}  {wide_msg}").progress_chars("━━╌"));
        Self { all, head, rows: Vec::new() }
    }

    fn draw(&mut self, board: &Board, stream: Stream, now_ms: u64) {
        self.head.set_position(board.done());
        self.head.set_message(headline(board, stream, now_ms));
        let lines = rows(board, stream, now_ms);
        while self.rows.len() > lines.len() {
            if let Some(row) = self.rows.pop() {
                self.all.remove(&row);
            }
        }
        while self.rows.len() < lines.len() {
            let row = self.all.add(ProgressBar::new_spinner());
            row.set_style(style("  {spinner:.cyan} {wide_msg}").tick_chars("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ "));
            self.rows.push(row);
        }
        for (row, line) in self.rows.iter().zip(lines) {
            row.set_message(line);
            row.tick();
        }
    }
}

/// The templates are ours and are tried by a test; a default would still be readable.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn headline(board: &Board, stream: Stream, now_ms: u64) -> String {
    let mut parts = Vec::new();
    if !board.running.is_empty() {
        parts.push(stream.cyan(&format!("{} running", board.running.len())));
    }
    let failed = board.count("failed");
    if failed > 0 {
        parts.push(stream.red(&format!("{failed} failed")));
    }
    if board.started_ms > 0 {
        parts.push(stream.dim(&duration(now_ms.saturating_sub(board.started_ms))));
    }
    parts.join("  ")
}

/// The tasks that run for longest, and how many there are besides.
fn rows(board: &Board, stream: Stream, now_ms: u64) -> Vec<String> {
    let mut running: Vec<_> = board.running.iter().collect();
    running.sort_by_key(|(name, running)| (running.since_ms, *name));
    let mut lines: Vec<String> = (running.iter().take(ROWS))
        .map(|(name, running)| {
            // The time first: a long name may be cut.
            let took = stream.dim(&format!("{:>6}", duration(now_ms.saturating_sub(running.since_ms))));
            match running.attempt {
                0 | 1 => format!("{took}  {name}"),
                attempt => format!("{took}  {name}  attempt {attempt}"),
            }
        })
        .collect();
    if running.len() > ROWS {
        lines.push(stream.dim(&format!("and {} more", running.len() - ROWS)));
    }
    lines
}

fn coloured(kept: &Kept, stream: Stream) -> String {
    let sign = match (kept.hue, kept.ended) {
        (Hue::Good, _) => "✓",
        (Hue::Bad, _) => "✗",
        (_, false) => "↻",
        _ => "-",
    };
    let word =
        if kept.hue == Hue::Good { String::new() } else { format!("  {}", kept.word.replace('_', " ")) };
    let rest = if kept.rest.is_empty() { String::new() } else { format!("  {}", stream.dim(&kept.rest)) };
    format!("{} {}{word}{rest}", stream.paint(sign, kept.hue), kept.task)
}

/// `succeeded  count-a  340ms  [3/14]`.
fn plain(kept: &Kept, board: &Board) -> String {
    let rest = if kept.rest.is_empty() { String::new() } else { format!("  {}", kept.rest) };
    format!("{:<10} {}{rest}  [{}/{}]", kept.word, kept.task, board.done(), board.total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::{Format, Output};

    fn running(board: &mut Board, task: &str, time_ms: u64, attempt: u32) {
        let (kind, task) = ("task_running".into(), task.into());
        board.take(&EventView { time_ms, kind, task, attempt, ..Default::default() });
    }

    #[test]
    fn the_longest_running_tasks_are_shown() {
        let mut board = Board::new(1, 1_004);
        for n in 0..12 {
            running(&mut board, &format!("t{n:02}"), 1_000 + (11 - n) * 100, 1 + (n == 11) as u32);
        }
        let stream = Output::plain(Format::Table).stderr;
        let lines = rows(&board, stream, 4_000);
        assert_eq!(lines.len(), ROWS + 1);
        assert_eq!(lines[0], "  3.0s  t11  attempt 2");
        assert_eq!(lines[1], "  2.9s  t10");
        assert_eq!(lines[ROWS], "and 4 more");
        assert_eq!(headline(&board, stream, 4_000), "12 running  1.9s");
    }

    #[test]
    fn templates_are_valid() {
        for template in ["{bar:24.cyan/dim} {pos}/{len}  {wide_msg}", "  {spinner:.cyan} {wide_msg}"] {
            ProgressStyle::with_template(template).unwrap();
        }
    }

    #[test]
    fn a_line_tells_how_far_it_is() {
        let mut board = Board::new(1, 14);
        running(&mut board, "a", 1_000, 1);
        let event = EventView {
            time_ms: 1_340,
            kind: "task_succeeded".into(),
            task: "a".into(),
            ..Default::default()
        };
        let kept = board.take(&event).unwrap();
        assert_eq!(plain(&kept, &board), "succeeded  a  340ms  [1/14]");
        assert_eq!(coloured(&kept, Output::plain(Format::Table).stderr), "✓ a  340ms");
    }
}
