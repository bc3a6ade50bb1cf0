//! A cache of rules by address, used by one unwinder or shared between threads.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use once_cell::race::OnceBox;

use crate::rule::Rule;

/// Rules per line.
const N_WAYS: usize = 3;
/// Lines of each table (128 KiB, 1 MiB and 4 MiB). A crowded table is replaced by the next larger one. A small table
/// saves a small program page faults and keeps its rules close together in the processor's cache.
const N_LINES: [usize; 3] = [1 << 11, 1 << 14, 1 << 16];
/// A table is crowded once it has evicted a rule per this many lines. This happens when about two thirds of it are
/// full.
const LINES_A_LOSS: usize = 4;

/// Cached rules by space and address: 8 bytes each and 13 for the key. When the unwinders of several threads share it,
/// each rule is compiled once instead of once per thread.
///
/// Unwinders that share it must have the same modules, and two spaces with the same id must be equal. The stacks of an
/// unwinder do not depend on what the others have unwound: a rule depends on its address alone.
#[derive(Debug, Default)]
pub struct SharedRules {
    tables: [OnceBox<Table>; N_LINES.len()],
    level: AtomicUsize,
}

impl SharedRules {
    /// The current table. A larger one, with at least the same rules, may replace it at any time.
    #[inline]
    pub(crate) fn table(&self) -> &Table {
        let level = self.level.load(Ordering::Acquire);
        match self.tables.get(level).and_then(OnceBox::get) {
            Some(table) => table,
            None => self.first(),
        }
    }

    #[cold]
    fn first(&self) -> &Table {
        let [first, ..] = &self.tables;
        first.get_or_init(|| Box::new(Table::new(N_LINES[0])))
    }

    /// Caches a rule.
    pub(crate) fn insert(&self, space: u32, avma: u64, rule: Rule) {
        let level = self.level.load(Ordering::Acquire);
        let table = self.table();
        table.insert(space, avma, rule);
        if table.is_crowded() {
            self.grow(level, table);
        }
    }

    /// Switches to the next larger table, which starts with the rules of this one.
    fn grow(&self, level: usize, table: &Table) {
        let next = level.saturating_add(1);
        let (Some(&n_lines), Some(place)) = (N_LINES.get(next), self.tables.get(next)) else { return };
        place.get_or_init(|| {
            let larger = Table::new(n_lines);
            table.for_each(|key, rule| larger.insert_key(key, rule));
            Box::new(larger)
        });
        self.level.fetch_max(next, Ordering::Release);
    }
}

/// A table from (space, address) to rule.
#[derive(Debug)]
pub(crate) struct Table {
    lines: Box<[Line]>,
    n_lost: AtomicU32,
}

/// The rules of one cache line, protected by a sequence lock. A writer makes the version odd while it writes. A reader
/// that sees an odd version, or a different one after reading, treats the line as empty.
///
/// # Sources
/// H.-J. Boehm (2012), "Can seqlocks get along with programming language memory models?", MSPC '12, figure 6.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    version: AtomicU64,
    tags: [AtomicU64; N_WAYS],
    rules: [AtomicU64; N_WAYS],
    lows: [AtomicU16; N_WAYS],
}

const _: () = assert!(size_of::<Line>() == 64);

/// A space and an address below 2^47, without loss: two keys never collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    /// The space, and the address without its low fifteen bits.
    tag: u64,
    low: u16,
}

impl Key {
    /// `None` for addresses from 2^47 on, which are not in user space.
    #[inline]
    fn new(space: u32, avma: u64) -> Option<Self> {
        let high = u32::try_from(avma >> 15).ok()?;
        let [low, next, ..] = avma.to_le_bytes();
        Some(Self { tag: u64::from(space) << 32 | u64::from(high), low: u16::from_le_bytes([low, next]) & 0x7fff })
    }

    /// A hash that differs for all addresses within 32 KiB and otherwise looks random.
    #[inline]
    fn mixed(self) -> usize {
        let [.., a, b] = self.tag.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        usize::from(self.low ^ u16::from_le_bytes([a, b]))
    }
}

impl Table {
    fn new(n_lines: usize) -> Self {
        Self { lines: core::iter::repeat_with(Line::default).take(n_lines).collect(), n_lost: AtomicU32::new(0) }
    }

    #[inline]
    fn line(&self, key: Key) -> Option<&Line> {
        self.lines.get(key.mixed() & (self.lines.len().wrapping_sub(1)))
    }

    /// The rule of an address, or [`Rule::EMPTY`].
    #[inline]
    pub(crate) fn find(&self, space: u32, avma: u64) -> Rule {
        let Some(key) = Key::new(space, avma) else { return Rule::EMPTY };
        self.line(key).map_or(Rule::EMPTY, |line| line.find(key))
    }

    /// Prefetches the line that a look-up reads.
    #[inline]
    pub(crate) fn prefetch(&self, space: u32, avma: u64) {
        if let Some(key) = Key::new(space, avma) {
            fpprof_prefetch::prefetch(&self.lines, key.mixed() & (self.lines.len().wrapping_sub(1)));
        }
    }

    fn insert(&self, space: u32, avma: u64, rule: Rule) {
        if let Some(key) = Key::new(space, avma) {
            self.insert_key(key, rule);
        }
    }

    fn insert_key(&self, key: Key, rule: Rule) {
        if self.line(key).is_some_and(|line| line.insert(key, rule)) {
            self.n_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_crowded(&self) -> bool {
        self.n_lost.load(Ordering::Relaxed) as usize > self.lines.len() / LINES_A_LOSS
    }

    fn for_each(&self, mut visit: impl FnMut(Key, Rule)) {
        for line in &self.lines {
            for (key, rule) in line.read().into_iter().flatten() {
                if rule != Rule::EMPTY {
                    visit(key, rule);
                }
            }
        }
    }
}

impl Line {
    #[inline]
    fn find(&self, key: Key) -> Rule {
        let version = self.version.load(Ordering::Acquire);
        let mut found = 0;
        for ((tag, low), rule) in self.tags.iter().zip(&self.lows).zip(&self.rules) {
            if tag.load(Ordering::Relaxed) == key.tag && low.load(Ordering::Relaxed) == key.low {
                found = rule.load(Ordering::Relaxed);
                break;
            }
        }
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        if is_whole { Rule::from_bits(found) } else { Rule::EMPTY }
    }

    /// All rules of the line, or `None` while it is being written.
    fn read(&self) -> Option<[(Key, Rule); N_WAYS]> {
        let version = self.version.load(Ordering::Acquire);
        let ways = self.tags.iter().zip(&self.lows).zip(&self.rules);
        let mut all = [(Key { tag: 0, low: 0 }, Rule::EMPTY); N_WAYS];
        for (slot, ((tag, low), rule)) in all.iter_mut().zip(ways) {
            let key = Key { tag: tag.load(Ordering::Relaxed), low: low.load(Ordering::Relaxed) };
            *slot = (key, Rule::from_bits(rule.load(Ordering::Relaxed)));
        }
        fence(Ordering::Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some(all)
    }

    /// Overwrites the oldest rule of the line; returns true if that slot was in use. Does nothing while another thread
    /// writes, or if the line already has a rule for the key.
    fn insert(&self, key: Key, rule: Rule) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        if version & 1 != 0 || self.find(key) != Rule::EMPTY {
            return false;
        }
        // Each write adds two to the version, so slots are overwritten in turn.
        let oldest = usize::try_from(version / 2 % N_WAYS as u64).unwrap_or(0);
        let (Some(tag), Some(low), Some(place)) =
            (self.tags.get(oldest), self.lows.get(oldest), self.rules.get(oldest))
        else {
            return false;
        };
        let odd = version.wrapping_add(1);
        if self.version.compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        fence(Ordering::Release);
        tag.store(key.tag, Ordering::Relaxed);
        low.store(key.low, Ordering::Relaxed);
        let lost = place.load(Ordering::Relaxed);
        place.store(rule.to_bits(), Ordering::Relaxed);
        self.version.store(odd.wrapping_add(1), Ordering::Release);
        Rule::from_bits(lost) != Rule::EMPTY
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{N_LINES, SharedRules};
    use crate::rule::Rule;
    use crate::stack::{StopReason, TruncatedReason};

    /// A rule that encodes the address it belongs to.
    fn rule(space: u32, avma: u64) -> Rule {
        Rule::from_bits(avma << 20 | u64::from(space) << 4 | 8)
    }

    /// Check that a rule is found by its own space and address only, and that an overflowing table is replaced by a
    /// larger one with all rules.
    #[test]
    fn finds_what_was_inserted() {
        let rules = SharedRules::default();
        let addresses = || (0..20_000_u64).map(|n| 0x5555_0000_0000 + n * 37);
        for (avma, space) in addresses().zip((0..3).cycle()) {
            assert_eq!(rules.table().find(space, avma), Rule::EMPTY);
            rules.insert(space, avma, rule(space, avma));
            assert_eq!(rules.table().find(space, avma), rule(space, avma));
            assert_eq!(rules.table().find(space + 1, avma), Rule::EMPTY);
            assert_eq!(rules.table().find(space, avma + (1 << 15)), Rule::EMPTY);
        }
        let n_kept =
            addresses().zip((0..3).cycle()).filter(|&(avma, space)| rules.table().find(space, avma) != Rule::EMPTY);
        assert!(n_kept.count() > 18_000);
        assert!(rules.table().lines.len() > N_LINES[0]);
        rules.insert(0, 1 << 47, Rule::stop(StopReason::Truncated(TruncatedReason::NoCfi)));
        assert_eq!(rules.table().find(0, 1 << 47), Rule::EMPTY);
    }

    /// Check that threads that write and read the same lines find an address's own rule or none.
    #[test]
    fn threads_share_rules() {
        let n_addresses = 50_000;
        let rules = SharedRules::default();
        // 2,048 lines have 6,144 slots, so lines are overwritten many times.
        let address = |n: u64| 0x7f00_0000_0000 + ((n % 16) << 15) + n / 16 * 1024;
        let work = |seed: u64| {
            let mut n_found = 0;
            for n in 0..n_addresses {
                let avma = address((n * 31 + seed) % n_addresses);
                match rules.table().find(7, avma) {
                    Rule::EMPTY => rules.insert(7, avma, rule(7, avma)),
                    found => {
                        assert_eq!(found, rule(7, avma));
                        n_found += 1;
                    }
                }
            }
            n_found
        };
        let n_found: u32 = std::thread::scope(|scope| {
            let threads = [0, 1, n_addresses / 2].map(|seed| scope.spawn(move || work(seed)));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(n_found > 0);
    }
}
