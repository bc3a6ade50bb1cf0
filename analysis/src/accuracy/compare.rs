//! Compares two stacks of one sample.
//!
//! A caller's frame is identified by its return address and the place in memory where that was found. The place
//! distinguishes the frames of a recursion, which have the same return address. It is known if the frame below has a
//! CFA: the return address is just below it, both with call frame information and with frame pointers.
//!
//! ```text
//! reference  leaf  A@10  B@20  C@30  D@40
//! other      leaf        B@20  X@25  D@40     A missing (the caller of the leaf), X wrong, C missing
//! ```
//!
//! If a strategy does not know its CFAs (chains recorded without frame addresses), only return addresses are compared.

use fpprof_unwind::{Frame, StackRef, StopReason};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// How another strategy's stack relates to the reference's, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// It has frames the reference does not have, where the reference continues or reached its root, instead of others.
    WrongFrame,
    /// It has every frame of the reference, and others between them or beyond a root.
    ExtraFrame,
    /// It lacks the caller of the leaf.
    LeafCallerMissing,
    /// It lacks frames further out, and continues after them.
    FrameMissing,
    /// It ends early: all its frames are right.
    Prefix,
    /// It continues where the reference was truncated or broken.
    Longer,
    /// The same frames.
    Same,
}

impl Relation {
    /// Whether the other stack lacks frames of the reference, or has wrong ones.
    #[must_use]
    pub const fn is_worse(self) -> bool {
        !matches!(self, Self::Longer | Self::Same)
    }
}

/// Differences by frame, not counting leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Difference {
    /// Frames both have.
    pub n_same: u64,
    /// Frames of the reference that the other lacks, up to the last frame both have.
    pub n_missing: u64,
    /// Frames of the reference after the last frame both have.
    pub n_not_reached: u64,
    /// Frames of the other that are wrong.
    pub n_wrong: u64,
    /// Frames of the other after the end of a reference that did not reach its root.
    pub n_beyond: u64,
}

/// The result of comparing two stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// The relation.
    pub relation: Relation,
    /// The differences by frame.
    pub difference: Difference,
    /// Index of the reference's frame after which they first differ; `None` if they are the same.
    ///
    /// It is the frame whose caller was missed: for example a function without a frame pointer.
    pub differs_after: Option<usize>,
}

impl Relation {
    /// Every relation, worst first.
    pub const ALL: [Self; 7] = [
        Self::WrongFrame,
        Self::ExtraFrame,
        Self::LeafCallerMissing,
        Self::FrameMissing,
        Self::Prefix,
        Self::Longer,
        Self::Same,
    ];
}

impl Difference {
    /// Adds another difference.
    pub fn add(&mut self, more: &Self) {
        for (to, more) in [
            (&mut self.n_same, more.n_same),
            (&mut self.n_missing, more.n_missing),
            (&mut self.n_not_reached, more.n_not_reached),
            (&mut self.n_wrong, more.n_wrong),
            (&mut self.n_beyond, more.n_beyond),
        ] {
            *to = to.saturating_add(more);
        }
    }
}

impl Comparison {
    /// Compares a stack with a reference of the same sample.
    #[must_use]
    pub fn new(reference: StackRef<'_>, other: StackRef<'_>) -> Self {
        if is_same(reference.frames, other.frames) {
            let n_same = reference.frames.len().saturating_sub(1) as u64;
            let difference = Difference { n_same, ..Difference::default() };
            return Self { relation: Relation::Same, difference, differs_after: None };
        }
        let has_places = has_places(reference.frames) && has_places(other.frames);
        let matched = align(reference.frames, other.frames, has_places);
        judge(reference, &matched)
    }
}

/// For each frame of `other`, the index of the same frame in `reference`. The leaves always match: they are the sampled
/// instruction under every strategy.
pub(crate) fn same_frames(reference: &[Frame], other: &[Frame]) -> Vec<Option<usize>> {
    let has_places = has_places(reference) && has_places(other);
    let leaf = other.first().map(|_| (!reference.is_empty()).then_some(0));
    let callers = align(reference, other, has_places).into_iter().map(|index| index?.checked_add(1));
    leaf.into_iter().chain(callers).collect()
}

/// A caller's return address, and the CFA it was found below (0 if not known).
type Identity = (u64, u64);

fn identities(frames: &[Frame], has_places: bool) -> impl Iterator<Item = Identity> + '_ {
    let pairs = frames.iter().zip(frames.iter().skip(1));
    pairs.map(move |(below, frame)| (frame.address, if has_places { below.cfa } else { 0 }))
}

/// Whether every caller's place in memory is known.
fn has_places(frames: &[Frame]) -> bool {
    frames.iter().rev().skip(1).all(|frame| frame.cfa != 0)
}

fn is_same(reference: &[Frame], other: &[Frame]) -> bool {
    reference.len() == other.len() && reference.iter().zip(other).all(|(a, b)| a.address == b.address)
}

/// For each caller of `other`, the index of the same caller in `reference`, in ascending order.
fn align(reference: &[Frame], other: &[Frame], has_places: bool) -> Vec<Option<usize>> {
    let mut places: FxHashMap<Identity, Vec<usize>> = FxHashMap::default();
    for (index, identity) in identities(reference, has_places).enumerate() {
        places.entry(identity).or_default().push(index);
    }
    let mut next = 0;
    let matched = identities(other, has_places).map(|identity| {
        let candidates = places.get(&identity)?;
        let index = *candidates.get(candidates.partition_point(|&index| index < next))?;
        next = index.saturating_add(1);
        Some(index)
    });
    matched.collect()
}

/// `matched` has, for each caller of the other stack, its index among the reference's callers.
fn judge(reference: StackRef<'_>, matched: &[Option<usize>]) -> Comparison {
    let n_reference = reference.frames.len().saturating_sub(1);
    let n_same = matched.iter().flatten().count();
    // One past the last caller of the reference that the other stack has.
    let reached = matched.iter().flatten().last().map_or(0, |&last| last.saturating_add(1));
    let has_root = matches!(reference.stop, StopReason::Complete(_));
    let n_after = matched.iter().rev().take_while(|index| index.is_none()).count();
    let is_beyond = reached == n_reference && !has_root;
    let n_beyond = if is_beyond { n_after } else { 0 };
    let n_wrong = matched.len().saturating_sub(n_same).saturating_sub(n_beyond);
    let n_missing = reached.saturating_sub(n_same);
    let n_not_reached = n_reference.saturating_sub(reached);
    let mut is_first_missing = false;
    let mut differs_after = matched.len().min(n_reference);
    for (index, found) in matched.iter().enumerate() {
        if *found != Some(index) {
            is_first_missing = index == 0 && found.is_some();
            differs_after = index;
            break;
        }
    }
    let relation = if n_wrong > 0 && n_missing == 0 && n_not_reached == 0 {
        Relation::ExtraFrame
    } else if n_wrong > 0 {
        Relation::WrongFrame
    } else if is_first_missing {
        Relation::LeafCallerMissing
    } else if n_missing > 0 {
        Relation::FrameMissing
    } else if n_beyond > 0 {
        Relation::Longer
    } else if n_not_reached > 0 {
        Relation::Prefix
    } else {
        Relation::Same
    };
    let difference = Difference {
        n_same: n_same as u64,
        n_missing: n_missing as u64,
        n_not_reached: n_not_reached as u64,
        n_wrong: n_wrong as u64,
        n_beyond: n_beyond as u64,
    };
    Comparison { relation, difference, differs_after: (relation != Relation::Same).then_some(differs_after) }
}
