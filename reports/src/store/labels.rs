//! What nodes and functions are called: each name once.

use super::error::StoreError;
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Most names, and most labels, of an answer under way: some hundred megabytes.
const MAX: usize = 2_000_000;

/// What a node of a flame graph is. The values are those of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Everything.
    All = 0,
    /// All stacks of a process.
    Process = 1,
    /// A function.
    Frame = 2,
    /// Stacks with more frames that cannot be seen, by the reason.
    Truncated = 3,
    /// Stacks where what was found cannot be right, by the reason.
    Broken = 4,
    /// The callees that were left out, together.
    Pruned = 5,
}

/// A label: names by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Label {
    pub(super) kind: Kind,
    pub(super) name: u32,
    /// Of a function, the file that it is in.
    pub(super) module: u32,
}

/// Names and labels, each numbered in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct Labels {
    names: Vec<Rc<str>>,
    numbers: FxHashMap<Rc<str>, u32>,
    labels: Vec<Label>,
    label_numbers: FxHashMap<Label, u32>,
}

impl Labels {
    /// The number of a name.
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

    /// The number of a label.
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

    /// The label of this name without a module.
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
