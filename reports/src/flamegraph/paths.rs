//! From folded stacks to the lines inferno draws, in the order they are drawn.

use super::draw::Error;
use super::palette::Kind;
use crate::escape::shown;
use crate::folded::{frames_of, marker, name, names};
use fpprof_analysis::folded::{Folded, FoldedStack, Origin};
use fpprof_unwind::StopReason;
use inferno::flamegraph::color::PaletteMap;
use std::collections::{BTreeMap, BTreeSet};

/// What inferno is given.
pub(super) struct Paths {
    /// Folded lines, in the order they are drawn from left to right.
    pub(super) lines: Vec<String>,
    /// Colour of every box.
    pub(super) colors: PaletteMap,
    /// Kinds that occur.
    pub(super) kinds: BTreeSet<Kind>,
    /// How much of each class.
    pub(super) ends: Ends,
}

/// Samples, or nanoseconds, by class of their end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) all: u64,
    pub(super) complete: u64,
    pub(super) truncated: u64,
    pub(super) broken: u64,
    /// Of threads without a user stack: of no class.
    pub(super) no_stack: u64,
}

/// Most samples in one graph: inferno's script and its fractions count in `f64`, and its sums must not overflow.
const MAX_SAMPLES: u64 = 1 << 53;

/// Sorts stacks for drawing: complete before truncated before broken, then frame by frame by name.
///
/// Sorting lines as text, which is what inferno does by default, tears a box apart when the name of a sibling goes on
/// with a character below `;`: `f`, `f::g` and `f;x` would be drawn as `f`, `f::g`, `f`.
pub(super) fn paths(folded: &Folded) -> Result<Paths, Error> {
    let names = names(folded, shown);
    let roots: Vec<Root> = folded.stacks.iter().map(Root::of).collect();
    let order = Order::new(names.iter().chain(roots.iter().flat_map(Root::boxes)));
    let mut ends = Ends::default();
    let mut colors = PaletteMap::default();
    colors.insert("", Kind::Process.color());
    let mut kinds = BTreeSet::new();
    let mut sorted: BTreeMap<(Kind, Vec<u32>), u64> = BTreeMap::new();
    for (stack, root) in folded.stacks.iter().zip(&roots).filter(|(stack, _)| folded.amount(stack) > 0) {
        let amount = folded.amount(stack);
        ends.add(stack.stop, amount)?;
        kinds.insert(root.kind);
        root.color(&mut colors);
        let mut path: Vec<u32> = root.boxes().map(|text| order.rank(text)).collect();
        for frame in frames_of(stack, &names) {
            path.push(order.rank(frame?));
        }
        *sorted.entry((root.kind, path)).or_default() += amount;
    }
    // After the roots: a process may be named like a function, and the function's colour says more.
    kinds.extend(color_frames(folded, &names, &mut colors));
    let line = |((_, path), samples): ((Kind, Vec<u32>), u64)| format!("{} {samples}", order.join(&path));
    Ok(Paths { lines: sorted.into_iter().map(line).collect(), colors, kinds, ends })
}

/// What stands below the frames of a stack: its process, and its marker when it is not complete.
struct Root {
    kind: Kind,
    marker: Option<String>,
    comm: String,
}

impl Root {
    fn of(stack: &FoldedStack) -> Self {
        let comm = name(&shown(&stack.comm)).into_owned();
        Self { kind: Kind::of_root(stack), marker: marker(stack), comm }
    }

    /// Root first.
    fn boxes(&self) -> impl Iterator<Item = &String> {
        self.marker.iter().chain([&self.comm])
    }

    fn color(&self, colors: &mut PaletteMap) {
        if let Some(marker) = &self.marker {
            colors.insert(marker, self.kind.color());
        }
        colors.insert(&self.comm, Kind::Process.color());
    }
}

/// Every text of the graph once, sorted: comparing ranks is comparing texts.
struct Order<'a>(Vec<&'a str>);

impl<'a> Order<'a> {
    fn new(texts: impl Iterator<Item = &'a String>) -> Self {
        let mut texts: Vec<_> = texts.map(String::as_str).collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts)
    }

    /// Rank of a text that [`Self::new`] was given.
    fn rank(&self, text: &str) -> u32 {
        u32::try_from(self.0.binary_search(&text).unwrap_or_else(|place| place)).unwrap_or(u32::MAX)
    }

    /// Texts of a path, with `;` between them.
    fn join(&self, path: &[u32]) -> String {
        let text = |&rank: &u32| usize::try_from(rank).ok().and_then(|rank| self.0.get(rank).copied()).unwrap_or("?");
        path.iter().map(text).collect::<Vec<_>>().join(";")
    }
}

/// Gives every frame its colour, and returns the kinds that occur.
fn color_frames(folded: &Folded, names: &[String], colors: &mut PaletteMap) -> BTreeSet<Kind> {
    let has = |origin| folded.frames.iter().any(|frame| frame.origin == origin);
    // Without a caller there is nothing the colour of the leaf could be taken from but the registers it came from.
    let leaf = if !has(Origin::Cfi) && has(Origin::FramePointer) { Kind::FramePointer } else { Kind::Cfi };
    // A box that is a leaf in one stack and has callees in another takes the colour of how a walk found it.
    let (leaves, walked): (Vec<_>, Vec<_>) =
        folded.frames.iter().zip(names).partition(|(frame, _)| frame.origin == Origin::Leaf);
    let mut kinds = BTreeSet::new();
    for (frame, name) in leaves.into_iter().chain(walked) {
        let kind = Kind::of(frame.origin, leaf);
        kinds.insert(kind);
        colors.insert(name, kind.color_of(name));
    }
    kinds
}

impl Ends {
    fn add(&mut self, stop: StopReason, samples: u64) -> Result<(), Error> {
        self.all = self.all.checked_add(samples).filter(|&n| n <= MAX_SAMPLES).ok_or(Error::TooManySamples)?;
        let class = match stop {
            StopReason::Complete(_) => &mut self.complete,
            StopReason::Truncated(_) => &mut self.truncated,
            StopReason::Broken(_) => &mut self.broken,
            StopReason::NoStack(_) => &mut self.no_stack,
        };
        *class += samples;
        Ok(())
    }

    /// What has a class: shares of classes are shares of it.
    pub(super) fn unwound(&self) -> u64 {
        self.all - self.no_stack
    }
}
