//! Compiled entries: the rules of all rows of those entries that a walk has met.

use alloc::vec::Vec;

use crate::module::SectionKind;
use crate::rule::Rule;
use crate::space::ModuleId;

/// Most rows kept, 48 MiB of them. Beyond, all are forgotten and made anew as they are met.
const MAX_ROWS: usize = 4 << 20;

/// Which entry of which module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryKey(u64);

impl EntryKey {
    /// `None` for numbers that are too large to be told apart.
    pub(crate) fn new(module: ModuleId, kind: SectionKind, offset: usize) -> Option<Self> {
        let module = u64::from(module.0).checked_add(1).filter(|module| *module < 1 << 31)?;
        let offset = u32::try_from(offset).ok()?;
        Some(Self(module << 33 | u64::from(kind == SectionKind::DebugFrame) << 32 | u64::from(offset)))
    }

    /// Where the search for it starts.
    fn hash(self) -> usize {
        let mixed = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(mixed >> 32).unwrap_or(0)
    }
}

/// Compiled entries of all modules. A row takes 12 bytes, an entry 32 and as much again for room to search.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    /// Open addressing, a power of two of slots, at most half of them taken. A slot with key 0 is free.
    slots: Vec<Slot>,
    n_entries: usize,
    starts: Vec<u32>,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    key: u64,
    start: u64,
    end: u64,
    first_row: u32,
    n_rows: u32,
}

impl Tables {
    /// The rule of an address in an entry, if the entry is compiled, covers the address, and starts where it is said
    /// to start.
    pub(crate) fn find(&self, key: EntryKey, start: Option<u64>, svma: u64) -> Option<Rule> {
        let slot = self.slots.get(self.position(key)?).filter(|slot| slot.key == key.0)?;
        if start.is_some_and(|start| start != slot.start) || svma < slot.start || svma >= slot.end {
            return None;
        }
        let offset = u32::try_from(svma - slot.start).ok()?;
        let first = slot.first_row as usize;
        let starts = self.starts.get(first..)?.get(..slot.n_rows as usize)?;
        let row = starts.partition_point(|start| *start <= offset).checked_sub(1)?;
        self.rules.get(first + row).copied()
    }

    /// Starts an entry: the rows pushed from now on are its.
    pub(crate) fn begin(&mut self) {
        if self.rules.len() > MAX_ROWS {
            *self = Self::default();
        }
    }

    /// Adds a row, at its offset from the start of the entry. Rows that say the same as the one before are left out.
    pub(crate) fn push(&mut self, first_row: usize, start: u32, rule: Rule) {
        if self.rules.len() > first_row && self.rules.last() == Some(&rule) {
            return;
        }
        self.starts.push(start);
        self.rules.push(rule);
    }

    /// How many rows there are.
    pub(crate) fn n_rows(&self) -> usize {
        self.rules.len()
    }

    /// Ends an entry: the rows from `first_row` on are its.
    pub(crate) fn end(&mut self, key: EntryKey, range: core::ops::Range<u64>, first_row: usize) {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        if self.n_entries * 2 >= self.slots.len() {
            self.grow();
        }
        let Some(position) = self.position(key) else { return };
        let Some(slot) = self.slots.get_mut(position) else { return };
        self.n_entries += usize::from(slot.key == 0);
        let n_rows = short(self.rules.len() - first_row);
        *slot = Slot { key: key.0, start: range.start, end: range.end, first_row: short(first_row), n_rows };
    }

    /// The slot that has a key, or the free slot where it belongs.
    fn position(&self, key: EntryKey) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut position = key.hash() & mask;
        loop {
            let slot = self.slots.get(position)?;
            if slot.key == key.0 || slot.key == 0 {
                return Some(position);
            }
            position = (position + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let n_slots = (self.slots.len() * 2).max(256);
        let old = core::mem::replace(&mut self.slots, alloc::vec![Slot::default(); n_slots]);
        for slot in old.into_iter().filter(|slot| slot.key != 0) {
            if let Some(free) = self.position(EntryKey(slot.key)).and_then(|position| self.slots.get_mut(position)) {
                *free = slot;
            }
        }
    }
}
