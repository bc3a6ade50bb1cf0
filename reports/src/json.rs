//! The output of `--json`: the model itself, indented, keys in a fixed order.

use crate::escape::is_nonprinting;
use fpprof_analysis::summary::Summary;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{self, Write};

/// Version of `report --json`: it increases when a key is removed or changes its meaning, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Writes `report --json` and a line feed: [`SCHEMA_VERSION`] and the fields of the model.
///
/// # Errors
/// If the writer fails.
pub fn summary(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct Versioned<'a> {
        schema_version: u32,
        #[serde(flatten)]
        summary: &'a Summary,
    }
    value(&Versioned { schema_version: SCHEMA_VERSION, summary }, out)
}

/// Writes any of our models as JSON and a line feed.
///
/// In addition to what JSON requires, characters that a terminal interprets are written as `\uXXXX`, and `</` as `<\/`,
/// so that the text can be displayed or embedded in a page unchanged. Every JSON reader gives the same strings back.
///
/// # Errors
/// If the writer fails, and `InvalidData` for a map whose keys are not strings.
pub fn value(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(&mut *out, Harmless(PrettyFormatter::new()));
    value.serialize(&mut serializer)?;
    writeln!(out)
}

/// The indented format of `serde_json` with harmless strings.
struct Harmless(PrettyFormatter<'static>);

impl Formatter for Harmless {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }
    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }
    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut before = '\0';
        write_fragment(writer, fragment, |c| {
            let is_end_tag = before == '<' && c == '/';
            before = c;
            is_end_tag || is_nonprinting(c)
        })
    }
}

/// Any of our models as compact JSON for an element of a page: `<` is escaped, so that nothing can end the element or
/// begin a comment.
///
/// # Sources
/// HTML Living Standard, 13.2.5.17 to 13.2.5.31 (the states of script data).
pub(crate) fn for_page(value: &impl Serialize) -> io::Result<String> {
    let mut out = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut out, ForPage))?;
    String::from_utf8(out).map_err(io::Error::other)
}

struct ForPage;

impl Formatter for ForPage {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        write_fragment(writer, fragment, |c| c == '<' || is_nonprinting(c))
    }
}

fn write_fragment<W: ?Sized + Write>(
    writer: &mut W,
    fragment: &str,
    mut escape: impl FnMut(char) -> bool,
) -> io::Result<()> {
    let mut start = 0;
    for (at, c) in fragment.char_indices() {
        if escape(c) {
            writer.write_all(fragment.as_bytes().get(start..at).unwrap_or_default())?;
            write_escaped(writer, c)?;
            start = at + c.len_utf8();
        }
    }
    writer.write_all(fragment.as_bytes().get(start..).unwrap_or_default())
}

fn write_escaped<W: ?Sized + Write>(writer: &mut W, c: char) -> io::Result<()> {
    if c == '/' {
        return writer.write_all(b"\\/");
    }
    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))
}
