//! Adds up stacks as a tree, by function, or both.

use super::counts::{Chosen, Counts};
use super::error::StoreError;
use super::labels::{Kind, Label, Labels};
use super::rows::{Lists, Rows, Words};
use super::tree::{Sides, Tree};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The longest path in the tree, from the root; deeper frames are pruned. Recorded stacks are shorter.
const MAX_DEPTH: usize = 2000;

/// The unit that is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// Samples.
    #[default]
    Samples,
    /// Their weights: CPU time, time blocked, or occurrences.
    Weight,
}

impl Unit {
    fn column(self) -> &'static str {
        match self {
            Self::Samples => "samples",
            Self::Weight => "weight",
        }
    }
}

/// What to compute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Whether to build the tree of a flame graph.
    pub tree: bool,
    /// Whether to count by function.
    pub functions: bool,
    /// The function whose callers and callees are counted.
    pub chosen: Option<Chosen>,
    /// The unit that is added up.
    pub unit: Unit,
}

/// The sums of one selection (side 0), or of two that are compared (sides 0 and 1).
#[derive(Debug)]
pub struct Stacks {
    pub(super) labels: Labels,
    pub(super) tree: Tree,
    pub(super) counts: Counts,
    /// Samples by how stacks end: `complete`, `truncated`, `broken`, `no_stack`.
    pub(super) ends: BTreeMap<String, Sides>,
    pub(super) total: Sides,
    wanted: Wanted,
    pruned: u32,
}

impl Stacks {
    /// Starts with no stacks.
    ///
    /// # Errors
    /// Never in practice: these few names are below the limit.
    pub fn new(wanted: Wanted) -> Result<Self, StoreError> {
        let mut labels = Labels::default();
        let root = labels.plain(Kind::All, "all")?;
        let pruned = labels.plain(Kind::Pruned, "(pruned)")?;
        let tree = Tree::new(root, pruned);
        let counts = Counts::new(wanted.chosen.clone());
        Ok(Self { labels, tree, counts, ends: BTreeMap::new(), total: [0; 2], wanted, pruned })
    }

    /// The columns that [`Self::add`] needs.
    #[must_use]
    pub fn columns(&self) -> [&'static str; 6] {
        ["process", "stack", "stack_end", "functions", "modules", self.wanted.unit.column()]
    }

    /// Adds rows to a side.
    ///
    /// A path consists of the process, a marker if the stack did not reach its root, and the frames from the root on:
    /// so incomplete stacks do not look like roots of the process. Labels are cached by dictionary index, since most
    /// rows share them.
    ///
    /// # Errors
    /// If a column is missing (then no row was added), or if there are too many names.
    pub fn add(&mut self, side: usize, rows: &Rows) -> Result<(), StoreError> {
        let [processes, classes, ends] = [rows.words("process")?, rows.words("stack")?, rows.words("stack_end")?];
        let (functions, modules) = (rows.lists("functions")?, rows.lists("modules")?);
        if !functions.ranges().eq(modules.ranges()) {
            return Err(StoreError::Column("modules"));
        }
        let samples = rows.counts(self.wanted.unit.column())?;
        let mut frames = Frames::new(functions, modules);
        let (mut process_labels, mut markers) = (FxHashMap::default(), FxHashMap::default());
        let keys = processes.numbers().zip(classes.numbers()).zip(ends.numbers());
        let names = processes.names().zip(classes.names()).zip(ends.names());
        let mut path = Vec::new();
        for (((((process, class), end), ((process_name, class_name), end_name)), range), &samples) in
            keys.zip(names).zip(functions.ranges()).zip(&samples)
        {
            path.clear();
            let label = match process_labels.get(&process) {
                Some(&label) => label,
                None => self.labels.plain(Kind::Process, process_name)?,
            };
            process_labels.insert(process, label);
            path.push(label);
            let marker = match markers.get(&(class, end)) {
                Some(&marker) => marker,
                None => self.marker(class_name, end_name)?,
            };
            markers.insert((class, end), marker);
            path.extend(marker);
            let n_above = path.len();
            for at in range.rev() {
                path.push(frames.label(at, &mut self.labels)?);
            }
            self.add_stack(side, &path, n_above, samples);
            self.add_end(side, class_name, samples);
        }
        Ok(())
    }

    fn add_stack(&mut self, side: usize, path: &[u32], n_above: usize, samples: u64) {
        if let Some(total) = self.total.get_mut(side) {
            *total = total.saturating_add(samples);
        }
        if self.wanted.tree {
            let is_too_deep = path.len() > MAX_DEPTH;
            let rest = is_too_deep.then_some(self.pruned);
            self.tree.add(path.iter().copied().take(MAX_DEPTH).chain(rest), side, samples);
        }
        if self.wanted.functions {
            self.counts.add(side, path.get(n_above..).unwrap_or_default(), &self.labels, samples);
        }
    }

    fn add_end(&mut self, side: usize, class: &str, samples: u64) {
        if !self.ends.contains_key(class) {
            self.ends.insert(class.to_owned(), [0; 2]);
        }
        if let Some(n) = self.ends.get_mut(class).and_then(|sides| sides.get_mut(side)) {
            *n = n.saturating_add(samples);
        }
    }

    /// The label placed between the process and the frames of a stack that did not reach its root.
    fn marker(&mut self, class: &str, end: &str) -> Result<Option<u32>, StoreError> {
        let kind = match class {
            "truncated" => Kind::Truncated,
            "broken" => Kind::Broken,
            _ => return Ok(None),
        };
        self.labels.plain(kind, &format!("[{class}: {end}]")).map(Some)
    }
}

/// The frames of a batch of rows; caches the label of each pair of function and module.
struct Frames<'a> {
    functions: Words<'a>,
    modules: Words<'a>,
    keys: Vec<(usize, usize)>,
    known: FxHashMap<(usize, usize), u32>,
}

impl<'a> Frames<'a> {
    fn new(functions: Lists<'a>, modules: Lists<'a>) -> Self {
        let (functions, modules) = (functions.words, modules.words);
        let keys = functions.numbers().zip(modules.numbers()).collect();
        Self { functions, modules, keys, known: FxHashMap::default() }
    }

    /// The label of the frame at an index into the concatenated lists.
    fn label(&mut self, at: usize, labels: &mut Labels) -> Result<u32, StoreError> {
        let key = self.keys.get(at).copied().unwrap_or_default();
        if let Some(&label) = self.known.get(&key) {
            return Ok(label);
        }
        let (name, module) = (labels.name(self.functions.value(key.0))?, labels.name(self.modules.value(key.1))?);
        let label = labels.label(Label { kind: Kind::Frame, name, module })?;
        self.known.insert(key, label);
        Ok(label)
    }
}
