//! Two profiles in one flame graph: the widths of one, coloured by the difference from the other.

use super::draw::{ROW, amount, draw};
use super::error::Error;
use super::header::{Header, Part};
use super::paths::{Line, MAX_SAMPLES, Profile, lines};
use super::rows::Rows;
use crate::escape::shown;
use crate::folded::name;
use fpprof_analysis::changes::Shift;
use fpprof_analysis::folded::{Folded, FoldedStack, FrameLabel, Origin, Unit};
use inferno::flamegraph;
use inferno::flamegraph::color::Color;
use std::collections::BTreeMap;
use std::io::Write;

/// A profile and its label.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The label, such as `before.fpprof` or `dwarf`.
    pub label: &'a str,
    /// The stacks.
    pub folded: &'a Folded,
}

/// Draws `after` with its own widths, coloured by its change: red grew, blue shrank, grey is within sampling noise.
/// `same_samples` says that both are views of the same samples; then any difference is real.
///
/// Shares are compared, so a longer recording alone is no change. Frames are compared by name only, not by how they
/// were found. Frames that are missing from `after` have no width; swap the sides to see them.
///
/// # Errors
/// [`Error`]; nothing is written then, unless the writer fails.
pub fn svg_difference(before: Side<'_>, after: Side<'_>, same_samples: bool, out: &mut dyn Write) -> Result<(), Error> {
    let [n_before, n_after] = [samples(before.folded)?, samples(after.folded)?];
    if n_before == 0 || n_after == 0 {
        return Err(Error::NoSamples);
    }
    let (lines, rows) = lines(&[&profile(before.folded), &profile(after.folded)])?;
    let shift = |[before, after]: [u64; 2]| Shift::new((before, n_before), (after, n_after), same_samples);
    let boxes: Boxes = boxes(&lines).into_iter().map(|(place, amounts)| (place, shift(amounts))).collect();
    let drawn = lines.iter().filter(|line| line.amounts[1] > 0);
    let drawn: Vec<String> = drawn.map(|line| format!("{} {}", line.boxes, line.amounts[1])).collect();
    let header = header((before.label, n_before), (after.label, n_after), same_samples, &rows);
    let svg = draw(&mut flamegraph::Options::default(), &drawn, &header)?;
    Ok(writeln!(out, "{}", colored(&svg, &boxes)?)?)
}

fn samples(folded: &Folded) -> Result<u64, Error> {
    let add = |sum: u64, stack: &FoldedStack| sum.checked_add(stack.samples).filter(|&sum| sum <= MAX_SAMPLES);
    folded.stacks.iter().try_fold(0, add).ok_or(Error::TooManySamples)
}

/// The profile with names that do not say how a frame was found, except for the kernel's.
fn profile(folded: &Folded) -> Profile<'_> {
    let suffixed = |frame: &FrameLabel| match frame.origin {
        Origin::Kernel => format!("{}_[k]", name(&shown(&frame.name))),
        _ => name(&shown(&frame.name)).into_owned(),
    };
    Profile::new(folded, folded.frames.iter().map(suffixed).collect(), |_, stack| stack.samples)
}

fn header(before: (&str, u64), after: (&str, u64), same_samples: bool, rows: &Rows) -> Header {
    let compared = format!("compared with {}", shown(before.0));
    let mut header = Header::new(vec![Part::text(&shown(after.0)), Part::text(&compared)]);
    let samples = |n| amount(n, Unit::Samples);
    let [before, after] = [("before", before.1), ("after", after.1)].map(|(side, n)| format!("{side}: {}", samples(n)));
    header.line([before.as_str(), &after, "each 100 %"].map(Part::text).to_vec());
    let chance = if same_samples { "no difference" } else { "within the 95 % interval of sampling" };
    let colors = [(GREW, "grew"), (SHRANK, "shrank"), (SAME, chance)];
    header.line(colors.map(|(color, word)| Part::legend(color, word)).to_vec());
    let cautions = ["of twenty boxes without a change, one is coloured", "two runs of one program can differ by more"];
    let cautions = cautions.into_iter().filter(|_| !same_samples).map(Part::text);
    header.line(std::iter::once(Part::text("width: after")).chain(cautions).collect());
    header.line(rows.note(samples).into_iter().collect());
    header
}

/// Colours of the largest growth and of the largest loss, and of what may be noise.
const GREW: Color = Color { r: 255, g: 100, b: 100 };
const SHRANK: Color = Color { r: 110, g: 130, b: 255 };
const SAME: Color = Color { r: 224, g: 225, b: 228 };
/// The colour strength of the smallest change, out of 1.
const LEAST: f64 = 0.35;

/// Changes of boxes by position: (boxes below, samples to the left).
type Boxes = BTreeMap<(usize, u64), Shift>;

/// Samples of the boxes of lines, which are drawn from left to right; only boxes with a width.
fn boxes(lines: &[Line<2>]) -> BTreeMap<(usize, u64), [u64; 2]> {
    let mut boxes: BTreeMap<(usize, u64), [u64; 2]> = BTreeMap::new();
    // The boxes of the previous line, with the samples to their left and their own.
    let mut open: Vec<(&str, u64, [u64; 2])> = Vec::new();
    let mut left = 0;
    let mut close = |open: &mut Vec<(&str, u64, [u64; 2])>, n_kept: usize| {
        let n_kept = n_kept.min(open.len());
        let closed = (n_kept..).zip(open.drain(n_kept..));
        boxes.extend(
            closed.filter(|(_, (_, _, [_, after]))| *after > 0).map(|(depth, (_, left, own))| ((depth, left), own)),
        );
    };
    for line in lines {
        // The nameless box of everything is below all others.
        let names = || std::iter::once("").chain(line.boxes.split(';'));
        let n_same = open.iter().zip(names()).take_while(|((open, ..), name)| open == name).count();
        close(&mut open, n_same);
        open.extend(names().skip(n_same).map(|name| (name, left, [0, 0])));
        for (_, _, own) in &mut open {
            own.iter_mut().zip(line.amounts).for_each(|(own, more)| *own += more);
        }
        left += line.amounts[1];
    }
    close(&mut open, 0);
    boxes
}

/// Recolours the boxes that inferno drew by their changes, and adds the changes to their titles.
fn colored(svg: &str, boxes: &Boxes) -> Result<String, Error> {
    const BOX: &str = "<g><title>";
    let y = |piece: &str| attribute(piece, "y")?.parse::<usize>().ok();
    let bottom = svg.split(BOX).skip(1).filter_map(y).max().unwrap_or_default();
    let largest = boxes.values().filter(|shift| shift.differs()).map(|shift| shift.points.abs()).fold(0.0, f64::max);
    let mut pieces = svg.split(BOX);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let place = y(piece).zip(attribute(piece, "fg:x").and_then(|left| left.parse().ok()));
        let shift = place.and_then(|(y, left)| boxes.get(&((bottom - y) / ROW, left)));
        let parts = piece.split_once(")</title>").zip(attribute(piece, "fill"));
        let (shift, ((title, rest), fill)) = shift.zip(parts).ok_or(Error::Layout("box"))?;
        let Color { r, g, b } = color(shift, largest);
        let rest = rest.replacen(fill, &format!("rgb({r},{g},{b})"), 1);
        out.extend([BOX, title, "; ", &change(shift), ")</title>", &rest]);
    }
    Ok(out)
}

/// The value of an attribute of the first element that has the attribute.
fn attribute<'a>(svg: &'a str, name: &str) -> Option<&'a str> {
    svg.split_once(&format!(" {name}=\""))?.1.split_once('"').map(|(value, _)| value)
}

/// The colour of a change: the larger, the stronger.
fn color(shift: &Shift, largest: f64) -> Color {
    if !shift.differs() || largest <= 0.0 {
        return SAME;
    }
    let full = if shift.points > 0.0 { GREW } else { SHRANK };
    let part = LEAST + (1.0 - LEAST) * shift.points.abs() / largest;
    let channel = |full: u8| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a value in 0..=255")]
        let byte = (255.0 - (255.0 - f64::from(full)) * part).round() as u8;
        byte
    };
    Color { r: channel(full.r), g: channel(full.g), b: channel(full.b) }
}

/// A change such as `+12.30 [+11.21, +13.40] points`.
fn change(shift: &Shift) -> String {
    let interval = shift.interval.map_or(String::new(), |i| format!(" [{:+.2}, {:+.2}]", i.low, i.high));
    let points = match shift.points {
        0.0 => "0.00".to_owned(),
        points => format!("{points:+.2}"),
    };
    format!("{points}{interval} points")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(stacks: &[(&[&str], u64)]) -> Folded {
        stacks.iter().copied().collect()
    }

    fn drawn(before: &Folded, after: &Folded, same_samples: bool) -> String {
        let mut svg = Vec::new();
        let (before, after) = (Side { label: "old", folded: before }, Side { label: "new<script>", folded: after });
        svg_difference(before, after, same_samples, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    /// The title and the colour of a function's box.
    fn drawn_box<'a>(svg: &'a str, function: &str) -> (&'a str, &'a str) {
        let at = svg.find(&format!("<title>{function} ")).unwrap_or_else(|| panic!("no {function} in {svg}"));
        let rest = &svg[at + 7..];
        (rest.split('<').next().unwrap(), attribute(rest, "fill").unwrap())
    }

    fn css(Color { r, g, b }: Color) -> String {
        format!("rgb({r},{g},{b})")
    }

    /// Check that shares are compared and not counts, that growth has a plus sign and its colour, that a box has the
    /// change of everything above it, and that labels tell the sides apart and run no script.
    #[test]
    fn growth_is_positive() {
        let before = folded(&[(&["main", "f", "a"], 30), (&["main", "b"], 70)]);
        let after = folded(&[(&["main", "f", "a"], 600), (&["main", "b"], 400)]);
        let svg = drawn(&before, &after, false);
        for (function, samples, change, color) in [
            ("a", "600", "60.00%; +30.00 [+", GREW),
            ("f", "600", "60.00%; +30.00 [+", GREW),
            ("b", "400", "40.00%; -30.00 [-", SHRANK),
        ] {
            let (title, fill) = drawn_box(&svg, function);
            assert!(title.starts_with(&format!("{function} ({samples} samples, {change}")), "{title}");
            assert_eq!(fill, css(color), "{function}");
        }
        let (title, fill) = drawn_box(&svg, "main");
        assert!(title.starts_with("main (1,000 samples, 100.00%; 0.00 [") && fill == css(SAME), "{title} {fill}");
        assert!(svg.contains(">before: 100 samples · after: 1,000 samples · each 100 %<"), "{svg}");
        assert!(
            svg.contains("within the 95 % interval of sampling<")
                && svg.contains("new&lt;script&gt; · compared with old<")
        );
        roxmltree::Document::parse_with_options(
            &svg,
            roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() },
        )
        .unwrap();
    }

    /// Check that sampling noise is grey in both directions, and that the same counts are a difference if both are
    /// views of the same samples.
    #[test]
    fn noise_is_grey() {
        let before = folded(&[(&["main", "a"], 30), (&["main", "b"], 70), (&["main", "c"], 1)]);
        let after = folded(&[(&["main", "a"], 36), (&["main", "b"], 65)]);
        let svg = drawn(&before, &after, false);
        assert!(["a", "b", "main"].iter().all(|function| drawn_box(&svg, function).1 == css(SAME)), "{svg}");
        let views = drawn(&before, &after, true);
        assert!(["a", "b"].iter().all(|function| drawn_box(&views, function).1 != css(SAME)), "{views}");
        assert!(!views.contains("0 [") && views.contains("no difference<"), "{views}");
    }

    /// Check that a longer profile alone is no difference, and that the same function found in another way is equal.
    #[test]
    fn length_and_origin_are_no_difference() {
        let before = folded(&[(&["main", "a"], 3), (&["main", "b"], 1)]);
        let mut after = folded(&[(&["main", "a"], 9), (&["main", "b"], 3)]);
        after.frames[1].origin = Origin::FramePointer;
        let svg = drawn(&before, &after, true);
        assert!(
            ["a", "b", "main"].iter().all(|function| drawn_box(&svg, function).0.ends_with("; 0.00 points)")),
            "{svg}"
        );
    }

    /// Check that an empty profile is refused, and so are counts beyond exact `f64` integers.
    #[test]
    fn nothing_is_not_drawn() {
        let some = folded(&[(&["main"], 1)]);
        let huge = folded(&[(&["main"], u64::MAX)]);
        let nothing = Folded::default();
        let draw = |before, after| {
            let (before, after) = (Side { label: "", folded: before }, Side { label: "", folded: after });
            svg_difference(before, after, false, &mut Vec::new())
        };
        assert!(matches!(draw(&some, &nothing), Err(Error::NoSamples)));
        assert!(matches!(draw(&some, &huge), Err(Error::TooManySamples)));
    }
}
