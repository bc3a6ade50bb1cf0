//! Collects the stacks of all samples, folded and, if asked for, by thread.

use crate::fold::{Folder, WithoutCall};
use crate::listed::Listed;
use crate::modules::ModuleTable;
use crate::profile::{Naming, Profile, Rows, make};
use crate::replay::{Collect, Recorded, Seen};
use crate::symbols::Symbolizer;
use std::time::Duration;

/// Stacks, by process.
pub(super) struct Stacks<'a> {
    listed: &'a Listed<'a>,
    pub(super) folder: Folder,
    /// One for each strategy with a profile.
    rows: Vec<Rows>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(listed: &'a Listed<'a>, rows: Vec<Rows>) -> Self {
        Self { listed, folder: Folder::default(), rows }
    }

    /// The requested profiles; `names` has one name for each replayed strategy.
    pub(super) fn profiles(
        &self,
        (modules, symbols, without_call): (&ModuleTable<'_>, &Symbolizer, &WithoutCall),
        recorded: &Recorded,
        names: &[String],
        duration: Duration,
    ) -> Vec<Profile> {
        let naming = Naming { folder: &self.folder, modules, symbols, without_call, listed: self.listed };
        let named = self.rows.iter().filter_map(|rows| Some((rows, names.get(rows.strategy())?)));
        named.map(|(rows, name)| make(rows, naming, recorded, name, duration)).collect()
    }
}

impl Collect for Stacks<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let stacks = self.folder.add_of(self.listed.pid(seen), seen);
        self.rows.iter_mut().for_each(|rows| rows.add(seen, stacks));
    }

    fn merge(&mut self, other: Self) {
        let stacks = self.folder.merge_numbered(other.folder);
        for (own, other) in self.rows.iter_mut().zip(other.rows) {
            own.merge(other, &stacks);
        }
    }
}
