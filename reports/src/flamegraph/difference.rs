//! Two profiles in one flame graph: widths of the one, colours by how it differs from the other.

use super::draw::{Error, draw};
use super::header::{Header, Part};
use crate::escape::shown;
use crate::figures::{count, plural};
use crate::folded::{frames_of, marker, name};
use fpprof_analysis::folded::{Folded, FrameLabel, Origin};
use inferno::flamegraph;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What the samples of each side are brought to. inferno counts in whole numbers, and its own way to scale them down again
/// ([`flamegraph::Options::factor`]) leaves out the changes, so that they are shown as they are.
const ALL: u128 = 1_000_000_000;

/// A profile and what it is called.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// Such as `before.fpprof` or `dwarf`.
    pub label: &'a str,
    /// Its stacks.
    pub folded: &'a Folded,
}

/// Draws `after` with the widths it has and the colours of its change: red grew, blue shrank.
///
/// Counts are brought to the same sum first, a billion: a longer recording alone changes nothing, and what is rounded is
/// far below a sample. Frames are told apart by name only, so that how they were found does not make
/// them differ. What is gone from `after` has no width there; drawn the other way round it has.
///
/// # Errors
/// [`Error`]; nothing is written then, unless the writer failed.
pub fn svg_difference(before: Side<'_>, after: Side<'_>, out: &mut impl Write) -> Result<(), Error> {
    let mut lines: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let n_before = add(&mut lines, before.folded, |counts, n| counts.0 = counts.0.saturating_add(n))?;
    let n_after = add(&mut lines, after.folded, |counts, n| counts.1 = counts.1.saturating_add(n))?;
    if n_before == 0 || n_after == 0 {
        return Err(Error::NoSamples);
    }
    let part = |n: u64, all: u64| (u128::from(n) * ALL + u128::from(all) / 2) / u128::from(all);
    let scaled = lines
        .iter()
        .map(|(line, &(before, after))| format!("{line} {} {}", part(before, n_before), part(after, n_after)));
    let scaled: Vec<String> = scaled.collect();
    let mut drawing = flamegraph::Options::default();
    drawing.count_name = "billionths".to_owned();
    let svg = draw(&mut drawing, &scaled, &header(&before, n_before, &after, n_after))?;
    Ok(writeln!(out, "{svg}")?)
}

fn header(before: &Side<'_>, n_before: u64, after: &Side<'_>, n_after: u64) -> Header {
    let compared = format!("compared with {}", shown(before.label));
    let mut header = Header::new(vec![Part::text(&shown(after.label)), Part::text(&compared)]);
    let side = |name, n| Part::text(&format!("{name}: {} sample{}", count(n), plural(n)));
    header.line(vec![side("before", n_before), side("after", n_after), Part::text("each 100 %")]);
    header.line(["width: after", "red: grew", "blue: shrank"].map(Part::text).to_vec());
    header
}

/// Adds the stacks of one side, and gives their samples.
fn add(
    lines: &mut BTreeMap<String, (u64, u64)>,
    folded: &Folded,
    put: impl Fn(&mut (u64, u64), u64),
) -> io::Result<u64> {
    let suffixed = |frame: &FrameLabel| match frame.origin {
        Origin::Kernel => format!("{}_[k]", name(&frame.name)),
        _ => name(&frame.name).into_owned(),
    };
    let names: Vec<String> = folded.frames.iter().map(suffixed).collect();
    let mut sum = 0_u64;
    for stack in &folded.stacks {
        let mut line = name(&stack.comm).into_owned();
        if let Some(marker) = marker(stack) {
            line.push(';');
            line.push_str(&marker);
        }
        for frame in frames_of(stack, &names) {
            line.push(';');
            line.push_str(frame?);
        }
        put(lines.entry(line).or_default(), stack.samples);
        sum = sum.saturating_add(stack.samples);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_analysis::folded::FoldedStack;
    use fpprof_unwind::{Root, StopReason};

    fn folded(stacks: &[(&[&str], u64)]) -> Folded {
        let mut folded = Folded::default();
        for (frames, samples) in stacks {
            let numbers = frames.iter().map(|name| {
                folded.frames.push(FrameLabel {
                    name: (*name).to_owned(),
                    module: "m".to_owned(),
                    origin: Origin::Cfi,
                });
                u32::try_from(folded.frames.len() - 1).unwrap()
            });
            let frames = numbers.collect();
            let stop = StopReason::Complete(Root::Start);
            folded.stacks.push(FoldedStack {
                comm: "prog".to_owned(),
                pid: 1,
                frames,
                stop,
                samples: *samples,
                weight: 0,
            });
        }
        folded
    }

    fn drawn(before: &Folded, after: &Folded) -> String {
        let mut svg = Vec::new();
        let (before, after) = (Side { label: "old", folded: before }, Side { label: "new<script>", folded: after });
        svg_difference(before, after, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    /// The title of the box of a function.
    fn title<'a>(svg: &'a str, function: &str) -> &'a str {
        let at = svg.find(&format!("<title>{function} ")).unwrap_or_else(|| panic!("no {function} in {svg}"));
        svg[at + 7..].split('<').next().unwrap()
    }

    /// Check that shares are compared and not counts, that growth has a plus sign, and that labels say which is which
    /// and run no script.
    #[test]
    fn growth_is_positive() {
        let before = folded(&[(&["main", "a"], 30), (&["main", "b"], 70)]);
        let after = folded(&[(&["main", "a"], 600), (&["main", "b"], 400)]);
        let svg = drawn(&before, &after);
        assert_eq!(title(&svg, "a"), "a (600,000,000 billionths, 60.00%; +30.00%)");
        assert_eq!(title(&svg, "b"), "b (400,000,000 billionths, 40.00%; -30.00%)");
        assert_eq!(title(&svg, "main"), "main (1,000,000,000 billionths, 100.00%; 0.00%)");
        assert!(svg.contains("before: 100 samples · after: 1,000 samples · each 100 %<"));
        assert!(svg.contains("new&lt;script&gt; · compared with old<"));
        roxmltree::Document::parse_with_options(
            &svg,
            roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() },
        )
        .unwrap();
    }

    /// Check that a profile that is only longer differs in nothing, and that the same function found in another way is
    /// the same.
    #[test]
    fn length_and_origin_are_no_difference() {
        let before = folded(&[(&["main", "a"], 3), (&["main", "b"], 1)]);
        let mut after = folded(&[(&["main", "a"], 9), (&["main", "b"], 3)]);
        after.frames[1].origin = Origin::FramePointer;
        let svg = drawn(&before, &after);
        assert!(["a", "b", "main"].iter().all(|function| title(&svg, function).ends_with(" 0.00%)")), "{svg}");
    }

    /// Check that nothing to draw is refused, and that large counts are drawn.
    #[test]
    fn nothing_is_not_drawn() {
        let some = folded(&[(&["main"], 1)]);
        let huge = folded(&[(&["main"], u64::MAX)]);
        let nothing = Folded::default();
        let draw = |before, after| {
            let (before, after) = (Side { label: "", folded: before }, Side { label: "", folded: after });
            svg_difference(before, after, &mut Vec::new())
        };
        assert!(matches!(draw(&some, &nothing), Err(Error::NoSamples)));
        assert!(draw(&some, &huge).is_ok());
    }
}
