//! The maps that hold the rules.

use crate::bpf::types::{limit, rule_layout, rule_set};
use crate::parse::RuleRange;
use crate::sys::{SharedMap, key_hash, rule_key, rule_part_key, wait_for_programs};
use rustc_hash::FxHashMap;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of sets: room for the rules of 134 MB of code, in 34 MB of memory. With half of it, programs of the size of
/// rustc lose rules as fast as they gain others.
pub(crate) const N_SETS: u32 = 1 << 17;
/// The most distinct rules: as many as an index can name.
pub(crate) const N_RULES: u32 = 1 << 16;
/// The most files with rules at a time.
pub(crate) const MAX_FILES: u32 = 1 << 13;
/// Number of file numbers.
const N_NUMBERS: u32 = limit::KEY_NUMBERS.0;

const SET_BYTES: usize = size_of::<rule_set>();
const WAYS: usize = limit::RULE_WAYS.0 as usize;
const ROWS: usize = limit::GRANULE_ROWS.0 as usize;
const GRANULE: usize = limit::GRANULE_BYTES.0 as usize;
const PART: usize = limit::GRANULE_PART_BYTES.0 as usize;
const IN_PARTS: u16 = u16::MAX;
const _: () = assert!(limit::PLACE_IN_PARTS.0 == IN_PARTS as u32);
/// The two halves of a way's state word.
const USED: u64 = u32::MAX as u64;
const ONE_WRITE: u64 = 1 << 32;
/// The rule for frames that need other registers: it makes the walk give up without reporting a miss.
const NEEDS_OTHER_REGISTERS: u64 = rule_layout::RULE_FULL.0 as u64;

/// Sizes of the two maps that are written in place, bytes.
pub(crate) const SETS_BYTES: usize = N_SETS as usize * SET_BYTES;
pub(crate) const RULES_BYTES: usize = N_RULES as usize * 8;

/// Writes rules where the BPF programs look them up. There is a single writer.
#[derive(Debug)]
pub(crate) struct RuleTable {
    sets: SharedMap,
    rules: SharedMap,
    /// Index of each rule in `rules`.
    places: FxHashMap<u64, u16>,
}

/// Rule indexes for the bytes of a granule, 0 for none.
type Places = [u16; GRANULE];

impl RuleTable {
    /// A table in these maps, which must be empty.
    pub(crate) fn new(sets: SharedMap, rules: SharedMap) -> Self {
        Self { sets, rules, places: FxHashMap::default() }
    }

    /// Whether this can be a file's number.
    pub(crate) fn is_number(number: u32) -> bool {
        (1..N_NUMBERS).contains(&number)
    }

    /// Whether an offset of a file has a rule.
    pub(crate) fn has(&self, number: u32, offset: u64) -> bool {
        self.place_of(number, offset).is_some()
    }

    /// The rule index of an offset, looked up as the BPF programs do.
    fn place_of(&self, number: u32, offset: u64) -> Option<u16> {
        let (granule, byte) = (offset / GRANULE as u64, offset % GRANULE as u64);
        let (part, byte_of_part) = (byte / PART as u64, byte % PART as u64);
        match self.place_in(key(number, granule), byte)? {
            IN_PARTS => self.place_in(part_key(number, granule, part), byte_of_part),
            place => Some(place),
        }
    }

    fn place_in(&self, key: u64, byte: u64) -> Option<u16> {
        let (set, way) = self.find(key)?;
        let row = (0..ROWS).rev().find(|&row| u64::from(self.start(set, way, row)) <= byte)?;
        Some(self.row_place(set, way, row)).filter(|&place| place != 0)
    }

    /// The set and way of a key.
    fn find(&self, key: u64) -> Option<(usize, usize)> {
        let set = set_of(key);
        (0..WAYS).find(|&way| self.key(set, way) == key).map(|way| (set, way))
    }

    /// Adds rules of a file, which must ascend.
    pub(crate) fn add(&mut self, number: u32, ranges: &[RuleRange]) {
        let mut current: Option<(u64, Places)> = None;
        for range in ranges {
            let Some(place) = self.place(range.rule) else { continue };
            let mut at = range.start;
            while at < range.end {
                let granule = at / GRANULE as u64;
                let start = granule * GRANULE as u64;
                let end = range.end.min(start.saturating_add(GRANULE as u64));
                if current.is_none_or(|(known, _)| known != granule) {
                    current.iter().for_each(|(granule, places)| self.write(number, *granule, places));
                    current = Some((granule, self.read(number, granule)));
                }
                let part = usize::try_from(at - start).ok().zip(usize::try_from(end - start).ok());
                if let (Some((_, places)), Some((from, to))) = (&mut current, part) {
                    places.get_mut(from..to).into_iter().for_each(|places| places.fill(place));
                }
                at = end;
            }
        }
        current.iter().for_each(|(granule, places)| self.write(number, *granule, places));
    }

    /// Forgets everything. Walks in progress stay correct, since file numbers are not soon used again; the rules themselves
    /// are overwritten only after the last walk that may still read them.
    pub(crate) fn clear(&mut self) {
        for set in 0..N_SETS as usize {
            (0..WAYS).for_each(|way| self.set_key(set, way, 0));
        }
        wait_for_programs();
        self.places.clear();
    }

    /// Whether `n` more rules may not fit.
    pub(crate) fn is_full_for(&self, n: usize) -> bool {
        self.places.len().saturating_add(n) >= usize::from(IN_PARTS)
    }

    /// The index of a rule, which is added if missing; `None` if there is no room.
    fn place(&mut self, rule: u64) -> Option<u16> {
        if let Some(place) = self.places.get(&rule) {
            return Some(*place);
        }
        let place = u16::try_from(self.places.len() + 1).ok().filter(|&place| place != IN_PARTS)?;
        self.rules.word(usize::from(place) * 8)?.store(rule, Ordering::Release);
        self.places.insert(rule, place);
        Some(place)
    }

    /// The rules of a granule.
    fn read(&self, number: u32, granule: u64) -> Places {
        let mut places = [0; GRANULE];
        if self.read_rows(key(number, granule), &mut places) == Some(IN_PARTS) {
            places.fill(0);
            for (n, places) in (0..).zip(places.chunks_exact_mut(PART)) {
                self.read_rows(part_key(number, granule, n), places);
            }
        }
        places
    }

    /// Fills `places` from a key's rows and returns the last of them; `None` if it has none.
    fn read_rows(&self, key: u64, places: &mut [u16]) -> Option<u16> {
        let (set, way) = self.find(key)?;
        let mut last = None;
        for row in 0..ROWS {
            let (start, place) = (self.start(set, way, row), self.row_place(set, way, row));
            places.get_mut(usize::from(start)..).into_iter().for_each(|places| places.fill(place));
            last = Some(place);
        }
        last
    }

    /// Writes the rules of a granule: in one way, or in parts if it has too many rows.
    fn write(&mut self, number: u32, granule: u64, places: &Places) {
        if let Some(rows) = rows(places) {
            return self.write_rows(key(number, granule), rows);
        }
        for (n, places) in (0..).zip(places.chunks_exact(PART)) {
            let rows = rows(places).or_else(|| Some([(0, self.place(NEEDS_OTHER_REGISTERS)?); ROWS]));
            rows.into_iter().for_each(|rows| self.write_rows(part_key(number, granule, n), rows));
        }
        self.write_rows(key(number, granule), [(0, IN_PARTS); ROWS]);
    }

    /// Concurrent readers find nothing: the key is cleared first and written last. The sequence makes a reader that
    /// began before the write and ends after it find nothing, too.
    fn write_rows(&mut self, key: u64, rows: [(u8, u16); ROWS]) {
        let set = set_of(key);
        let known = self.find(key).map(|(_, way)| way);
        let Some(way) = known.or_else(|| self.way_for(set)) else { return };
        self.set_key(set, way, 0);
        self.raise_sequence(set, way);
        let (starts, _) = rows.as_chunks::<8>();
        for (n, rows) in starts.iter().enumerate() {
            let word = u64::from_le_bytes(rows.map(|(start, _)| start));
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

    /// The way for a new granule: a free one, else one that no walk has used since the last call, else the first.
    fn way_for(&self, set: usize) -> Option<usize> {
        if let Some(free) = (0..WAYS).find(|&way| self.key(set, way) == 0) {
            return Some(free);
        }
        let state = |way: usize| self.state(set, way);
        let unused = (0..WAYS).find(|&way| state(way).is_some_and(|state| state.load(Ordering::Relaxed) & USED == 0));
        unused.or_else(|| {
            (0..WAYS).filter_map(state).for_each(|state| {
                state.fetch_and(!USED, Ordering::Relaxed);
            });
            Some(0)
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

fn key(number: u32, granule: u64) -> u64 {
    rule_key(number, granule * GRANULE as u64)
}

fn part_key(number: u32, granule: u64, part: u64) -> u64 {
    rule_part_key(number, granule * GRANULE as u64 + part * PART as u64)
}

fn set_of(key: u64) -> usize {
    key_hash(key) as usize & (N_SETS as usize - 1)
}

/// The rows of a granule or part; `None` if there are too many.
fn rows(places: &[u16]) -> Option<[(u8, u16); ROWS]> {
    let mut rows = [(u8::MAX, places.last().copied().unwrap_or(0)); ROWS];
    let mut start = 0;
    for (n, run) in places.chunk_by(|a, b| a == b).enumerate() {
        *rows.get_mut(n)? = (u8::try_from(start).ok()?, run.first().copied()?);
        start += run.len();
    }
    Some(rows)
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
            SharedMap::new(file.as_fd(), bytes, true).expect("a mapping")
        };
        RuleTable::new(map(SETS_BYTES), map(RULES_BYTES))
    }

    /// The rule of an offset.
    fn rule(table: &RuleTable, number: u32, offset: u64) -> Option<u64> {
        let place = table.place_of(number, offset)?;
        table.rules.word(usize::from(place) * 8).map(|rule| rule.load(Ordering::Relaxed))
    }

    fn range(start: u64, end: u64, rule: u64) -> RuleRange {
        RuleRange { start, end, rule }
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
            assert_eq!(rule(&table, 1, offset), expected(offset), "{offset}");
            assert_eq!(table.has(1, offset), expected(offset).is_some(), "{offset}");
            assert_eq!(rule(&table, 2, offset), (offset < 1000).then_some(14), "{offset}");
            assert_eq!(rule(&table, 3, offset), None);
        }
    }

    /// Check that granules with many rows are split into parts, and that parts with too many rows make the walk give
    /// up.
    #[test]
    fn crowded_granules_are_told_in_parts() {
        let mut table = table();
        let each = |from: u64, to: u64, bytes: u64| {
            (from..to)
                .step_by(usize::try_from(bytes).unwrap())
                .map(move |at| range(at, at + bytes, 100 + at / bytes % 7))
        };
        let ranges: Vec<RuleRange> = each(256, 512, 2).chain(each(512, 544, 1)).chain(each(544, 768, 16)).collect();
        table.add(1, &ranges);
        for offset in 256..512 {
            assert_eq!(rule(&table, 1, offset), Some(100 + offset / 2 % 7), "{offset}");
        }
        assert!((512..544).all(|offset| rule(&table, 1, offset) == Some(NEEDS_OTHER_REGISTERS)));
        assert!((544..768).all(|offset| rule(&table, 1, offset) == Some(100 + offset / 16 % 7)));
        assert!(table.has(1, 300) && table.has(1, 600) && !table.has(1, 800));
        // Later additions go to the parts.
        table.add(1, &[range(300, 304, 9)]);
        assert_eq!([299, 300, 303, 304].map(|offset| rule(&table, 1, offset)), [102, 9, 9, 105].map(Some));
    }

    /// Check that in a full set the granule that no walk has used makes room, and that nothing of the evicted one is
    /// left.
    #[test]
    fn what_is_used_stays() {
        let mut table = table();
        let same_set: Vec<u64> =
            (0..).filter(|&granule| set_of(key(1, granule)) == set_of(key(1, 0))).take(WAYS + 1).collect();
        let (last, others) = same_set.split_last().unwrap();
        for &granule in others {
            table.add(1, &[range(granule * 256, granule * 256 + 256, 20)]);
        }
        let state = |way: usize| table.state(set_of(key(1, 0)), way).unwrap();
        (0..WAYS).filter(|&way| way != 2).for_each(|way| {
            state(way).fetch_or(1, Ordering::Relaxed);
        });
        let unused = table.key(set_of(key(1, 0)), 2);
        table.add(1, &[range(last * 256, last * 256 + 256, 21)]);
        for &granule in others {
            assert_eq!(rule(&table, 1, granule * 256), (key(1, granule) != unused).then_some(20), "{granule}");
        }
        assert_eq!(rule(&table, 1, last * 256), Some(21));
        assert!(!table.is_full_for(60_000) && table.is_full_for(65_533));
        table.clear();
        assert!(same_set.iter().all(|granule| rule(&table, 1, granule * 256).is_none()));
    }

    /// Check that rewriting the rows of a key raises the sequence before and after, and preserves whether a walk has
    /// used them: a reader interrupted in between must not mix old and new rows.
    #[test]
    fn writing_raises_the_sequence() {
        let mut table = table();
        table.add(1, &[range(0, 100, 20)]);
        let state = |table: &RuleTable| table.state(set_of(key(1, 0)), 0).unwrap().load(Ordering::Relaxed);
        assert_eq!(state(&table), 2 * ONE_WRITE);
        table.state(set_of(key(1, 0)), 0).unwrap().fetch_or(1, Ordering::Relaxed);
        table.add(1, &[range(100, 200, 21)]);
        assert_eq!(state(&table), (4 * ONE_WRITE) | 1);
    }
}
