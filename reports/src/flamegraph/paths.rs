//! Converts folded stacks to lines for inferno, in drawing order.

use super::error::Error;
use super::palette::Kind;
use super::rows::{Rows, more_frames};
use crate::escape::shown;
use crate::folded::{frames_of, name, names};
use fpprof_analysis::folded::{Folded, FoldedStack, Origin, marker};
use fpprof_unwind::StopReason;
use inferno::flamegraph::color::PaletteMap;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The input for inferno.
pub(super) struct Paths {
    /// Folded lines in drawing order, from left to right.
    pub(super) lines: Vec<String>,
    /// Colour of every box.
    pub(super) colors: PaletteMap,
    /// Kinds that occur, for the legend.
    pub(super) kinds: BTreeSet<Kind>,
    /// The amount of each class.
    pub(super) ends: Ends,
    /// The height of the graph.
    pub(super) rows: Rows,
}

/// Samples, or nanoseconds, by how stacks ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) all: u64,
    pub(super) complete: u64,
    pub(super) truncated: u64,
    pub(super) broken: u64,
    /// Threads without a user stack, which are in no class.
    pub(super) no_stack: u64,
}

/// The most samples in one graph: inferno's script and its fractions count in `f64`, and its sums must not overflow.
pub(super) const MAX_SAMPLES: u64 = 1 << 53;

/// Sorts stacks for drawing: complete before truncated before broken, then frame by frame by name.
///
/// Sorting lines as text, inferno's default, splits a box if a sibling's name continues with a character below `;`:
/// `f`, `f::g` and `f;x` would be drawn as `f`, `f::g`, `f`.
pub(super) fn paths(folded: &Folded) -> Result<Paths, Error> {
    let profile = Profile::new(folded, names(folded, shown), Folded::amount);
    let mut ends = Ends::default();
    let mut colors = PaletteMap::default();
    colors.insert("", Kind::Process.color());
    let mut kinds = BTreeSet::new();
    for (stack, root) in profile.stacks() {
        ends.add(stack.stop, folded.amount(stack))?;
        kinds.insert(root.kind);
        root.color(&mut colors);
    }
    let (lines, rows) = lines(&[&profile])?;
    for n in lines.iter().map(|line| line.n_more).filter(|&n| n > 0) {
        colors.insert(more_frames(n), Kind::Process.color());
    }
    // Colours of frames override those of roots: if a process is named like a function, the function's colour says
    // more.
    kinds.extend(color_frames(folded, &profile.names, &mut colors));
    let lines = lines.iter().map(|line| format!("{} {}", line.boxes, line.amounts.iter().sum::<u64>())).collect();
    Ok(Paths { lines, colors, kinds, ends, rows })
}

/// A profile to be drawn, alone or with another.
pub(super) struct Profile<'a> {
    folded: &'a Folded,
    /// Names of all frames.
    names: Vec<String>,
    /// Roots of all stacks.
    roots: Vec<Root>,
    amount: fn(&Folded, &FoldedStack) -> u64,
}

impl<'a> Profile<'a> {
    /// Creates a profile with the names of its frames, and the function that gives a stack's amount.
    pub(super) fn new(folded: &'a Folded, names: Vec<String>, amount: fn(&Folded, &FoldedStack) -> u64) -> Self {
        Self { folded, names, roots: folded.stacks.iter().map(Root::of).collect(), amount }
    }

    /// The stacks with a non-zero amount, and their roots.
    fn stacks(&self) -> impl Iterator<Item = (&'a FoldedStack, &Root)> {
        let stacks = self.folded.stacks.iter().zip(&self.roots);
        stacks.filter(|(stack, _)| (self.amount)(self.folded, stack) > 0)
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(self.roots.iter().flat_map(Root::boxes))
    }
}

/// A line of boxes, root first, and its amount in each profile.
#[derive(Debug)]
pub(super) struct Line<const N: usize> {
    /// Names separated by `;`.
    pub(super) boxes: String,
    /// The number of frames that the last box stands for, if they are not drawn.
    n_more: usize,
    pub(super) amounts: [u64; N],
}

/// The lines of profiles that are drawn together, in drawing order, and the rows. The last profile's amounts are the
/// widths.
///
/// # Errors
/// If a stack has a frame that is missing from the table of frames.
pub(super) fn lines<const N: usize>(profiles: &[&Profile<'_>; N]) -> io::Result<(Vec<Line<N>>, Rows)> {
    let order = Order::new(profiles.iter().flat_map(|profile| profile.texts()));
    let mut sorted: BTreeMap<(Kind, Vec<u32>), [u64; N]> = BTreeMap::new();
    for (at, profile) in profiles.iter().enumerate() {
        for (stack, root) in profile.stacks() {
            let mut path: Vec<u32> = root.boxes().map(|text| order.rank(text)).collect();
            for frame in frames_of(stack, &profile.names) {
                path.push(order.rank(frame?));
            }
            if let Some(own) = sorted.entry((root.kind, path)).or_insert([0; N]).get_mut(at) {
                *own = own.saturating_add((profile.amount)(profile.folded, stack));
            }
        }
    }
    let rows = Rows::of(sorted.iter().map(|((_, path), amounts)| (path.len(), amounts.last().copied().unwrap_or(0))));
    let mut drawn: BTreeMap<(Kind, &[u32], usize), [u64; N]> = BTreeMap::new();
    for ((kind, path), amounts) in &sorted {
        let (boxes, n_more) = rows.drawn(path);
        let sums = drawn.entry((*kind, boxes, n_more)).or_insert([0; N]);
        sums.iter_mut().zip(amounts).for_each(|(sum, own)| *sum = sum.saturating_add(*own));
    }
    let line = |((_, path, n_more), amounts): ((Kind, &[u32], usize), [u64; N])| {
        let mut boxes = order.join(path);
        if n_more > 0 {
            boxes.push(';');
            boxes.push_str(&more_frames(n_more));
        }
        Line { boxes, n_more, amounts }
    };
    Ok((drawn.into_iter().map(line).collect(), rows))
}

/// The boxes below the frames of a stack: its process, and its marker if it is not complete.
struct Root {
    kind: Kind,
    marker: Option<String>,
    comm: String,
}

impl Root {
    fn of(stack: &FoldedStack) -> Self {
        let comm = name(&shown(&stack.comm)).into_owned();
        Self { kind: Kind::of_root(stack), marker: marker(stack.stop), comm }
    }

    /// The boxes, root first.
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

/// Every text of the graph once, sorted: comparing ranks is comparing texts, but faster.
struct Order<'a>(Vec<&'a str>);

impl<'a> Order<'a> {
    fn new(texts: impl Iterator<Item = &'a String>) -> Self {
        let mut texts: Vec<_> = texts.map(String::as_str).collect();
        texts.sort_unstable();
        texts.dedup();
        Self(texts)
    }

    /// The rank of a text that was passed to [`Self::new`].
    fn rank(&self, text: &str) -> u32 {
        u32::try_from(self.0.binary_search(&text).unwrap_or_else(|place| place)).unwrap_or(u32::MAX)
    }

    /// The texts of a path, separated by `;`.
    fn join(&self, path: &[u32]) -> String {
        let text = |&rank: &u32| usize::try_from(rank).ok().and_then(|rank| self.0.get(rank).copied()).unwrap_or("?");
        path.iter().map(text).collect::<Vec<_>>().join(";")
    }
}

/// Assigns every frame its colour, and returns the kinds that occur.
fn color_frames(folded: &Folded, names: &[String], colors: &mut PaletteMap) -> BTreeSet<Kind> {
    let has = |origin| folded.frames.iter().any(|frame| frame.origin == origin);
    // Without callers, only the registers that the leaf came from could tell its colour.
    let leaf = if !has(Origin::Cfi) && has(Origin::FramePointer) { Kind::FramePointer } else { Kind::Cfi };
    // A box that is a leaf in one stack and has callees in another takes the colour by which a walk found it.
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

    /// The amount that has a class: the total for the shares of classes.
    pub(super) fn unwound(&self) -> u64 {
        self.all - self.no_stack
    }
}
