//! Title, legend, and the call of inferno.

use super::palette::Kind;
use super::paths::{Ends, paths};
use crate::escape::shown;
use crate::figures::{count, plural, share};
use fpprof_analysis::folded::{Folded, Unit};
use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, TextTruncateDirection};
use std::io::{self, Write};

/// How a flame graph is titled and sized.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// What was profiled, for the title; empty for none.
    pub title: String,
    /// What fired the samples, such as `page-faults`; empty for none.
    pub event: String,
    /// The strategy the stacks were unwound with, such as `dwarf`.
    pub strategy: String,
    /// Width in pixels; `None` takes the width of the window.
    pub width: Option<usize>,
}

/// Why there is no flame graph.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is nothing to draw.
    #[error("no samples to draw")]
    NoSamples,
    /// More samples than a graph can be exact for.
    #[error("more than 2^53 samples in one flame graph")]
    TooManySamples,
    /// inferno did not write the line the legend goes into.
    #[error("the flame graph has no subtitle to hold the legend")]
    NoSubtitle,
    /// The graph could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// Where inferno writes the subtitle.
const SUBTITLE: &str = "<text id=\"subtitle\"";

/// Draws the stacks as SVG with inferno's script for zoom and search.
///
/// Boxes narrower than 0.01 % of the width are not drawn (inferno's default); the folded export has them all.
///
/// # Errors
/// [`Error`]; nothing is written then, unless the writer failed.
pub fn svg(folded: &Folded, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let mut paths = paths(folded)?;
    if paths.ends.all == 0 {
        return Err(Error::NoSamples);
    }
    let mut drawing = flamegraph::Options::default();
    drawing.title = title(options, &paths.ends, folded.unit);
    drawing.subtitle = Some(" ".to_owned());
    drawing.count_name = match folded.unit {
        Unit::Samples => "samples".to_owned(),
        Unit::BlockedNs => "ms blocked".to_owned(),
    };
    if folded.unit == Unit::BlockedNs {
        drawing.factor = 1e-6;
    }
    drawing.name_type = String::new();
    drawing.image_width = options.width;
    drawing.frame_height = 17;
    drawing.bgcolors = Some(BackgroundColor::Flat(Color { r: 252, g: 252, b: 253 }));
    drawing.text_truncate_direction = TextTruncateDirection::Right;
    drawing.palette_map = Some(&mut paths.colors);
    // "Flame chart" is inferno's word for "draw the lines from last to first and do not sort them".
    drawing.flame_chart = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut drawing, paths.lines.iter().rev().map(String::as_str), &mut svg)?;
    let legend = legend(&paths.kinds.into_iter().collect::<Vec<_>>());
    let (head, tail) = split_at_subtitle(&svg).ok_or(Error::NoSubtitle)?;
    out.write_all(head)?;
    out.write_all(legend.as_bytes())?;
    out.write_all(tail)?;
    Ok(writeln!(out)?)
}

fn title(options: &Options, ends: &Ends, unit: Unit) -> String {
    let mut title = String::new();
    for part in [&options.title, &options.event, &options.strategy] {
        if !part.is_empty() {
            title.push_str(&shown(part));
            title.push_str(" · ");
        }
    }
    title.push_str(&amount(ends.all, unit));
    for (class, n) in [("complete", ends.complete), ("truncated", ends.truncated), ("broken", ends.broken)] {
        if n > 0 || class == "complete" && ends.unwound() > 0 {
            title.push_str(&format!(" · {} {class}", share(n, ends.unwound())));
        }
    }
    if ends.no_stack > 0 {
        title.push_str(&format!(" · {} without a user stack", amount(ends.no_stack, unit)));
    }
    title
}

fn amount(n: u64, unit: Unit) -> String {
    match unit {
        Unit::Samples => format!("{} sample{}", count(n), plural(n)),
        Unit::BlockedNs => format!("{} ms blocked", count(n.saturating_add(500_000) / 1_000_000)),
    }
}

/// A coloured square and a word for every kind that occurs.
fn legend(kinds: &[Kind]) -> String {
    let mut legend = String::new();
    for (kind, word) in kinds.iter().filter_map(|kind| Some((kind, kind.legend()?))) {
        if !legend.is_empty() {
            // No-break spaces, since XML folds plain ones into one.
            legend.push_str("\u{a0}\u{a0} ");
        }
        let Color { r, g, b } = kind.color();
        legend.push_str(&format!("<tspan fill=\"rgb({r},{g},{b})\" font-size=\"18\" dy=\"1.5\">\u{25a0}</tspan>"));
        legend.push_str(&format!("<tspan dy=\"-1.5\">\u{a0}{word}</tspan>"));
    }
    legend
}

/// What comes before and after the text of the subtitle. `<` in names is escaped, so the first match is the element.
fn split_at_subtitle(svg: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = svg.windows(SUBTITLE.len()).position(|window| window == SUBTITLE.as_bytes())?;
    let open = start + svg.get(start..)?.iter().position(|&byte| byte == b'>')? + 1;
    let close = open + svg.get(open..)?.iter().position(|&byte| byte == b'<')?;
    Some((svg.get(..open)?, svg.get(close..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_analysis::folded::FoldedStack;
    use fpprof_unwind::{NoStackReason, Root, StopReason, TruncatedReason};

    fn drawn(unit: Unit, stacks: &[(StopReason, u64)]) -> String {
        let stack = |&(stop, n): &(StopReason, u64)| FoldedStack {
            comm: "prog".to_owned(),
            pid: 1,
            frames: Vec::new(),
            stop,
            samples: n,
            weight: n * 1_000_000,
        };
        let folded = Folded { stacks: stacks.iter().map(stack).collect(), unit, ..Folded::default() };
        let mut drawn = Vec::new();
        svg(&folded, &Options { strategy: "dwarf".to_owned(), ..Options::default() }, &mut drawn).unwrap();
        String::from_utf8(drawn).unwrap()
    }

    /// Check that a sample of a thread without a user stack is a sample, and that no share of classes knows it.
    #[test]
    fn no_stack_is_of_no_class() {
        let ends = [
            (StopReason::Complete(Root::Start), 3),
            (StopReason::Truncated(TruncatedReason::ChunkEnd), 1),
            (StopReason::NoStack(NoStackReason::Exiting), 1),
            (StopReason::NoStack(NoStackReason::InExec), 5),
        ];
        for (unit, all, without) in
            [(Unit::Samples, "10 samples", "6 samples"), (Unit::BlockedNs, "10 ms blocked", "6 ms blocked")]
        {
            let title = format!("{all} · 75.0 % complete · 25.0 % truncated · {without} without a user stack<");
            let svg = drawn(unit, &ends);
            assert!(svg.contains(&title), "{svg}");
        }
        let svg = drawn(Unit::Samples, &ends[2..]);
        assert!(svg.contains("6 samples · 6 samples without a user stack<"), "{svg}");
    }
}
