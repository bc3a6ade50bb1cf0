//! The maps that hold the rules.

use crate::bpf::types::{limit, rule_layout, rule_set};
use crate::parse::RuleRange;
use crate::sys::{OnDemandMap, key_hash, rule_key, second_key_hash, wait_for_programs};
use rustc_hash::FxHashMap;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of sets: room for the rules of 134 MB of code, of less where it is crowded, in 34 MB of memory. With half of it,
/// programs of the size of rustc lose rules as fast as they gain others.
const N_SETS: u32 = 1 << 17;
/// The same for a small table: 17 MB of code, in 4 MB of memory.
const FEW_SETS: u32 = 1 << 14;
/// The most distinct rules: as many as an index can name.
pub(crate) const N_RULES: u32 = 1 << 16;
/// The most files with rules at a time.
pub(crate) const MAX_FILES: u32 = 1 << 13;
/// Number of file numbers.
const N_NUMBERS: u32 = limit::KEY_NUMBERS.0;

const SET_BYTES: usize = size_of::<rule_set>();
const WAYS: usize = limit::RULE_WAYS.0 as usize;
const ROWS: usize = limit::WAY_ROWS.0 as usize;
/// The most ways of a granule.
const GRANULE_WAYS: u32 = limit::GRANULE_WAYS.0;
pub(super) const GRANULE: u16 = 256;
const _: () = assert!(limit::GRANULE_BYTES.0 == GRANULE as u32);
/// The most rows of a granule: all its ways but the last have one that only says so.
const MAX_ROWS: usize = (ROWS - 1) * (GRANULE_WAYS as usize - 1) + ROWS;
const IN_NEXT_WAY: u16 = u16::MAX;
const _: () = assert!(limit::PLACE_IN_NEXT_WAY.0 == IN_NEXT_WAY as u32);
/// The two halves of a way's state word.
const USED: u64 = u32::MAX as u64;
const ONE_WRITE: u64 = 1 << 32;
/// The rule for frames that need other registers: it makes the walk give up without reporting a miss.
const NEEDS_OTHER_REGISTERS: u64 = rule_layout::RULE_FULL.0 as u64;

/// Size of the map of rules, bytes.
pub(crate) const RULES_BYTES: usize = N_RULES as usize * 8;

/// Number of sets of a small or large table.
pub(crate) fn n_sets(is_small: bool) -> u32 {
    if is_small { FEW_SETS } else { N_SETS }
}

/// Size of the map of this many sets, bytes.
pub(crate) fn sets_bytes(n_sets: u32) -> usize {
    n_sets as usize * SET_BYTES
}

/// Writes rules where the BPF programs look them up. There is a single writer.
#[derive(Debug)]
pub(crate) struct RuleTable {
    sets: OnDemandMap,
    /// A power of two.
    n_sets: usize,
    rules: OnDemandMap,
    /// Index of each rule in `rules`.
    places: FxHashMap<u64, u16>,
}

/// The rules of a granule: from each offset in it up to the next, the index of a rule, 0 for none. The first offset is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Runs(Vec<(u16, u16)>);

impl Runs {
    /// Sets the rule of a range of offsets.
    fn set(&mut self, range: Range<u16>, place: u16) {
        let from = self.0.partition_point(|&(start, _)| start < range.start);
        let to = self.0.partition_point(|&(start, _)| start <= range.end);
        let last = to.checked_sub(1).and_then(|last| self.0.get(last)).map_or(0, |&(_, place)| place);
        let rest = (range.end < GRANULE).then_some((range.end, last));
        self.0.splice(from..to, std::iter::once((range.start, place)).chain(rest));
        self.0.dedup_by_key(|(_, place)| *place);
    }

    /// The rows of each way. In the last row of a way that others follow, they take the place of a rule.
    fn ways(&self) -> Vec<[(u16, u16); ROWS]> {
        let mut ways = Vec::new();
        let mut rest = self.0.as_slice();
        loop {
            let mut rows = [(u16::from(u8::MAX), rest.last().map_or(0, |&(_, place)| place)); ROWS];
            rows.iter_mut().zip(rest).for_each(|(row, run)| *row = *run);
            let follows = if rest.len() > ROWS { rest.get(ROWS - 1..) } else { None };
            if let (Some(_), Some((_, place))) = (follows, rows.last_mut()) {
                *place = IN_NEXT_WAY;
            }
            ways.push(rows);
            let Some(follows) = follows else { return ways };
            rest = follows;
        }
    }
}

impl RuleTable {
    /// A table in these maps, which must be empty, of [`sets_bytes`] and [`RULES_BYTES`].
    pub(crate) fn new(sets: OnDemandMap, n_sets: u32, rules: OnDemandMap) -> Self {
        Self { sets, n_sets: n_sets as usize, rules, places: FxHashMap::default() }
    }

    /// Maps the table, unless it is mapped.
    pub(crate) fn map(&mut self) -> io::Result<()> {
        self.sets.map()?;
        self.rules.map()
    }

    /// Unmaps the table until [`Self::map`]; nothing else may be called until then.
    pub(crate) fn unmap(&mut self) {
        self.sets.unmap();
        self.rules.unmap();
    }

    /// Its size in MiB, at least 1.
    pub(crate) fn mib(&self) -> u32 {
        u32::try_from((self.n_sets * SET_BYTES + RULES_BYTES) >> 20).unwrap_or(u32::MAX).max(1)
    }

    /// Whether this can be a file's number.
    pub(crate) fn is_number(number: u32) -> bool {
        (1..N_NUMBERS).contains(&number)
    }

    /// Whether an offset of a file has a rule.
    pub(crate) fn has(&self, number: u32, offset: u64) -> bool {
        self.place_of(number, offset).is_some()
    }

    /// Whether a walk that comes to an offset can go on from there.
    pub(crate) fn has_caller(&self, number: u32, offset: u64) -> bool {
        let kind_mask = u64::from(rule_layout::RULE_KIND_MASK.0);
        self.rule(number, offset).is_some_and(|rule| rule & kind_mask != u64::from(rule_layout::RULE_STOP.0))
    }

    /// The rule of an offset.
    fn rule(&self, number: u32, offset: u64) -> Option<u64> {
        let place = self.place_of(number, offset)?;
        self.rules.word(usize::from(place) * 8).map(|rule| rule.load(Ordering::Relaxed))
    }

    /// The rule index of an offset, looked up as the BPF programs do.
    fn place_of(&self, number: u32, offset: u64) -> Option<u16> {
        let byte = offset % u64::from(GRANULE);
        let mut places = (0..GRANULE_WAYS).map(|n| self.place_in_way(rule_key(number, offset, n), byte));
        places.find(|place| *place != Some(IN_NEXT_WAY))?.filter(|&place| place != 0)
    }

    fn place_in_way(&self, key: u64, byte: u64) -> Option<u16> {
        let (set, way) = self.find(key)?;
        let row = (0..ROWS).rev().find(|&row| u64::from(self.start(set, way, row)) <= byte)?;
        Some(self.row_place(set, way, row))
    }

    /// The set and way of a key.
    fn find(&self, key: u64) -> Option<(usize, usize)> {
        self.ways_for(key).find(|&(set, way)| self.key(set, way) == key)
    }

    /// Adds rules of a file, which must ascend.
    pub(crate) fn add(&mut self, number: u32, ranges: &[RuleRange]) {
        let mut current: Option<(u64, Runs)> = None;
        for range in ranges {
            let Some(place) = self.place(range.rule) else { continue };
            let mut at = range.start;
            while at < range.end {
                let granule = at / u64::from(GRANULE);
                let start = granule * u64::from(GRANULE);
                let end = range.end.min(start.saturating_add(u64::from(GRANULE)));
                if current.as_ref().is_none_or(|(known, _)| *known != granule) {
                    let next = (granule, self.read(number, granule));
                    current.replace(next).into_iter().for_each(|(granule, runs)| self.write(number, granule, runs));
                }
                let offsets = u16::try_from(at - start).ok().zip(u16::try_from(end - start).ok());
                if let (Some((_, runs)), Some((from, to))) = (&mut current, offsets) {
                    runs.set(from..to, place);
                }
                at = end;
            }
        }
        current.into_iter().for_each(|(granule, runs)| self.write(number, granule, runs));
    }

    /// Forgets everything. Walks in progress stay correct, since file numbers are not soon used again; the rules themselves
    /// are overwritten only after the last walk that may still read them.
    pub(crate) fn clear(&mut self) {
        for set in 0..self.n_sets {
            (0..WAYS).for_each(|way| self.set_key(set, way, 0));
        }
        wait_for_programs();
        self.places.clear();
    }

    /// Whether `n` more rules may not fit.
    pub(crate) fn is_full_for(&self, n: usize) -> bool {
        self.places.len().saturating_add(n) >= usize::from(IN_NEXT_WAY)
    }

    /// The index of a rule, which is added if missing; `None` if there is no room.
    fn place(&mut self, rule: u64) -> Option<u16> {
        if let Some(place) = self.places.get(&rule) {
            return Some(*place);
        }
        let place = u16::try_from(self.places.len() + 1).ok().filter(|&place| place != IN_NEXT_WAY)?;
        self.rules.word(usize::from(place) * 8)?.store(rule, Ordering::Release);
        self.places.insert(rule, place);
        Some(place)
    }

    /// The rules of a granule.
    fn read(&self, number: u32, granule: u64) -> Runs {
        let mut runs = Runs(vec![(0, 0)]);
        for n in 0..GRANULE_WAYS {
            let found = self.find(key(number, granule, n));
            for (set, way, row) in found.into_iter().flat_map(|(set, way)| (0..ROWS).map(move |row| (set, way, row))) {
                runs.set(self.start(set, way, row).into()..GRANULE, self.row_place(set, way, row));
            }
            match runs.0.last_mut() {
                Some((_, place)) if *place == IN_NEXT_WAY => *place = 0,
                _ => break,
            }
        }
        runs
    }

    /// Writes the rules of a granule. A way is written before the one that refers to it, so that a walk never takes the
    /// rows of an older one for its own.
    fn write(&mut self, number: u32, granule: u64, mut runs: Runs) {
        if runs.0.len() > MAX_ROWS {
            runs.0.truncate(MAX_ROWS);
            let other_registers = self.place(NEEDS_OTHER_REGISTERS).unwrap_or(0);
            runs.0.last_mut().into_iter().for_each(|(_, place)| *place = other_registers);
        }
        for (n, rows) in (0..).zip(runs.ways()).collect::<Vec<_>>().into_iter().rev() {
            self.write_rows(key(number, granule, n), rows);
        }
    }

    /// Concurrent readers find nothing: the key is cleared first and written last. The sequence makes a reader that
    /// began before the write and ends after it find nothing, too.
    fn write_rows(&mut self, key: u64, rows: [(u16, u16); ROWS]) {
        let Some((set, way)) = self.find(key).or_else(|| self.way_for(key)) else { return };
        self.set_key(set, way, 0);
        self.raise_sequence(set, way);
        let (starts, _) = rows.as_chunks::<8>();
        for (n, rows) in starts.iter().enumerate() {
            let word = u64::from_le_bytes(rows.map(|(start, _)| u8::try_from(start).unwrap_or(u8::MAX)));
            self.cell(set, starts_at(way) + n * 8).into_iter().for_each(|cell| cell.store(word, Ordering::Release));
        }
        let (places, _) = rows.as_chunks::<4>();
        for (n, rows) in places.iter().enumerate() {
            let word = rows.iter().rev().fold(0, |word, &(_, place)| word << 16 | u64::from(place));
            self.cell(set, places_at(way) + n * 8).into_iter().for_each(|cell| cell.store(word, Ordering::Release));
        }
        self.raise_sequence(set, way);
        self.set_key(set, way, key);
    }

    /// The way for a new key: a free one, of the set that has more of them; else one that no walk has used since the
    /// last call, else the first.
    fn way_for(&self, key: u64) -> Option<(usize, usize)> {
        let free = |set: usize| (0..WAYS).filter(move |&way| self.key(set, way) == 0);
        let [first, second] = self.sets_of(key);
        let roomier = if free(second).count() > free(first).count() { second } else { first };
        if let Some(way) = free(roomier).next() {
            return Some((roomier, way));
        }
        let state = |(set, way): (usize, usize)| self.state(set, way);
        let is_unused = |at: &(usize, usize)| state(*at).is_some_and(|state| state.load(Ordering::Relaxed) & USED == 0);
        self.ways_for(key).find(is_unused).or_else(|| {
            self.ways_for(key).filter_map(state).for_each(|state| {
                state.fetch_and(!USED, Ordering::Relaxed);
            });
            self.ways_for(key).next()
        })
    }

    /// Only this writer changes the upper half; the BPF programs change the lower.
    fn raise_sequence(&self, set: usize, way: usize) {
        if let Some(state) = self.state(set, way) {
            state.fetch_add(ONE_WRITE, Ordering::SeqCst);
        }
    }

    /// The used flag of a way, and the sequence number of its writes.
    fn state(&self, set: usize, way: usize) -> Option<&AtomicU64> {
        self.cell(set, offset_of!(rule_set, ways) + way * 8)
    }

    fn key(&self, set: usize, way: usize) -> u64 {
        self.cell(set, offset_of!(rule_set, keys) + way * 8).map_or(0, |key| key.load(Ordering::Relaxed))
    }

    fn set_key(&self, set: usize, way: usize, key: u64) {
        if let Some(cell) = self.cell(set, offset_of!(rule_set, keys) + way * 8) {
            cell.store(key, Ordering::SeqCst);
        }
    }

    fn start(&self, set: usize, way: usize, row: usize) -> u8 {
        let word = self.cell(set, starts_at(way) + row / 8 * 8).map_or(0, |cell| cell.load(Ordering::Relaxed));
        word.to_le_bytes().get(row % 8).copied().unwrap_or(0)
    }

    fn row_place(&self, set: usize, way: usize, row: usize) -> u16 {
        let word = self.cell(set, places_at(way) + row / 4 * 8).map_or(0, |cell| cell.load(Ordering::Relaxed));
        u16::try_from(word >> (16 * (row % 4)) & 0xffff).unwrap_or(0)
    }

    /// The sets that a key may be in.
    fn sets_of(&self, key: u64) -> [usize; 2] {
        [key_hash(key), second_key_hash(key)].map(|hash| hash as usize & (self.n_sets - 1))
    }

    /// Those sets, each with its ways.
    fn ways_for(&self, key: u64) -> impl Iterator<Item = (usize, usize)> {
        self.sets_of(key).into_iter().flat_map(|set| (0..WAYS).map(move |way| (set, way)))
    }

    fn cell(&self, set: usize, offset: usize) -> Option<&AtomicU64> {
        self.sets.word(set * SET_BYTES + offset)
    }
}

const _: () = assert!(offset_of!(rule_set, places) == offset_of!(rule_set, starts) + WAYS * ROWS);
const _: () = assert!(SET_BYTES == offset_of!(rule_set, places) + 2 * WAYS * ROWS);

fn starts_at(way: usize) -> usize {
    offset_of!(rule_set, starts) + way * ROWS
}

fn places_at(way: usize) -> usize {
    offset_of!(rule_set, places) + way * ROWS * 2
}

fn key(number: u32, granule: u64, n: u32) -> u64 {
    rule_key(number, granule * u64::from(GRANULE), n)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd as _;

    /// A table in memory that no BPF program uses.
    pub(in crate::rules) fn table() -> RuleTable {
        let map = |bytes: usize| {
            let file = memfd_create("rules", MemfdFlags::CLOEXEC).expect("a file in memory");
            ftruncate(&file, bytes as u64).expect("room");
            OnDemandMap::new(file.as_fd(), bytes).expect("a mapping")
        };
        RuleTable::new(map(sets_bytes(FEW_SETS)), FEW_SETS, map(RULES_BYTES))
    }

    fn range(start: u64, end: u64, rule: u64) -> RuleRange {
        RuleRange { start, end, rule }
    }

    /// Check that rules are still there when a table was unmapped for a while.
    #[test]
    fn rules_outlast_the_mapping() {
        let mut table = table();
        table.add(1, &[range(100, 300, 10)]);
        table.unmap();
        assert!(!table.has(1, 100), "nothing is read while it is unmapped");
        table.map().expect("mapped again");
        assert!(table.has(1, 100) && !table.has(1, 99));
    }

    /// Check that each byte has the rule of its range and file, and no other, also if ranges cross granules and if
    /// functions are added one after the other.
    #[test]
    fn bytes_have_the_rules_of_their_ranges() {
        let mut table = table();
        table.add(1, &[range(100, 300, 10), range(300, 301, 11), range(511, 520, 12)]);
        table.add(1, &[range(301, 400, 13)]);
        table.add(2, &[range(0, 1000, 14)]);
        let expected = |offset: u64| match offset {
            100..300 => Some(10),
            300 => Some(11),
            301..400 => Some(13),
            511..520 => Some(12),
            _ => None,
        };
        for offset in 0..1100 {
            assert_eq!(table.rule(1, offset), expected(offset), "{offset}");
            assert_eq!(table.has(1, offset), expected(offset).is_some(), "{offset}");
            assert_eq!(table.rule(2, offset), (offset < 1000).then_some(14), "{offset}");
            assert_eq!(table.rule(3, offset), None);
        }
    }

    /// Check that granules with many rows have several ways, and that of a granule with too many rows the last ones make
    /// the walk give up.
    #[test]
    fn crowded_granules_have_several_ways() {
        let mut table = table();
        let each = |from: u64, to: u64, bytes: u64| {
            (from..to)
                .step_by(usize::try_from(bytes).unwrap())
                .map(move |at| range(at, at + bytes, 100 + at / bytes % 7))
        };
        let ranges: Vec<RuleRange> = each(256, 512, 4).chain(each(512, 768, 1)).chain(each(768, 1024, 16)).collect();
        table.add(1, &ranges);
        let expected = |offset: u64| match offset {
            256..512 => Some(100 + offset / 4 % 7),
            512..632 => Some(100 + offset % 7),
            632..768 => Some(NEEDS_OTHER_REGISTERS),
            768..1024 => Some(100 + offset / 16 % 7),
            _ => None,
        };
        for offset in 0..1100 {
            assert_eq!(table.rule(1, offset), expected(offset), "{offset}");
        }
        // Later additions leave the rest as it is, also where the rows move to other ways.
        table.add(1, &[range(257, 262, 9)]);
        for offset in 262..1100 {
            assert_eq!(table.rule(1, offset), expected(offset), "{offset}");
        }
        assert_eq!([256, 257, 261, 262].map(|offset| table.rule(1, offset)), [101, 9, 9, 102].map(Some));
        // Without one of its ways, a granule has rules up to it.
        let (set, way) = table.find(key(1, 1, 2)).expect("a third way");
        table.set_key(set, way, 0);
        let has: Vec<u64> = (256..512).filter(|&offset| table.has(1, offset)).collect();
        assert!(has.iter().copied().eq(256..has.len() as u64 + 256) && (100..130).contains(&has.len()), "{has:?}");
        table.add(1, &ranges);
        assert!((0..1100).all(|offset| table.rule(1, offset) == expected(offset)));
    }

    /// Check that a granule is put into either of its sets, and that where both are full the one that no walk has used
    /// makes room, and that nothing of the evicted one is left.
    #[test]
    fn what_is_used_stays() {
        let mut table = table();
        let in_set = |granule: &u64| table.sets_of(key(1, *granule, 0)).contains(&0);
        let rivals: Vec<u64> = (0..).filter(in_set).take(8 * WAYS).collect();
        let covered = |granule: u64| range(granule * 256, granule * 256 + 256, 20 + granule);
        for &granule in &rivals {
            table.add(1, &[covered(granule)]);
            assert_eq!(table.rule(1, granule * 256), Some(20 + granule));
        }
        // One set has room for four of them, so the others are in their other sets.
        assert!(rivals.iter().all(|granule| table.has(1, granule * 256)));
        let new = (0..).find(|granule| !rivals.contains(granule)).unwrap();
        let sets = table.sets_of(key(1, new, 0));
        let fill = |table: &RuleTable, used: &dyn Fn(usize, usize) -> bool| {
            for (set, way) in table.ways_for(key(1, new, 0)) {
                table.set_key(set, way, u64::MAX);
                table.state(set, way).unwrap().store(u64::from(used(set, way)), Ordering::Relaxed);
            }
        };
        fill(&table, &|set, way| (set, way) != (sets[1], 2));
        table.add(1, &[covered(new)]);
        assert_eq!(table.find(key(1, new, 0)), Some((sets[1], 2)));
        // If all are used, one makes room, and the others count as unused from then on.
        fill(&table, &|_, _| true);
        table.add(1, &[covered(new)]);
        assert_eq!(table.find(key(1, new, 0)), Some((sets[0], 0)));
        assert_eq!(table.rule(1, new * 256 + 255), Some(20 + new));
        assert!(!table.is_full_for(60_000) && table.is_full_for(65_533));
        table.clear();
        assert!(!table.has(1, new * 256) && rivals.iter().all(|granule| !table.has(1, granule * 256)));
    }

    /// Check that rewriting the rows of a key raises the sequence before and after, and preserves whether a walk has
    /// used them: a reader interrupted in between must not mix old and new rows.
    #[test]
    fn writing_raises_the_sequence() {
        let mut table = table();
        table.add(1, &[range(0, 100, 20)]);
        let (set, way) = table.find(key(1, 0, 0)).unwrap();
        let state = |table: &RuleTable| table.state(set, way).unwrap().load(Ordering::Relaxed);
        assert_eq!(state(&table), 2 * ONE_WRITE);
        table.state(set, way).unwrap().fetch_or(1, Ordering::Relaxed);
        table.add(1, &[range(100, 200, 21)]);
        assert_eq!(state(&table), (4 * ONE_WRITE) | 1);
    }
}
