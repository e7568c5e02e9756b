//! Aligned columns without borders, for a terminal and for a pipe.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, Color, ContentArrangement};

use super::style::{Hue, Stream};

/// Rows under a heading.
#[derive(Debug)]
pub(in crate::cli) struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<(String, Hue)>>,
}

impl Table {
    pub(in crate::cli) fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    pub(in crate::cli) fn row(&mut self, cells: impl IntoIterator<Item = (String, Hue)>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(in crate::cli) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One line per row, never wrapped; no line ends in blanks.
    pub(in crate::cli) fn text(&self, stream: Stream) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.force_no_tty().style_text_only();
        if stream.colour {
            table.enforce_styling();
        }
        table.set_header(self.heading.iter().map(|name| cell(name, Hue::Dim)));
        for row in &self.rows {
            table.add_row(row.iter().map(|(text, hue)| cell(text, *hue)));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let mut text = table.trim_fmt();
        text.push('\n');
        text
    }
}

fn cell(text: &str, hue: Hue) -> Cell {
    let cell = Cell::new(text);
    match hue {
        Hue::Plain => cell,
        Hue::Good => cell.fg(Color::DarkGreen),
        Hue::Bad => cell.fg(Color::DarkRed),
        Hue::Busy => cell.fg(Color::DarkCyan),
        Hue::Odd => cell.fg(Color::DarkYellow),
        Hue::Dim => cell.add_attribute(Attribute::Dim),
        Hue::Bold => cell.add_attribute(Attribute::Bold),
    }
}
