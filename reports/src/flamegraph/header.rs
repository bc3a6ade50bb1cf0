//! The lines above a graph, fitted to narrow windows.
//!
//! inferno has one title line and one subtitle line, and cuts both in a narrow window. The header replaces them by
//! lines of bounded length whose letters shrink with the window.

use super::error::Error;
use inferno::flamegraph::color::Color;
use maud::{Markup, html};
use std::fmt::Write as _;

/// Longest line, in characters: with letters nearly 9 pixels high it fits a phone.
const MAX_CHARS: usize = 68;
/// Separates two parts of a line.
const SEPARATOR: &str = " · ";
/// Width of a character relative to its height, with a reserve for wider fonts.
const CHAR_WIDTH: f64 = 0.62;
/// Height of letters in pixels: the title's, and inferno's for all others.
const TITLE_SIZE: f64 = 17.0;
const TEXT_SIZE: f64 = 12.0;
/// Pixels from one line to the next.
const TITLE_LINE: usize = 21;
const TEXT_LINE: usize = 16;
/// Vertical position of the title and of inferno's buttons next to it, pixels from the top.
const FIRST_LINE: usize = 24;
/// Width of both buttons, pixels.
const BUTTONS: f64 = 180.0;
/// Height that inferno reserves for its two lines: five lines of text, in pixels.
const ROOM: usize = 60;
/// Styles for dark mode. Frames keep their colours, on which black is readable. Frames below a zoomed frame, which
/// inferno draws half transparent, fade less, since the background is dark.
const DARK: &str = "@media (prefers-color-scheme:dark) {
#background stop { stop-color:#17181c; }
#title, #subtitle, #details, #matched, #search, #unzoom { fill:#e6e7ea; }
#search { opacity:0.5; }
.parent { opacity:0.75; }
}
";

/// Corrects inferno's search.
const SEARCH: &str = include_str!("search.js");

/// A part of a line that is never broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// The colour of the square before the text.
    swatch: Option<Color>,
    text: String,
}

impl Part {
    /// Creates a text; one that is too long for a line is cut in its middle.
    pub(super) fn text(text: &str) -> Self {
        let n_chars = text.chars().count();
        let text = if n_chars <= MAX_CHARS {
            text.to_owned()
        } else {
            let half = (MAX_CHARS - 1) / 2;
            let (start, end) = (text.chars().take(half), text.chars().skip(n_chars - half));
            start.chain(['…']).chain(end).collect()
        };
        Self { swatch: None, text }
    }

    /// Creates a legend entry: the meaning of a colour.
    pub(super) fn legend(color: Color, word: &str) -> Self {
        Self { swatch: Some(color), text: word.to_owned() }
    }

    fn n_chars(&self) -> usize {
        self.text.chars().count() + if self.swatch.is_some() { 3 } else { 0 }
    }

    fn markup(&self) -> Markup {
        html! {
            @if let Some(Color { r, g, b }) = self.swatch {
                tspan fill={ "rgb(" (r) "," (g) "," (b) ")" } font-size="1.5em" { "\u{25a0}" }
                "\u{a0}"
            }
            (self.text)
        }
    }
}

/// Parts of one line.
type Line = Vec<Part>;

/// The text above a graph.
#[derive(Debug, Default)]
pub(super) struct Header {
    title: Vec<Line>,
    text: Vec<Line>,
}

impl Header {
    /// Creates a header whose title says what was profiled, and how much.
    pub(super) fn new(title: Vec<Part>) -> Self {
        Self { title: wrapped(title), text: Vec::new() }
    }

    /// Begins a new line.
    pub(super) fn line(&mut self, parts: Vec<Part>) -> &mut Self {
        self.text.extend(wrapped(parts));
        self
    }

    /// Inserts the header above the graph that inferno drew with a title and a subtitle of one blank each.
    ///
    /// # Errors
    /// If inferno's output lacks an expected element.
    pub(super) fn set_into(&self, svg: Vec<u8>) -> Result<String, Error> {
        let mut svg = String::from_utf8(svg).map_err(|_| Error::Layout("text"))?;
        let text_at = FIRST_LINE + self.title.len().saturating_sub(1) * TITLE_LINE + TEXT_LINE + 4;
        let last_line = text_at + self.text.len().saturating_sub(1) * TEXT_LINE;
        // A line for the buttons: a narrow window has no room next to other text.
        let buttons_at = last_line + TEXT_LINE;
        let more = (buttons_at + 8).saturating_sub(ROOM);
        let height: usize =
            between(&svg, " height=\"", "\"").and_then(|height| height.parse().ok()).ok_or(Error::Layout("height"))?;
        let (old, new) = (height, height + more);
        let view_box = between(&svg, " viewBox=\"", "\"").ok_or(Error::Layout("viewBox"))?.to_owned();
        let wider = view_box.strip_suffix(&format!(" {old}")).ok_or(Error::Layout("viewBox"))?;
        let wider = format!(" viewBox=\"{wider} {new}\"");
        // In the order of the file. Profiled names come after all of these, so each first match is inferno's own.
        let style = self.style(buttons_at, more);
        for (from, to) in [
            (format!(" height=\"{old}\""), format!(" height=\"{new}\"")),
            (format!(" viewBox=\"{view_box}\""), wider),
            ("</style>".to_owned(), format!("{style}</style>")),
            ("]]></script>".to_owned(), format!("\n{SEARCH}]]></script>")),
            (
                format!(" height=\"{old}\" fill=\"url(#background)\""),
                format!(" height=\"{new}\" fill=\"url(#background)\""),
            ),
            ("<svg id=\"frames\"".to_owned(), format!("<svg id=\"frames\" y=\"{more}\"")),
        ] {
            replace(&mut svg, &from, &to)?;
        }
        set_text(&mut svg, "<text id=\"title\"", &lines(&self.title, FIRST_LINE, TITLE_LINE))?;
        set_text(&mut svg, "<text id=\"subtitle\"", &lines(&self.text, text_at, TEXT_LINE))?;
        Ok(svg)
    }

    /// The style: letters that fit the window, and buttons below the title. Viewers without these CSS functions keep
    /// inferno's sizes.
    fn style(&self, buttons_at: usize, more: usize) -> String {
        let mut style = String::new();
        for (id, lines, size) in [("title", &self.title, TITLE_SIZE), ("subtitle", &self.text, TEXT_SIZE)] {
            let width = widest(lines) * CHAR_WIDTH;
            // Writing to a String cannot fail.
            let _ = writeln!(style, "#{id} {{ font-size:min({size}px, calc((100vw - 20px) / {width:.1})); }}");
        }
        let narrow = widest(&self.title) * CHAR_WIDTH * TITLE_SIZE + BUTTONS;
        let down = buttons_at - FIRST_LINE;
        let _ = writeln!(
            style,
            "@media (max-width:{narrow:.0}px) {{ #search, #unzoom {{ transform:translateY({down}px); }} }}"
        );
        let _ = writeln!(style, "#details, #matched {{ transform:translateY({more}px); }}");
        style.push_str(DARK);
        style
    }
}

/// Wraps parts into lines of at most [`MAX_CHARS`], unless a single part is longer.
fn wrapped(parts: Vec<Part>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if n_chars(line) + SEPARATOR.len() + part.n_chars() <= MAX_CHARS => line.push(part),
            _ => lines.push(vec![part]),
        }
    }
    lines
}

fn n_chars(line: &[Part]) -> usize {
    let between = line.len().saturating_sub(1) * SEPARATOR.chars().count();
    line.iter().map(Part::n_chars).sum::<usize>() + between
}

/// The length of the longest line in characters.
#[expect(clippy::cast_precision_loss, reason = "a line is short")]
fn widest(lines: &[Line]) -> f64 {
    lines.iter().map(|line| n_chars(line)).max().unwrap_or(1) as f64
}

fn lines(lines: &[Line], first: usize, height: usize) -> String {
    let line = |(index, line): (usize, &Line)| {
        html! {
            tspan x="50%" y=(first + index * height) {
                @for (at, part) in line.iter().enumerate() {
                    @if at > 0 {
                        // No-break spaces: XML collapses plain ones.
                        @if part.swatch.is_some() { "\u{a0}\u{a0} " } @else { (SEPARATOR) }
                    }
                    (part.markup())
                }
            }
        }
        .into_string()
    };
    lines.iter().enumerate().map(line).collect()
}

/// The text between the first `start` and the next `end`.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    text.split_once(start)?.1.split_once(end).map(|(inside, _)| inside)
}

fn replace(svg: &mut String, from: &str, to: &str) -> Result<(), Error> {
    let at = svg.find(from).ok_or(Error::Layout("header"))?;
    svg.replace_range(at..at + from.len(), to);
    Ok(())
}

/// Replaces the text of the first element that begins with `element`. Names have `<` escaped, so they cannot match.
fn set_text(svg: &mut String, element: &'static str, text: &str) -> Result<(), Error> {
    let open = svg.find(element).ok_or(Error::Layout(element))?;
    let rest = svg.get(open..).unwrap_or_default();
    let (start, end) = rest.find('>').zip(rest.find("</text>")).ok_or(Error::Layout(element))?;
    svg.replace_range(open + start + 1..open + end, text);
    Ok(())
}
