//! The stacks of all samples, folded and, if asked for, by thread.

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
    /// Where a profile was asked for.
    rows: Option<Rows>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(listed: &'a Listed<'a>, rows: Option<Rows>) -> Self {
        Self { listed, folder: Folder::default(), rows }
    }

    /// The profile that was asked for, of the strategy of this name.
    pub(super) fn profile(
        &self,
        (modules, symbols, without_call): (&ModuleTable<'_>, &Symbolizer, &WithoutCall),
        recorded: &Recorded,
        strategy: &str,
        duration: Duration,
    ) -> Option<Profile> {
        let naming = Naming { folder: &self.folder, modules, symbols, without_call, listed: self.listed };
        Some(make(self.rows.as_ref()?, naming, recorded, strategy, duration))
    }
}

impl Collect for Stacks<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let stacks = self.folder.add_of(self.listed.pid(seen), seen);
        if let Some(rows) = &mut self.rows {
            rows.add(seen, stacks);
        }
    }

    fn merge(&mut self, other: Self) {
        let stacks = self.folder.take_in(other.folder);
        if let Some((own, other)) = self.rows.as_mut().zip(other.rows) {
            own.merge(other, &stacks);
        }
    }
}
