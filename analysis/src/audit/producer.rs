//! Compilers and their flags, from the root DIEs of `.debug_info`.
//!
//! Debug information can be a hundred times as large as code, so only the head of each unit is read: its header and
//! the bytes of its first DIE. The length is patched so that the parser sees a unit that ends there.

use super::model::{Producer, Remark};
use super::sections::{DebugPlaces, Place};
use crate::abbreviations::entries;
use gimli::{AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo, LittleEndian, Reader as _};
use object::ReadRef;
use rustc_hash::FxHashMap;

/// The most units that are read.
const MAX_UNITS: u64 = 4096;
/// Bytes of a unit that are read: root DIEs take less than 150.
const HEAD_BYTES: u64 = 1024;
/// Largest `.debug_abbrev` that is read.
const MAX_ABBREV_BYTES: u64 = 32 << 20;
/// The most bytes of an abbreviation table that are searched for the root DIE's abbreviation, usually the first.
const MAX_TABLE_BYTES: usize = 64 << 10;
/// Longest producer.
const MAX_PRODUCER_BYTES: u64 = 4000;
/// The most distinct producers that are kept.
const MAX_PRODUCERS: usize = 64;

/// Flags, or prefixes of flags, that affect unwinding or the cost of frame pointers.
const FLAGS: [&str; 17] = [
    "-O",
    "-fomit-frame-pointer",
    "-fno-omit-frame-pointer",
    "-momit-leaf-frame-pointer",
    "-mno-omit-leaf-frame-pointer",
    "-mreserve-frame-pointer-reg",
    "-mbackchain",
    "-fasynchronous-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-funwind-tables",
    "-fno-unwind-tables",
    "-fshrink-wrap",
    "-fno-shrink-wrap",
    "-foptimize-sibling-calls",
    "-fno-optimize-sibling-calls",
    "-flto",
    "-fcf-protection",
];

/// The producers of a file, most units first, and what was left out.
pub(super) fn producers<'a, R: ReadRef<'a>>(data: R, places: &DebugPlaces) -> (Vec<Producer>, Option<Remark>) {
    if places.info.len == 0 {
        return (Vec::new(), None);
    }
    if places.is_compressed || places.abbrev.len > MAX_ABBREV_BYTES {
        return (Vec::new(), Some(Remark::CompressedDebugInfo));
    }
    let abbrev = data.read_bytes_at(places.abbrev.offset, places.abbrev.len).unwrap_or_default();
    let units = Units { data, places, abbrev, known: FxHashMap::default() };
    units.run()
}

struct Units<'p, 'a, R> {
    data: R,
    places: &'p DebugPlaces,
    abbrev: &'a [u8],
    /// Producer strings by offset: most units share one.
    known: FxHashMap<u64, Option<String>>,
}

impl<'a, R: ReadRef<'a>> Units<'_, 'a, R> {
    fn run(mut self) -> (Vec<Producer>, Option<Remark>) {
        let mut counts: FxHashMap<String, u64> = FxHashMap::default();
        let mut offset = 0;
        let mut n_units = 0;
        let mut remark = None;
        while let Some((head, next)) = self.head(offset) {
            if n_units == MAX_UNITS {
                remark = Some(Remark::UnitsLeftOut(MAX_UNITS));
                break;
            }
            n_units += 1;
            offset = next;
            let Some(producer) = self.producer(head) else { continue };
            if counts.len() < MAX_PRODUCERS || counts.contains_key(&producer) {
                *counts.entry(producer).or_default() += 1;
            }
        }
        let mut producers: Vec<_> = counts.into_iter().map(|(text, units)| split(&text, units)).collect();
        producers
            .sort_by(|a, b| b.units.cmp(&a.units).then_with(|| (&a.compiler, &a.flags).cmp(&(&b.compiler, &b.flags))));
        (merge(producers), remark)
    }

    /// The head of the unit at `offset`, with its length patched, and the offset of the next unit.
    fn head(&self, offset: u64) -> Option<(Vec<u8>, u64)> {
        let left = self.places.info.len.checked_sub(offset)?;
        let mut head = read(self.data, &self.places.info, offset, left.min(HEAD_BYTES))?.to_vec();
        let short = u32::from_le_bytes(*head.first_chunk()?);
        let (after, len) = if short == u32::MAX {
            (12, u64::from_le_bytes(*head.get(4..)?.first_chunk()?))
        } else {
            (4, u64::from(short))
        };
        let next = offset.checked_add(after)?.checked_add(len)?;
        head.truncate(usize::try_from(next.checked_sub(offset)?).unwrap_or(usize::MAX));
        let kept = (head.len() as u64).checked_sub(after)?;
        if short == u32::MAX {
            head.get_mut(4..12)?.copy_from_slice(&kept.to_le_bytes());
        } else {
            head.get_mut(..4)?.copy_from_slice(&u32::try_from(kept).ok()?.to_le_bytes());
        }
        Some((head, next))
    }

    fn producer(&mut self, head: Vec<u8>) -> Option<String> {
        let info = DebugInfo::new(&head, LittleEndian);
        let header = info.units().next().ok()??;
        let root = header.range_from(header.root_offset()..).ok()?.read_uleb128().ok()?;
        let entry =
            entries(self.abbrev, header.debug_abbrev_offset().0, MAX_TABLE_BYTES).find(|entry| entry.code == root)?;
        // A table of that abbreviation alone: whole tables are long, and shared by many units.
        let table = [entry.bytes, &[0]].concat();
        let table = DebugAbbrev::new(&table, LittleEndian);
        let abbreviations = table.abbreviations(DebugAbbrevOffset(0)).ok()?;
        let mut entries = header.entries(&abbreviations);
        let root = entries.next_dfs().ok()??;
        let base = match root.attr_value(gimli::DW_AT_str_offsets_base) {
            Some(AttributeValue::DebugStrOffsetsBase(base)) => base.0 as u64,
            _ => 8,
        };
        match root.attr_value(gimli::DW_AT_producer)? {
            AttributeValue::String(text) => Some(String::from_utf8_lossy(text.slice()).into_owned()),
            AttributeValue::DebugStrRef(at) => self.string(self.places.str, at.0 as u64),
            AttributeValue::DebugLineStrRef(at) => self.string(self.places.line_str, at.0 as u64),
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let at = base.checked_add((index.0 as u64).checked_mul(4)?)?;
                let offset = read(self.data, &self.places.str_offsets, at, 4)?;
                self.string(self.places.str, u64::from(u32::from_le_bytes(*offset.first_chunk()?)))
            }
            _ => None,
        }
    }

    fn string(&mut self, place: Place, at: u64) -> Option<String> {
        let start = place.offset.checked_add(at)?;
        let end = place.offset.checked_add(place.len)?.min(start.checked_add(MAX_PRODUCER_BYTES)?);
        let data = self.data;
        let read = || Some(String::from_utf8_lossy(data.read_bytes_at_until(start..end, 0).ok()?).into_owned());
        self.known.entry(start).or_insert_with(read).clone()
    }
}

fn read<'a, R: ReadRef<'a>>(data: R, place: &Place, at: u64, len: u64) -> Option<&'a [u8]> {
    if at.checked_add(len)? > place.len {
        return None;
    }
    data.read_bytes_at(place.offset.checked_add(at)?, len).ok()
}

/// Compiler and flags of a producer such as `GNU C17 12.2.0 -mtune=generic -g -O2 -fno-omit-frame-pointer`.
fn split(producer: &str, units: u64) -> Producer {
    let mut compiler = Vec::new();
    let mut flags = Vec::new();
    for word in producer.split_whitespace() {
        let is_flag = word.starts_with('-');
        if !is_flag && flags.is_empty() && !producer_flags_began(&compiler) {
            compiler.push(word);
        } else if is_flag {
            compiler.push("");
            if FLAGS.iter().any(|flag| word.starts_with(flag)) {
                flags.push(word.to_owned());
            }
        }
    }
    compiler.retain(|word| !word.is_empty());
    Producer { compiler: compiler.join(" "), flags, units }
}

/// Whether a flag was already found, which is marked by an empty word.
fn producer_flags_began(words: &[&str]) -> bool {
    words.last().is_some_and(|word| word.is_empty())
}

/// Merges producers that differ only in other flags.
fn merge(producers: Vec<Producer>) -> Vec<Producer> {
    let mut merged: Vec<Producer> = Vec::new();
    for producer in producers {
        match merged.iter_mut().find(|known| (&known.compiler, &known.flags) == (&producer.compiler, &producer.flags)) {
            Some(known) => known.units = known.units.saturating_add(producer.units),
            None => merged.push(producer),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a producer of GCC is parsed, and that flags without influence on unwinding are left out.
    #[test]
    fn producers_are_taken_apart() {
        let got = split("GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2 -fno-omit-frame-pointer -std=c11", 3);
        assert_eq!(got.compiler, "GNU C17 12.2.0");
        assert_eq!(got.flags, ["-O2", "-fno-omit-frame-pointer"]);
        let got = split("clang LLVM (rustc version 1.95.0 (59807616e 2026-04-14))", 1);
        assert_eq!(got.compiler, "clang LLVM (rustc version 1.95.0 (59807616e 2026-04-14))");
        assert!(got.flags.is_empty());
    }

    /// Check that units are merged if they differ only in other flags.
    #[test]
    fn other_flags_do_not_split_producers() {
        let got = merge(vec![split("GNU C17 12.2.0 -g -O2", 3), split("GNU C17 12.2.0 -g3 -O2", 2)]);
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].units, 5);
    }
}
