//! Compares two profiles function by function, by their shares.
//!
//! Counts are normalised: a longer recording alone changes nothing. The interval of a difference treats samples as
//! independent draws. Two runs of the same program differ by more than that, so a difference within its interval is not
//! one, and a difference outside it may still be due to the run. Two views of the same samples have no interval, since
//! there is no sampling error between them.

use crate::folded::Folded;
use crate::hottest::hottest;
use crate::statistics::{CONFIDENCE, Interval, percent, share_difference};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How two profiles differ. Field names are the keys of `diff --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    /// The baseline.
    pub before: Side,
    /// The profile compared with it.
    pub after: Side,
    /// Functions of either, largest change of either share first.
    pub functions: Vec<Change>,
    /// What was left out or went wrong, as text.
    pub warnings: Vec<String>,
}

/// One of two profiles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Its name, such as the recording's file.
    pub label: String,
    /// The strategy its stacks were unwound with.
    pub strategy: String,
    /// Its samples: the denominator of the functions' shares.
    pub samples: u64,
    /// Samples of threads without a user stack.
    #[serde(default)]
    pub no_stack: u64,
    /// Stacks that reached their root.
    pub complete: u64,
}

impl Side {
    /// Its samples with a user stack: the denominator of shares of stacks.
    #[must_use]
    pub fn stacks(&self) -> u64 {
        self.samples.saturating_sub(self.no_stack)
    }
}

/// A function in both profiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Demangled name, or `module+0xoffset`.
    pub name: String,
    /// Base name of its file; `before → after` if that has another name on each side.
    pub module: String,
    /// Samples in which it was the leaf.
    #[serde(rename = "self")]
    pub self_samples: Shift,
    /// Samples in which it was anywhere on the stack.
    pub total_samples: Shift,
}

/// A count in both profiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// Samples before.
    pub before: u64,
    /// Samples after.
    pub after: u64,
    /// Per cent of all samples before.
    pub before_percent: f64,
    /// Per cent of all samples after.
    pub after_percent: f64,
    /// After minus before, in percentage points: positive if it grew. 0 if either side has no samples.
    pub points: f64,
    /// 95 % confidence interval of `points`; `None` for two views of the same samples.
    pub interval: Option<Interval>,
}

impl Shift {
    /// Compares counts given as (count, total). `same_samples`: both are views of the same samples.
    #[must_use]
    pub fn new(before: (u64, u64), after: (u64, u64), same_samples: bool) -> Self {
        let [before_percent, after_percent] = [before, after].map(|(n, all)| percent(n, all).unwrap_or(0.0));
        let interval = (!same_samples).then(|| share_difference(before, after, CONFIDENCE)).flatten();
        Self {
            before: before.0,
            after: after.0,
            before_percent,
            after_percent,
            points: if before.1 == 0 || after.1 == 0 { 0.0 } else { after_percent - before_percent },
            interval: interval.map(|interval| Interval { low: interval.low * 100.0, high: interval.high * 100.0 }),
        }
    }

    /// Whether the interval excludes 0; without one, whether there is any difference.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.interval.map_or(self.points != 0.0, |interval| interval.low > 0.0 || interval.high < 0.0)
    }
}

/// Compares two profiles. `same_samples`: both are views of the same samples.
///
/// Functions with equal changes are ordered by name, so that the order is deterministic.
#[must_use]
pub fn changes(before: (Side, &Folded), after: (Side, &Folded), same_samples: bool) -> Changes {
    let mut counts = Counts::new();
    for (side, folded) in [before.1, after.1].into_iter().enumerate() {
        for function in hottest(folded, usize::MAX) {
            let both = counts.entry((function.name, function.module)).or_default();
            if let Some(own) = both.get_mut(side) {
                *own = (function.self_samples, function.total_samples);
            }
        }
    }
    pair_renamed(&mut counts);
    let all = (before.0.samples, after.0.samples);
    let shift = |before: u64, after: u64| Shift::new((before, all.0), (after, all.1), same_samples);
    let change = |(function, [before, after]): ((String, String), [(u64, u64); 2])| Change {
        name: function.0,
        module: function.1,
        self_samples: shift(before.0, after.0),
        total_samples: shift(before.1, after.1),
    };
    let mut functions: Vec<Change> = counts.into_iter().map(change).collect();
    let size = |change: &Change| change.self_samples.points.abs().max(change.total_samples.points.abs());
    functions.sort_by(|a, b| size(b).total_cmp(&size(a)));
    Changes { before: before.0, after: after.0, functions, warnings: Vec::new() }
}

/// Counts of functions on both sides, by name and module.
type Counts = BTreeMap<(String, String), [(u64, u64); 2]>;

/// Pairs functions of the same name if each is in a file that only its side has, such as `libc-2.31.so` and `libc.so.6`: another
/// version of a file may have another name.
fn pair_renamed(counts: &mut Counts) {
    let is_on =
        |counts: &[(u64, u64); 2], side: usize| counts.get(side).is_some_and(|(own, total)| *own > 0 || *total > 0);
    let modules = [0, 1].map(|side| {
        let there = counts.iter().filter(|(_, counts)| is_on(counts, side));
        there.map(|((_, module), _)| module.clone()).collect::<BTreeSet<_>>()
    });
    let [before, after] = &modules;
    let mut lone: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
    for (name, module) in counts.keys() {
        let side = match (before.contains(module), after.contains(module)) {
            (true, false) => 0,
            (false, true) => 1,
            _ => continue,
        };
        if let Some(modules) = lone.entry(name.clone()).or_default().get_mut(side) {
            modules.push(module.clone());
        }
    }
    for (name, modules) in lone {
        let [[before], [after]] = &modules.each_ref().map(Vec::as_slice) else { continue };
        let (before, after) = ((name.clone(), before.clone()), (name.clone(), after.clone()));
        let (Some(old), Some(new)) = (counts.remove(&before), counts.remove(&after)) else { continue };
        counts.insert((name, format!("{} → {}", before.1, after.1)), [old[0], new[1]]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(stacks: &[(&[&str], u64)]) -> Folded {
        stacks.iter().copied().collect()
    }

    fn side(label: &str, samples: u64) -> Side {
        Side { label: label.to_owned(), strategy: "dwarf".to_owned(), samples, no_stack: 0, complete: samples }
    }

    /// Check that functions of files which only one side has are paired by name, but not if several could be meant.
    #[test]
    fn renamed_files_are_paired() {
        let key = |name: &str, module: &str| (name.to_owned(), module.to_owned());
        let (old, new) = ([(1, 2), (0, 0)], [(0, 0), (3, 4)]);
        let mut counts = Counts::from([
            (key("f", "libc-2.31.so"), old),
            (key("f", "libc.so.6"), new),
            (key("g", "libc-2.31.so"), old),
            (key("g", "libc.so.6"), new),
            (key("g", "libm.so.6"), new),
            (key("main", "prog"), [(5, 5), (6, 6)]),
            (key("h", "prog"), old),
            (key("h", "libm.so.6"), new),
        ]);
        pair_renamed(&mut counts);
        assert_eq!(counts.get(&key("f", "libc-2.31.so → libc.so.6")), Some(&[(1, 2), (3, 4)]));
        assert_eq!(counts.len(), 7, "{counts:?}");
    }

    /// Check that shares are compared, not counts, that growth is positive, that a function of only one side is
    /// included, and that swapping the sides only changes the signs.
    #[test]
    fn shares_are_compared() {
        let old = folded(&[(&["main", "a"], 300), (&["main", "b"], 690), (&["main", "gone"], 10)]);
        let new = folded(&[(&["main", "a"], 6_000), (&["main", "b"], 4_000)]);
        let there = changes((side("old", 1_000), &old), (side("new", 10_000), &new), false);
        let of = |changes: &Changes, name: &str| changes.functions.iter().find(|f| f.name == name).unwrap().clone();
        let a = of(&there, "a").self_samples;
        assert_eq!((a.before, a.after, a.before_percent, a.after_percent), (300, 6_000, 30.0, 60.0));
        assert!((a.points - 30.0).abs() < 1e-9 && a.differs());
        let interval = a.interval.unwrap();
        assert!(interval.low < 30.0 && 30.0 < interval.high && interval.low > 25.0, "{interval:?}");
        let main = of(&there, "main").total_samples;
        assert_eq!((main.points, main.differs()), (0.0, false));
        assert_eq!(of(&there, "gone").self_samples.points, -1.0);
        let names: Vec<_> = there.functions.iter().map(|change| change.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "gone", "main"]);
        let back = changes((side("new", 10_000), &new), (side("old", 1_000), &old), false);
        for (there, back) in there.functions.iter().zip(&back.functions) {
            assert_eq!(there.name, back.name);
            assert!((there.self_samples.points + back.self_samples.points).abs() < 1e-9);
        }
    }

    /// Check that a profile does not differ from itself, and that two views of the same samples have no interval.
    #[test]
    fn nothing_changes_against_itself() {
        let one = folded(&[(&["main", "a"], 3), (&["main", "b"], 1)]);
        let same = changes((side("x", 4), &one), (side("x", 4), &one), false);
        assert!(same.functions.iter().all(|f| !f.self_samples.differs() && f.total_samples.points == 0.0));
        let views = changes((side("x", 4), &one), (side("x", 4), &folded(&[(&["main", "a"], 4)])), true);
        assert!(views.functions.iter().all(|f| f.self_samples.interval.is_none()));
        assert!(views.functions.iter().any(|f| f.self_samples.differs()));
        let nothing = changes((side("x", 0), &Folded::default()), (side("x", 4), &one), false);
        assert!(nothing.functions.iter().all(|f| f.self_samples.points.is_finite() && !f.self_samples.differs()));
    }
}
