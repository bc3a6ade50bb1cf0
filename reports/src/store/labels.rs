//! Interns names and labels of nodes and functions.

use super::error::StoreError;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// The most names, and the most labels, while an answer is computed: some hundred megabytes.
const MAX: usize = 2_000_000;

/// The kind of a flame graph's node. The values appear in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// The root.
    All = 0,
    /// All stacks of a process.
    Process = 1,
    /// A function.
    Frame = 2,
    /// Truncated stacks, by reason.
    Truncated = 3,
    /// Broken stacks, by reason.
    Broken = 4,
    /// All callees that were left out.
    Pruned = 5,
}

/// A label; its names are interned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Label {
    pub(super) kind: Kind,
    pub(super) name: u32,
    /// For functions, the name of the file they are in; else the empty name.
    pub(super) module: u32,
}

/// Interned names and labels, numbered in order of appearance.
#[derive(Debug, Default)]
pub(super) struct Labels {
    names: Vec<Rc<str>>,
    numbers: FxHashMap<Rc<str>, u32>,
    labels: Vec<Label>,
    label_numbers: FxHashMap<Label, u32>,
}

impl Labels {
    /// Interns a name; returns its number.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn name(&mut self, name: &str) -> Result<u32, StoreError> {
        if let Some(&number) = self.numbers.get(name) {
            return Ok(number);
        }
        let number = next(self.names.len())?;
        let name: Rc<str> = name.into();
        self.names.push(Rc::clone(&name));
        self.numbers.insert(name, number);
        Ok(number)
    }

    /// Interns a label; returns its number.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn label(&mut self, label: Label) -> Result<u32, StoreError> {
        if let Some(&number) = self.label_numbers.get(&label) {
            return Ok(number);
        }
        let number = next(self.labels.len())?;
        self.labels.push(label);
        self.label_numbers.insert(label, number);
        Ok(number)
    }

    /// Interns a label without a module; returns its number.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn plain(&mut self, kind: Kind, name: &str) -> Result<u32, StoreError> {
        let (name, module) = (self.name(name)?, self.name("")?);
        self.label(Label { kind, name, module })
    }

    /// A name by its number.
    pub(super) fn text(&self, name: u32) -> &str {
        self.names.get(name as usize).map_or("", |name| name)
    }

    /// A label by its number.
    pub(super) fn get(&self, label: u32) -> Option<Label> {
        self.labels.get(label as usize).copied()
    }
}

fn next(n: usize) -> Result<u32, StoreError> {
    u32::try_from(n).ok().filter(|_| n < MAX).ok_or(StoreError::TooMany(MAX))
}
