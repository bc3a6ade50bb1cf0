//! Judges a strategy's stack against the true one.

use super::shadow::TrueFrame;
use fpprof_unwind::{Frame, FrameSource, StackRef, StopReason, TruncatedReason};

/// The verdict on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Every frame and no other. Whether the root was recognised is counted separately.
    Exact,
    /// Right as far as it goes, with a reason why it ends.
    Truncated(StopReason),
    /// Wrong but flagged.
    Flagged(Flag),
    /// Wrong and not flagged.
    Wrong(Wrong),
}

/// A warning that a stack may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// The leaf is flagged: its caller is missing.
    LeafSkipSuspect,
    /// A frame was found with the frame pointer although the strategy does not follow frame pointers.
    FpFallback,
    /// A frame was found with the frame pointer of JIT-compiled code.
    FpInJit,
    /// A frame was found by a heuristic.
    Heuristic,
    /// The stack is marked as broken.
    Broken(fpprof_unwind::BrokenReason),
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wrong {
    /// The leaf's caller is missing; all others are there.
    CallerOfLeafDropped,
    /// Callers are missing, although the stack claims to have reached its root.
    EndsEarly,
    /// A frame is another function, or not code.
    WrongFrame,
    /// The address is right but the CFA is not: whatever is read relative to this frame is wrong.
    WrongFrameAddress,
    /// Frames beyond the root.
    ExtraFrame,
}

impl Verdict {
    /// `exact`, `truncated`, `flagged` or `wrong`.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Truncated(_) => "truncated",
            Self::Flagged(_) => "flagged",
            Self::Wrong(_) => "wrong",
        }
    }

    /// The reason within its class; empty for an exact stack.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "",
            Self::Truncated(stop) => stop.name(),
            Self::Flagged(flag) => flag.name(),
            Self::Wrong(wrong) => wrong.name(),
        }
    }
}

impl Flag {
    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LeafSkipSuspect => "leaf_skip_suspect",
            Self::FpFallback => "fp_fallback",
            Self::FpInJit => "fp_in_jit",
            Self::Heuristic => "heuristic",
            Self::Broken(reason) => reason.name(),
        }
    }
}

impl Wrong {
    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallerOfLeafDropped => "caller_of_leaf_dropped",
            Self::EndsEarly => "ends_early",
            Self::WrongFrame => "wrong_frame",
            Self::WrongFrameAddress => "wrong_frame_address",
            Self::ExtraFrame => "extra_frame",
        }
    }
}

/// What frames are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// Addresses only. The frame record of a frame-pointer chain may be anywhere in its frame, so in realigned frames
    /// its frame addresses differ.
    Address,
    /// Addresses, and CFAs if the stack has them.
    AddressAndCfa,
}

/// Compares a strategy's stack with the true frames, both leaf first.
#[must_use]
pub fn verdict(got: StackRef<'_>, truth: &[TrueFrame], by: Match) -> Verdict {
    let n_frames = got.frames.len();
    let is_last_unread = got.stop == StopReason::Truncated(TruncatedReason::StackSwitch);
    let same = (got.frames.iter().zip(truth).zip(1_usize..))
        .take_while(|((frame, true_frame), nth)| {
            // Nothing was read at the last frame's CFA: it is in a stack that was not copied.
            is_same(frame, true_frame, if is_last_unread && *nth == n_frames { Match::Address } else { by })
        })
        .count();
    let is_prefix = same == n_frames;
    if is_prefix && same == truth.len() {
        return Verdict::Exact;
    }
    if is_prefix && !matches!(got.stop, StopReason::Complete(_)) {
        return Verdict::Truncated(got.stop);
    }
    let wrong = kind(got, truth, same);
    match flag(got, same, wrong) {
        Some(flag) => Verdict::Flagged(flag),
        None => Verdict::Wrong(wrong),
    }
}

/// Whether the frame above the leaf is not the leaf's caller: it was skipped, or the walk ended or failed there.
#[must_use]
pub fn is_caller_of_leaf_missing(got: StackRef<'_>, truth: &[TrueFrame]) -> bool {
    let Some(caller) = truth.get(1) else { return false };
    got.frames.get(1).is_none_or(|next| next.address != caller.address) || is_caller_of_leaf_dropped(got, truth)
}

/// Whether the caller of the leaf is missing from a stack, while that frame's caller is there.
fn is_caller_of_leaf_dropped(got: StackRef<'_>, truth: &[TrueFrame]) -> bool {
    let (Some(next), Some(caller), Some(above)) = (got.frames.get(1), truth.get(1), truth.get(2)) else { return false };
    next.address == above.address && (next.address != caller.address || is_shifted(got, truth))
}

/// Whether the stack is the true one without the leaf's caller. In a recursion only the number of frames shows that.
fn is_shifted(got: StackRef<'_>, truth: &[TrueFrame]) -> bool {
    let (Some(callers), Some(above)) = (got.frames.get(1..), truth.get(2..)) else { return false };
    callers.len() == above.len() && callers.iter().zip(above).all(|(got, truth)| got.address == truth.address)
}

fn is_same(frame: &Frame, truth: &TrueFrame, by: Match) -> bool {
    let has_same_cfa = match (by, truth.cfa) {
        (Match::AddressAndCfa, Some(cfa)) => frame.cfa == 0 || frame.cfa == cfa,
        _ => true,
    };
    frame.address == truth.address && has_same_cfa
}

fn kind(got: StackRef<'_>, truth: &[TrueFrame], same: usize) -> Wrong {
    if is_caller_of_leaf_dropped(got, truth) {
        return Wrong::CallerOfLeafDropped;
    }
    match (got.frames.get(same), truth.get(same)) {
        (Some(frame), Some(truth)) if frame.address == truth.address => Wrong::WrongFrameAddress,
        (Some(_), Some(_)) => Wrong::WrongFrame,
        (Some(_), None) => Wrong::ExtraFrame,
        (None, _) => Wrong::EndsEarly,
    }
}

/// The warning in the stack about its first wrong frame: a frame depends on all those below it.
fn flag(got: StackRef<'_>, same: usize, wrong: Wrong) -> Option<Flag> {
    let leaf = got.frames.first();
    if wrong == Wrong::CallerOfLeafDropped && leaf.is_some_and(|leaf| leaf.flags.leaf_skip_suspect) {
        return Some(Flag::LeafSkipSuspect);
    }
    for frame in got.frames.iter().take(same.saturating_add(1)) {
        if frame.flags.fp_fallback {
            return Some(Flag::FpFallback);
        }
        if frame.flags.fp_in_jit {
            return Some(Flag::FpInJit);
        }
        if frame.source == FrameSource::Heuristic {
            return Some(Flag::Heuristic);
        }
    }
    match got.stop {
        StopReason::Broken(reason) => Some(Flag::Broken(reason)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
