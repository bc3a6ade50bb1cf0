//! Title, legend, and the call to inferno.

use super::error::Error;
use super::header::{Header, Part};
use super::paths::{Ends, paths};
use crate::escape::shown;
use crate::figures::{count, plural, share};
use fpprof_analysis::folded::{Folded, Unit};
use inferno::flamegraph::color::{BackgroundColor, Color};
use inferno::flamegraph::{self, TextTruncateDirection};
use std::io::Write;

/// Title and size of a flame graph.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// What was profiled, for the title; empty for none.
    pub title: String,
    /// The event that was sampled, such as `page-faults`; empty for none.
    pub event: String,
    /// The strategy that unwound the stacks, such as `dwarf`.
    pub strategy: String,
    /// Width in pixels; `None` for the width of the window.
    pub width: Option<usize>,
}

/// Draws the stacks as SVG with inferno's script for zoom and search.
///
/// Boxes narrower than 0.01 % of the width are not drawn (inferno's default). A spike of less than 5 % is cut above row
/// 80, and the picture says so; the folded export has all frames.
///
/// # Errors
/// [`Error`]; nothing is written then, unless the writer fails.
pub fn svg(folded: &Folded, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let mut paths = paths(folded)?;
    if paths.ends.all == 0 {
        return Err(Error::NoSamples);
    }
    let mut header = Header::new(title(options));
    let legend = paths.kinds.iter().filter_map(|kind| Some(Part::legend(kind.color(), kind.legend()?)));
    header.line(ends(&paths.ends, folded.unit)).line(legend.collect());
    header.line(paths.rows.note(|n| amount(n, folded.unit)).into_iter().collect());
    let mut drawing = flamegraph::Options::default();
    drawing.count_name = match folded.unit {
        Unit::Samples => "samples".to_owned(),
        Unit::BlockedNs => "ms blocked".to_owned(),
        Unit::CpuNs => "ms of CPU time".to_owned(),
    };
    if folded.unit != Unit::Samples {
        drawing.factor = 1e-6;
    }
    drawing.image_width = options.width;
    drawing.palette_map = Some(&mut paths.colors);
    let svg = draw(&mut drawing, &paths.lines, &header)?;
    Ok(writeln!(out, "{svg}")?)
}

/// Height of a row of boxes in pixels.
pub(super) const ROW: usize = 17;

/// Draws lines from left to right in their given order, with a header above them.
///
/// # Errors
/// [`Error`].
pub(super) fn draw(drawing: &mut flamegraph::Options<'_>, lines: &[String], header: &Header) -> Result<String, Error> {
    // Blank titles reserve room for the header, which replaces them.
    (drawing.title, drawing.subtitle) = (" ".to_owned(), Some(" ".to_owned()));
    drawing.name_type = String::new();
    drawing.frame_height = ROW;
    drawing.bgcolors = Some(BackgroundColor::Flat(Color { r: 252, g: 252, b: 253 }));
    drawing.text_truncate_direction = TextTruncateDirection::Right;
    // "Flame chart" makes inferno draw the lines from last to first without sorting them.
    drawing.flame_chart = true;
    let mut svg = Vec::new();
    flamegraph::from_lines(drawing, lines.iter().rev().map(String::as_str), &mut svg)?;
    header.set_into(svg)
}

fn title(options: &Options) -> Vec<Part> {
    let parts = [&options.title, &options.event, &options.strategy];
    parts.into_iter().filter(|part| !part.is_empty()).map(|part| Part::text(&shown(part))).collect()
}

/// The amount in total, and by how stacks ended.
fn ends(ends: &Ends, unit: Unit) -> Vec<Part> {
    let mut parts = vec![Part::text(&amount(ends.all, unit))];
    for (class, n) in [("complete", ends.complete), ("truncated", ends.truncated), ("broken", ends.broken)] {
        if n > 0 || class == "complete" && ends.unwound() > 0 {
            parts.push(Part::text(&format!("{} {class}", share(n, ends.unwound()))));
        }
    }
    if ends.no_stack > 0 {
        parts.push(Part::text(&format!("{} without a user stack", amount(ends.no_stack, unit))));
    }
    parts
}

pub(super) fn amount(n: u64, unit: Unit) -> String {
    let ms = || count(n.saturating_add(500_000) / 1_000_000);
    match unit {
        Unit::Samples => format!("{} sample{}", count(n), plural(n)),
        Unit::BlockedNs => format!("{} ms blocked", ms()),
        Unit::CpuNs => format!("{} ms of CPU time", ms()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_analysis::folded::{FoldedStack, FrameLabel, Origin};
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

    /// Check that a sample of a thread without a user stack counts as a sample, but not in the shares of the classes.
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
            let svg = drawn(unit, &ends);
            assert!(svg.contains(&format!(">{all} · 75.0 % complete · 25.0 % truncated<")), "{svg}");
            assert!(svg.contains(&format!(">{without} without a user stack<")), "{svg}");
        }
        let svg = drawn(Unit::Samples, &ends[2..]);
        assert!(svg.contains(">6 samples · 6 samples without a user stack<"), "{svg}");
    }

    /// Check that a spike of a few samples does not make a graph many screens high, and that a box and a line say what
    /// is not drawn.
    #[test]
    fn spikes_are_cut_and_reported() {
        let frame = |n: u32| FrameLabel { name: format!("f{n}"), module: String::new(), origin: Origin::Cfi };
        let stack = |n_frames: u32, samples| FoldedStack {
            comm: "prog".to_owned(),
            pid: 1,
            frames: (0..n_frames).collect(),
            stop: StopReason::Complete(Root::Start),
            samples,
            weight: 0,
        };
        let frames = (0..250).map(frame).collect();
        let folded = Folded { frames, stacks: vec![stack(250, 3), stack(10, 997)], ..Folded::default() };
        let mut drawn = Vec::new();
        svg(&folded, &Options::default(), &mut drawn).unwrap();
        let svg = String::from_utf8(drawn).unwrap();
        assert!(svg.contains(">3 samples (0.3 %): frames above row 80 are not drawn<"), "{svg}");
        // The process and 250 frames: 79 boxes and one for the rest.
        assert!(svg.contains("<title>… 172 more frames (3 samples, 0.30%)</title>"), "{svg}");
        assert_eq!(svg.matches("<g><title>").count(), 81);
        let height: u32 = svg.split(" height=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse().ok()).unwrap();
        assert!(height < 1600, "{height}");
    }
}
