//! Interns the names in events.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Distinct byte strings, in order of first appearance.
#[derive(Debug, Default)]
pub(super) struct Interned {
    all: Vec<Arc<[u8]>>,
    index: FxHashMap<Arc<[u8]>, u32>,
}

impl Interned {
    /// The number of a string, which is added if necessary.
    pub(super) fn intern(&mut self, bytes: &[u8]) -> u32 {
        if let Some(&known) = self.index.get(bytes) {
            return known;
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let bytes: Arc<[u8]> = bytes.into();
        self.all.push(Arc::clone(&bytes));
        self.index.insert(bytes, number);
        number
    }

    /// The string with this number, empty if there is none.
    pub(super) fn get(&self, number: u32) -> &[u8] {
        self.all.get(number as usize).map_or(&[], |bytes| bytes)
    }

    /// All strings.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.all.iter().map(|bytes| &**bytes)
    }
}
