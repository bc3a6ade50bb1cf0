//! Compares a stack with the true one.

use crate::{Chain, Frame};

/// How well the names of a stack, leaf first, match a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// All frames of the chain are there; the index of the first name after them.
    Whole(usize),
    /// All names match, but the chain has more frames.
    Prefix,
    /// The chain without the caller of the leaf, completely or as far as there are names.
    CallerOfLeafMissing,
    /// Something else.
    Other,
}

impl Chain {
    /// Compares the names of a stack with the true stack.
    #[must_use]
    pub fn fit(&self, names: &[&str]) -> Fit {
        match whole(self.truth, names) {
            Some(end) => return Fit::Whole(end),
            None if is_prefix(self.truth, names) => return Fit::Prefix,
            None => {}
        }
        let skips = match self.truth {
            [leaf, Frame::Repeated(name, n), rest @ ..] if *n > 1 => {
                [&[*leaf, Frame::Repeated(name, n.saturating_sub(1))], rest].concat()
            }
            [leaf, _, rest @ ..] => [&[*leaf], rest].concat(),
            _ => return Fit::Other,
        };
        if whole(&skips, names).is_some() || is_prefix(&skips, names) { Fit::CallerOfLeafMissing } else { Fit::Other }
    }

    /// Whether a sample with this leaf has this chain; `None` if the leaf does not identify it.
    #[must_use]
    pub fn has_leaf(&self, name: &str) -> Option<bool> {
        match self.truth.first()? {
            Frame::Named(leaf) | Frame::Repeated(leaf, _) => Some(*leaf == name),
            Frame::Any | Frame::Many => None,
        }
    }

    /// Whether the number of frames is known, so that a missing one is always noticed.
    #[must_use]
    pub fn is_known_throughout(&self) -> bool {
        !self.truth.contains(&Frame::Many)
    }
}

/// The number of names that the whole pattern matches.
fn whole(pattern: &[Frame], names: &[&str]) -> Option<usize> {
    let Some((first, rest)) = pattern.split_first() else { return Some(0) };
    let behind = |n: usize| whole(rest, names.get(n..)?)?.checked_add(n);
    match *first {
        Frame::Named(name) => (names.first() == Some(&name)).then(|| behind(1))?,
        Frame::Any => names.first().and_then(|_| behind(1)),
        Frame::Repeated(name, n) => names.get(..n)?.iter().all(|other| *other == name).then(|| behind(n))?,
        Frame::Many => (0..=names.len()).find_map(behind),
    }
}

/// Whether the names end before the pattern does, and match up to there.
fn is_prefix(pattern: &[Frame], names: &[&str]) -> bool {
    if names.is_empty() {
        return true;
    }
    let Some((first, rest)) = pattern.split_first() else { return false };
    let is_behind = |n: usize| names.get(n..).is_some_and(|names| is_prefix(rest, names));
    match *first {
        Frame::Named(name) => names.first() == Some(&name) && is_behind(1),
        Frame::Any => is_behind(1),
        Frame::Repeated(name, n) => {
            let n = n.min(names.len());
            names.iter().take(n).all(|other| *other == name) && is_behind(n)
        }
        Frame::Many => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Frame::{Any, Many, Named, Repeated};

    fn chain(truth: &'static [Frame]) -> Chain {
        Chain { truth, least_percent: 95, fp: &[], dwarf: &[] }
    }

    /// Check that a stack is recognised as whole, cut, without the caller of its leaf, or different.
    #[test]
    fn stacks_are_distinguished() {
        let plain = chain(&[Named("burn"), Named("mid"), Named("outer"), Named("main")]);
        assert_eq!(plain.fit(&["burn", "mid", "outer", "main", "_start"]), Fit::Whole(4));
        assert_eq!(plain.fit(&["burn", "mid"]), Fit::Prefix);
        assert_eq!(plain.fit(&["burn", "outer", "main"]), Fit::CallerOfLeafMissing);
        assert_eq!(plain.fit(&["burn", "outer"]), Fit::CallerOfLeafMissing);
        assert_eq!(plain.fit(&["burn", "mid", "main"]), Fit::Other);
        assert_eq!(plain.fit(&["burn", "mid", "wrong", "main"]), Fit::Other);
        let deep = chain(&[Named("burn"), Repeated("recurse", 3), Named("main")]);
        assert_eq!(deep.fit(&["burn", "recurse", "recurse", "recurse", "main"]), Fit::Whole(5));
        assert_eq!(deep.fit(&["burn", "recurse", "recurse"]), Fit::Prefix);
        assert_eq!(deep.fit(&["burn", "recurse", "recurse", "main"]), Fit::CallerOfLeafMissing);
        assert_eq!(deep.fit(&["burn", "recurse", "main"]), Fit::Other);
        assert_eq!(chain(&[Many, Named("main")]).fit(&["x", "y", "main", "z"]), Fit::Whole(3));
        assert_eq!(chain(&[Any, Named("main")]).fit(&["x"]), Fit::Prefix);
    }

    /// Check whether a leaf identifies the chain of a sample.
    #[test]
    fn leaves_identify_chains() {
        assert_eq!(chain(&[Named("burn")]).has_leaf("burn"), Some(true));
        assert_eq!(chain(&[Named("burn")]).has_leaf("mid"), Some(false));
        assert_eq!(chain(&[Many, Named("main")]).has_leaf("x"), None);
        assert!(!chain(&[Many, Named("main")]).is_known_throughout());
    }
}
