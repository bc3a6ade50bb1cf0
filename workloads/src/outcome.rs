//! The true stacks of a program, and the stacks that each strategy must return.

/// One way in which a program spends its time.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// The true stack, leaf first, from the function that burns CPU to `main` or the thread's start function.
    pub truth: &'static [Frame],
    /// The minimum share, in per cent, of the samples in user code of this program and its children that have this
    /// chain.
    pub least_percent: u8,
    /// The acceptable results of the frame-pointer chain. Empty if nothing can be stated, as for programs built without
    /// frame pointers.
    pub fp: &'static [Outcome],
    /// The acceptable results from registers, stack bytes and call frame information.
    pub dwarf: &'static [Outcome],
}

/// One frame, or several, of an expected stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// A frame in this function.
    Named(&'static str),
    /// This many consecutive frames in this function.
    Repeated(&'static str, usize),
    /// Exactly one frame, anywhere: in a library without symbols, or in generated code.
    Any,
    /// Any number of frames, or none.
    Many,
}

/// A stack that a strategy must return.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The frames from the leaf on. More may follow unless [`Self::is_all`].
    pub frames: &'static [Frame],
    /// Whether no more frames may follow.
    pub is_all: bool,
    /// How the stack must end; `None` if that depends on other code, such as the C library's use of rbp.
    pub stop: Option<Stop>,
    /// Whether the strategy must report that the leaf's caller is missing (frame pointers only).
    pub is_leaf_skip_suspect: bool,
}

/// How a stack ends, by the names of stop reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// At any root.
    Complete,
    /// Truncated, for this reason.
    Truncated(&'static str),
    /// Broken, for this reason.
    Broken(&'static str),
}

impl Stop {
    /// Whether this is the stop reason with that class and name, such as `truncated` and `chunk_end`.
    #[must_use]
    pub fn is(self, class: &str, name: &str) -> bool {
        match self {
            Self::Complete => class == "complete",
            Self::Truncated(reason) => class == "truncated" && reason == name,
            Self::Broken(reason) => class == "broken" && reason == name,
        }
    }
}

impl Outcome {
    /// Whether a stack matches: the names of its functions, leaf first, and the class and name of its stop reason. A
    /// frame without a known function must have a name that is in no manifest, such as an empty one.
    #[must_use]
    pub fn matches(&self, names: &[&str], class: &str, stop: &str) -> bool {
        self.stop.is_none_or(|expected| expected.is(class, stop)) && has_frames(self.frames, names, self.is_all)
    }
}

/// Whether the names match the pattern: exactly if `is_all`, else as a prefix.
fn has_frames(pattern: &[Frame], names: &[&str], is_all: bool) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return !is_all || names.is_empty() };
    match *first {
        Frame::Named(name) => {
            names.split_first().is_some_and(|(n, names)| *n == name && has_frames(rest, names, is_all))
        }
        Frame::Any => names.split_first().is_some_and(|(_, names)| has_frames(rest, names, is_all)),
        Frame::Repeated(name, count) => names
            .split_at_checked(count)
            .is_some_and(|(repeated, names)| repeated.iter().all(|n| *n == name) && has_frames(rest, names, is_all)),
        Frame::Many => {
            (0..=names.len()).any(|skipped| names.get(skipped..).is_some_and(|names| has_frames(rest, names, is_all)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Frame::{Any, Many, Named, Repeated};

    fn outcome(frames: &'static [Frame]) -> Outcome {
        Outcome { frames, is_all: false, stop: Some(Stop::Complete), is_leaf_skip_suspect: false }
    }

    /// Check that frames are matched from the leaf on, and that more may follow unless `is_all`.
    #[test]
    fn matches_from_the_leaf() {
        let chain = outcome(&[Named("burn"), Named("mid")]);
        assert!(chain.matches(&["burn", "mid"], "complete", "_start"));
        assert!(chain.matches(&["burn", "mid", "main"], "complete", "undefined_ra"));
        assert!(!chain.matches(&["burn"], "complete", "_start"));
        assert!(!chain.matches(&["mid", "burn"], "complete", "_start"));
        assert!(!chain.matches(&["burn", "main", "mid"], "complete", "_start"));
        let all = Outcome { is_all: true, ..chain };
        assert!(all.matches(&["burn", "mid"], "complete", "_start"));
        assert!(!all.matches(&["burn", "mid", "main"], "complete", "_start"));
    }

    /// Check that repetitions are counted, and that wildcards take one frame or as many as needed.
    #[test]
    fn matches_repetitions_and_wildcards() {
        let deep = outcome(&[Named("burn"), Repeated("recurse", 2), Named("main")]);
        assert!(deep.matches(&["burn", "recurse", "recurse", "main"], "complete", "_start"));
        assert!(!deep.matches(&["burn", "recurse", "main"], "complete", "_start"));
        assert!(!deep.matches(&["burn", "recurse", "recurse", "recurse", "main"], "complete", "_start"));
        let wild = outcome(&[Any, Many, Named("main")]);
        assert!(wild.matches(&["", "main"], "complete", "_start"));
        assert!(wild.matches(&["", "f", "main", "g", "main"], "complete", "_start"));
        assert!(!wild.matches(&["main"], "complete", "_start"));
        assert!(!wild.matches(&["", "f"], "complete", "_start"));
    }

    /// Check that class and reason both must match, and that all roots are equivalent.
    #[test]
    fn matches_the_stop_reason() {
        let truncated = Outcome { stop: Some(Stop::Truncated("no_cfi")), ..outcome(&[]) };
        assert!(truncated.matches(&[], "truncated", "no_cfi"));
        assert!(!truncated.matches(&[], "truncated", "no_module"));
        assert!(!truncated.matches(&[], "broken", "no_cfi"));
        assert!(!outcome(&[]).matches(&[], "truncated", "chunk_end"));
        assert!(Outcome { stop: None, ..outcome(&[]) }.matches(&[], "broken", "loop"));
    }
}
