//! From folded stacks to the lines inferno draws, in the order they are drawn.

use super::draw::Error;
use super::palette::Kind;
use crate::escape::shown;
use crate::folded::{frames_of, marker, name, names};
use fpprof_analysis::folded::{Folded, Origin};
use inferno::flamegraph::color::PaletteMap;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// What inferno is given.
pub(super) struct Paths {
    /// Folded lines, in the order they are drawn from left to right.
    pub(super) lines: Vec<String>,
    /// Colour of every box.
    pub(super) colors: PaletteMap,
    /// Kinds that occur.
    pub(super) kinds: BTreeSet<Kind>,
    /// Samples by class.
    pub(super) ends: Ends,
}

/// Samples by class of their end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) samples: u64,
    pub(super) complete: u64,
    pub(super) truncated: u64,
    pub(super) broken: u64,
}

/// Most samples in one graph: inferno's script and its fractions count in `f64`, and its sums must not overflow.
const MAX_SAMPLES: u64 = 1 << 53;

/// Sorts stacks for drawing: complete before truncated before broken, then frame by frame by name.
///
/// Sorting lines as text, which is what inferno does by default, tears a box apart when the name of a sibling goes on
/// with a character below `;`: `f`, `f::g` and `f;x` would be drawn as `f`, `f::g`, `f`.
pub(super) fn paths(folded: &Folded) -> Result<Paths, Error> {
    let names = names(folded, shown);
    let mut ends = Ends::default();
    let mut colors = PaletteMap::default();
    colors.insert("", Kind::Process.color());
    let mut kinds = color_frames(folded, &names, &mut colors);
    let mut sorted: BTreeMap<(Kind, Vec<String>), u64> = BTreeMap::new();
    for stack in folded.stacks.iter().filter(|stack| stack.samples > 0) {
        let root = Kind::of_root(stack);
        ends.add(root, stack.samples)?;
        kinds.insert(root);
        let mut path = Vec::with_capacity(stack.frames.len() + 2);
        if let Some(marker) = marker(stack) {
            colors.insert(&marker, root.color());
            path.push(marker);
        }
        let comm = name(&shown(&stack.comm)).into_owned();
        // A process may be named like a function; the function's colour says more.
        if colors.get(&comm).is_none() {
            colors.insert(&comm, Kind::Process.color());
        }
        path.push(comm);
        let frames: io::Result<Vec<_>> = frames_of(stack, &names).map(|name| name.map(str::to_owned)).collect();
        path.extend(frames?);
        *sorted.entry((root, path)).or_default() += stack.samples;
    }
    let lines = sorted.into_iter().map(|((_, path), samples)| format!("{} {samples}", path.join(";"))).collect();
    Ok(Paths { lines, colors, kinds, ends })
}

/// Gives every frame that is used its colour, and returns the kinds that occur.
fn color_frames(folded: &Folded, names: &[String], colors: &mut PaletteMap) -> BTreeSet<Kind> {
    let has = |origin| folded.frames.iter().any(|frame| frame.origin == origin);
    // Without a caller there is nothing the colour of the leaf could be taken from but the registers it came from.
    let leaf = if !has(Origin::Cfi) && has(Origin::FramePointer) { Kind::FramePointer } else { Kind::Cfi };
    let mut kinds = BTreeSet::new();
    // The frame found by a stack walk decides where a leaf of the same name stands beside it.
    let (leaves, walked): (Vec<_>, Vec<_>) =
        folded.frames.iter().zip(names).partition(|(frame, _)| frame.origin == Origin::Leaf);
    for (frame, name) in leaves.into_iter().chain(walked) {
        let kind = Kind::of(frame.origin, leaf);
        kinds.insert(kind);
        colors.insert(name, kind.color_of(name));
    }
    kinds
}

impl Ends {
    fn add(&mut self, root: Kind, samples: u64) -> Result<(), Error> {
        self.samples = self.samples.checked_add(samples).filter(|&n| n <= MAX_SAMPLES).ok_or(Error::TooManySamples)?;
        match root {
            Kind::Truncated => self.truncated += samples,
            Kind::Broken => self.broken += samples,
            _ => self.complete += samples,
        }
        Ok(())
    }
}
