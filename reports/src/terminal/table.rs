//! Aligned columns.
//!
//! Not a table crate for terminals: lines of reasons run across all columns under a row, and a cut cell keeps its
//! colour; those crates support only one of the two.

use super::{Paragraph, Style, Tone};
use std::io::{self, Write};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The side to which a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// For text.
    Left,
    /// For figures.
    Right,
}

/// A column.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    title: String,
    align: Align,
    /// The width to which the column may shrink if the table is too wide.
    shrinks_to: Option<usize>,
}

impl Column {
    /// A column of text.
    pub(crate) fn left(title: &str) -> Self {
        Self { title: title.to_owned(), align: Align::Left, shrinks_to: None }
    }

    /// A column of figures.
    pub(crate) fn right(title: &str) -> Self {
        Self { title: title.to_owned(), align: Align::Right, shrinks_to: None }
    }

    /// Lets the column be cut with `…`, down to `least` characters, if the table is too wide.
    pub(crate) fn shrinking(self, least: usize) -> Self {
        Self { shrinks_to: Some(least), ..self }
    }
}

/// A cell; its text is escaped already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// Creates a cell with a tone.
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(Tone::Plain, text)
    }
}

enum Row {
    Cells(Vec<Cell>),
    Note(Paragraph),
}

/// Columns, rows, and notes between rows.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

/// Spaces before the first column and between columns.
const GAP: usize = 2;

impl Table {
    /// Creates a table without rows.
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Appends a row; missing cells are left empty.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row::Cells(cells));
    }

    /// Appends a line across all columns.
    pub(crate) fn note(&mut self, note: Paragraph) {
        self.rows.push(Row::Note(note));
    }

    /// Writes titles and rows.
    pub(crate) fn write(&self, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths(style.width);
        let titles: Vec<_> = self.columns.iter().map(|column| Cell::new(Tone::Dim, column.title.clone())).collect();
        self.write_cells(&titles, &widths, style, out)?;
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.write_cells(cells, &widths, style, out)?,
                Row::Note(note) => note.write(style, out)?,
            }
        }
        Ok(())
    }

    /// The width of every column: that of its widest cell, minus what shrinking columns lose to fit into `limit`.
    fn widths(&self, limit: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<_> = self.columns.iter().map(|column| column.title.width()).collect();
        for row in &self.rows {
            let Row::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.text.width());
            }
        }
        let total = widths.iter().map(|width| width.saturating_add(GAP)).fold(0, usize::saturating_add);
        let mut excess = limit.map_or(0, |limit| total.saturating_sub(limit));
        for (width, column) in widths.iter_mut().zip(&self.columns).rev() {
            let Some(least) = column.shrinks_to else { continue };
            let given = excess.min(width.saturating_sub(least));
            *width -= given;
            excess -= given;
        }
        widths
    }

    fn write_cells(&self, cells: &[Cell], widths: &[usize], style: &Style, out: &mut dyn Write) -> io::Result<()> {
        let mut pending = 0;
        for ((cell, &width), column) in cells.iter().zip(widths).zip(&self.columns) {
            let text = cut(&cell.text, width);
            let space = width.saturating_sub(text.width());
            let (before, after) = if column.align == Align::Left { (0, space) } else { (space, 0) };
            // Spaces are written only before text, so that no line ends in blanks.
            pending += GAP + before;
            if !text.is_empty() {
                write!(out, "{}{}", " ".repeat(pending), style.paint(cell.tone, &text))?;
                pending = 0;
            } else {
                pending += text.width();
            }
            pending += after;
        }
        writeln!(out)
    }
}

/// Cuts `text` to at most `width` columns, with `…` in place of the rest.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let next = used + c.width().unwrap_or(0);
        if next + 1 > width {
            break;
        }
        used = next;
        out.push(c);
    }
    out.push('…');
    out
}
