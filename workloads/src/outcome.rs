//! What the stacks of a program are, and what each strategy must make of them.

/// One way a program spends its time.
#[derive(Debug, Clone, Copy)]
pub struct Chain {
    /// What really is on the stack, leaf first, from the function that burns CPU to `main` or the thread's start.
    pub truth: &'static [Frame],
    /// The least share of the samples in user code, of this program and its children, that have it.
    pub least_percent: u8,
    /// What the frame-pointer chain gives: any of these. Empty where nothing can be said, as for programs that are
    /// built without frame pointers.
    pub fp: &'static [Outcome],
    /// What registers, stack bytes and call frame information give: any of these.
    pub dwarf: &'static [Outcome],
}

/// One frame, or several, of an expected stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// In this function.
    Named(&'static str),
    /// In this function, exactly so many times.
    Repeated(&'static str, usize),
    /// Exactly one frame, wherever it is: in a library without names, in generated code.
    Any,
    /// Any number of frames, or none.
    Many,
}

/// A stack as a strategy must give it.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    /// The frames from the leaf on. Behind the last one there may be more, unless [`Self::is_all`].
    pub frames: &'static [Frame],
    /// There are no more frames.
    pub is_all: bool,
    /// How the stack must end; `None` where that depends on others, as on the C library's use of rbp.
    pub stop: Option<Stop>,
    /// Whether the strategy must say that the leaf's caller is missing (frame pointers only).
    pub is_leaf_skip_suspect: bool,
}

/// How a stack ends, in the words of the stop reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// With a root, whichever.
    Complete,
    /// With this reason.
    Truncated(&'static str),
    /// With this reason.
    Broken(&'static str),
}

impl Stop {
    /// Whether this is a stop reason of that class and name, as `truncated` and `chunk_end`.
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
    /// Whether a stack is as stated: the names of its functions, leaf first, and the class and name of its stop reason.
    /// A frame whose function is not known has no name that is in a manifest, for example an empty one.
    #[must_use]
    pub fn matches(&self, names: &[&str], class: &str, stop: &str) -> bool {
        self.stop.is_none_or(|expected| expected.is(class, stop)) && has_frames(self.frames, names, self.is_all)
    }
}

/// Whether the names begin with the pattern, or are it.
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

    /// Check that frames are matched from the leaf on, and that more may follow unless that is all.
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

    /// Check that class and reason both count, and that the roots are alike.
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
