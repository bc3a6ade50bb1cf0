//! Counts by function over the last seconds.

use fpprof_analysis::folded::Folded;
use fpprof_analysis::summary::Quality;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// The most functions kept per second and strategy; the others (those with the fewest samples) are summed up in one
/// row.
pub(crate) const MAX_ROWS: usize = 4096;
/// The name of the row of all other functions.
const THE_REST: &str = "(functions with fewer samples)";

/// A function in a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) name: Rc<str>,
    pub(crate) module: Rc<str>,
    pub(crate) comm: Rc<str>,
    pub(crate) pid: u32,
}

/// Samples of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Count {
    /// Samples with the function as leaf.
    pub(crate) own: u64,
    /// Samples with the function anywhere on the stack.
    pub(crate) total: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.own = self.own.saturating_add(other.own);
        self.total = self.total.saturating_add(other.total);
    }
}

/// How stacks ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) samples: u64,
    pub(crate) complete: u64,
    pub(crate) truncated: u64,
    pub(crate) broken: u64,
}

impl From<&Quality> for Ends {
    fn from(quality: &Quality) -> Self {
        let sum = |by_reason: &BTreeMap<String, u64>| by_reason.values().sum();
        Self {
            samples: quality.samples,
            complete: quality.complete,
            truncated: sum(&quality.truncated),
            broken: sum(&quality.broken),
        }
    }
}

impl std::ops::AddAssign for Ends {
    fn add_assign(&mut self, other: Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.complete = self.complete.saturating_add(other.complete);
        self.truncated = self.truncated.saturating_add(other.truncated);
        self.broken = self.broken.saturating_add(other.broken);
    }
}

/// The counts of one second under one strategy. Owned strings, since it is passed between threads and processes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) rows: Vec<(OwnedKey, Count)>,
    pub(crate) ends: Ends,
}

/// [`Key`] with owned strings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct OwnedKey {
    pub(crate) name: String,
    pub(crate) module: String,
    pub(crate) comm: String,
    pub(crate) pid: u32,
}

/// Counts the stacks of a second. A function counts once for each sample that contains it.
pub(crate) fn count(folded: &Folded, quality: Option<&Quality>) -> Counts {
    let mut counts: HashMap<(u32, &str, &str, &str), Count> = HashMap::new();
    let mut seen = HashSet::new();
    for stack in &folded.stacks {
        seen.clear();
        let mut leaf = None;
        for frame in stack.frames.iter().filter_map(|&frame| folded.frames.get(frame as usize)) {
            let key = (stack.pid, stack.comm.as_str(), frame.name.as_str(), frame.module.as_str());
            leaf = Some(key);
            if seen.insert(key) {
                *counts.entry(key).or_default() += Count { own: 0, total: stack.samples };
            }
        }
        if let Some(count) = leaf.and_then(|leaf| counts.get_mut(&leaf)) {
            *count += Count { own: stack.samples, total: 0 };
        }
    }
    let owned = |(pid, comm, name, module): (u32, &str, &str, &str)| OwnedKey {
        name: name.to_owned(),
        module: module.to_owned(),
        comm: comm.to_owned(),
        pid,
    };
    let mut rows: Vec<(OwnedKey, Count)> = counts.into_iter().map(|(key, count)| (owned(key), count)).collect();
    rows.sort_unstable_by(|(a, x), (b, y)| (y.own, y.total).cmp(&(x.own, x.total)).then_with(|| a.cmp(b)));
    // Only own samples add up: a sample counts in the totals of several functions.
    let rest: u64 = rows.iter().skip(MAX_ROWS).map(|(_, count)| count.own).sum();
    rows.truncate(MAX_ROWS);
    if rest > 0 {
        rows.push((owned((0, "", THE_REST, "")), Count { own: rest, total: rest }));
    }
    Counts { rows, ends: quality.map(Ends::from).unwrap_or_default() }
}

/// The last seconds, by strategy.
#[derive(Debug)]
pub(crate) struct Window {
    seconds: usize,
    past: VecDeque<BTreeMap<String, Counts>>,
}

impl Window {
    /// Creates a window of so many seconds.
    pub(crate) fn new(seconds: usize) -> Self {
        Self { seconds: seconds.max(1), past: VecDeque::new() }
    }

    /// Adds the newest second, and removes those that are too old.
    pub(crate) fn push(&mut self, second: BTreeMap<String, Counts>) {
        while self.past.len() >= self.seconds {
            self.past.pop_front();
        }
        self.past.push_back(second);
    }

    /// How stacks ended under a strategy, over the window.
    pub(crate) fn ends(&self, strategy: &str) -> Ends {
        let mut all = Ends::default();
        self.past.iter().filter_map(|second| second.get(strategy)).for_each(|counts| all += counts.ends);
        all
    }

    /// All functions under a strategy; those of different processes are merged unless `by_process`.
    pub(crate) fn rows(&self, strategy: &str, by_process: bool) -> Vec<(Key, Count)> {
        let mut sums: HashMap<(&str, &str, &str, u32), Count> = HashMap::new();
        for (key, count) in self.past.iter().filter_map(|second| second.get(strategy)).flat_map(|counts| &counts.rows) {
            let (comm, pid) = if by_process { (key.comm.as_str(), key.pid) } else { ("", 0) };
            *sums.entry((&key.name, &key.module, comm, pid)).or_default() += *count;
        }
        let rows = sums.into_iter().map(|((name, module, comm, pid), count)| {
            (Key { name: name.into(), module: module.into(), comm: comm.into(), pid }, count)
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests;
