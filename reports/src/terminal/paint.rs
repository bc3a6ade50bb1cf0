//! Width, colours, and prose that wraps between its parts.

use crate::escape::shown;
use crate::figures::is_unit;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr as _;

/// Column in which the text after a label starts.
pub(super) const INDENT: usize = 10;

/// How to write for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Columns of the terminal; `None` if there is none, and nothing is wrapped or cut.
    pub width: Option<usize>,
    /// Whether to use colours.
    pub colors: bool,
}

/// The meaning of a piece of text; its colour only repeats the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// A heading.
    Strong,
    /// Less important.
    Dim,
    /// As expected.
    Good,
    /// Needs attention.
    Warn,
    /// Wrong.
    Bad,
}

impl Style {
    /// `text` in the colour of `tone`.
    pub(crate) fn paint(&self, tone: Tone, text: &str) -> String {
        use anstyle::{AnsiColor, Style as Ansi};
        let ansi = match tone {
            Tone::Strong => Ansi::new().bold(),
            Tone::Dim => Ansi::new().dimmed(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Warn => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default().bold(),
            Tone::Plain => return text.to_owned(),
        };
        if !self.colors || text.is_empty() {
            return text.to_owned();
        }
        format!("{ansi}{text}{ansi:#}")
    }

    /// Writes a heading with a blank line before it.
    pub(crate) fn heading(&self, text: &str, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n{}", self.paint(Tone::Strong, text))
    }

    /// Writes warnings under a heading, if there are any.
    pub(crate) fn warnings(&self, warnings: &[String], out: &mut dyn Write) -> io::Result<()> {
        if warnings.is_empty() {
            return Ok(());
        }
        self.heading("Warnings", out)?;
        self.list_warnings(warnings, out)
    }

    /// Writes warnings.
    pub(crate) fn list_warnings(&self, warnings: &[String], out: &mut dyn Write) -> io::Result<()> {
        for text in warnings {
            let mut line = Paragraph::new("  !", 4);
            line.words(Tone::Warn, &shown(text));
            line.write(self, out)?;
        }
        Ok(())
    }
}

/// A label and parts on one line, or on several with a hanging indent if they exceed the width.
#[derive(Debug, Default)]
pub(crate) struct Paragraph {
    label: String,
    indent: usize,
    parts: Vec<(Tone, String)>,
}

impl Paragraph {
    /// Creates a paragraph whose parts start in column `indent`.
    pub(crate) fn new(label: &str, indent: usize) -> Self {
        Self { label: label.to_owned(), indent, parts: Vec::new() }
    }

    /// Appends a part, which must be escaped already. Lines break only between parts.
    pub(crate) fn part(&mut self, tone: Tone, text: impl Into<String>) -> &mut Self {
        self.parts.push((tone, text.into()));
        self
    }

    /// Appends every word of a prose text as a part; a unit stays with its figure.
    pub(crate) fn words(&mut self, tone: Tone, text: &str) -> &mut Self {
        for word in text.split(' ') {
            match self
                .parts
                .last_mut()
                .filter(|(_, last)| is_unit(word) && last.ends_with(|c: char| c.is_ascii_digit()))
            {
                Some((_, figure)) => {
                    figure.push(' ');
                    figure.push_str(word);
                }
                None => self.parts.push((tone, word.to_owned())),
            }
        }
        self
    }

    /// The parts as one line, without the label.
    pub(crate) fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|(_, part)| part.as_str()).collect();
        parts.join(" ")
    }

    /// Writes the paragraph.
    pub(crate) fn write(&self, style: &Style, out: &mut dyn Write) -> io::Result<()> {
        let indent = " ".repeat(self.indent);
        let label_width = self.label.width();
        write!(out, "{}", style.paint(Tone::Strong, &self.label))?;
        write!(out, "{}", " ".repeat(self.indent.saturating_sub(label_width)))?;
        let mut column = self.indent.max(label_width);
        let mut first = true;
        for (tone, part) in &self.parts {
            let width = part.width();
            if !first && style.width.is_some_and(|limit| column.saturating_add(width).saturating_add(1) > limit) {
                write!(out, "\n{indent}")?;
                column = self.indent;
            } else if !first {
                write!(out, " ")?;
                column += 1;
            }
            write!(out, "{}", style.paint(*tone, part))?;
            column = column.saturating_add(width);
            first = false;
        }
        writeln!(out)
    }
}
