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
    rows: Vec<Row>,
}

/// A row: the offset of its start from that of the entry, and its rule. Side by side, since a search ends where the
/// rule is read.
#[derive(Debug, Clone, Copy)]
struct Row([u32; 3]);

impl Row {
    fn new(start: u32, rule: Rule) -> Self {
        let [low, high] = rule.to_halves();
        Self([start, low, high])
    }

    fn start(self) -> u32 {
        self.0[0]
    }

    fn rule(self) -> Rule {
        Rule::from_halves([self.0[1], self.0[2]])
    }
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
        let rows = self.rows.get(first..)?.get(..slot.n_rows as usize)?;
        let row = rows.partition_point(|row| row.start() <= offset).checked_sub(1)?;
        rows.get(row).map(|row| row.rule())
    }

    /// Starts an entry: the rows pushed from now on are its.
    pub(crate) fn begin(&mut self) {
        if self.rows.len() > MAX_ROWS {
            *self = Self::default();
        }
    }

    /// Adds a row, at its offset from the start of the entry. Rows that say the same as the one before are left out.
    pub(crate) fn push(&mut self, first_row: usize, start: u32, rule: Rule) {
        if self.rows.len() > first_row && self.rows.last().is_some_and(|row| row.rule() == rule) {
            return;
        }
        self.rows.push(Row::new(start, rule));
    }

    /// How many rows there are.
    pub(crate) fn n_rows(&self) -> usize {
        self.rows.len()
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
        let n_rows = short(self.rows.len() - first_row);
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
