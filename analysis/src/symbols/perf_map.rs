//! Names of JIT-compiled code, from the table that the program wrote for perf.

use super::demangle::demangle;
use fpprof_recording::compiled::perf_map::function;
use std::collections::BTreeMap;

/// The most lines read; a long-running JVM has about 100,000.
const MAX_LINES: usize = 4 << 20;

/// The table of a process.
///
/// Compilers move and drop code, and report it by listing the same addresses again: of several lines for an address the
/// last counts.
#[derive(Debug, Default)]
pub struct PerfMap {
    text: Vec<u8>,
    /// By start address: the end, and the range of the name in `text`. Disjoint.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    end: u64,
    name: (usize, usize),
}

impl PerfMap {
    /// Reads a table: each line has the start address and the size, both in hex, and the name. Other lines are ignored.
    #[must_use]
    pub fn read(text: Vec<u8>) -> Self {
        let mut ranges = BTreeMap::new();
        let mut from = 0;
        for line in text.split(|&byte| byte == b'\n').take(MAX_LINES) {
            if let Some((start, end, name_at)) = function(line) {
                insert(&mut ranges, start, Range { end, name: (from + name_at, from + line.len()) });
            }
            from += line.len() + 1;
        }
        Self { text, ranges }
    }

    /// The name of the function that contains an address (AVMA).
    #[must_use]
    pub fn find(&self, address: u64) -> Option<String> {
        let (_, range) = self.ranges.range(..=address).next_back().filter(|(_, range)| address < range.end)?;
        Some(demangle(self.text.get(range.name.0..range.name.1)?.trim_ascii_end()))
    }
}

/// Cuts the range out of those it overlaps, then inserts it.
fn insert(ranges: &mut BTreeMap<u64, Range>, start: u64, new: Range) {
    while let Some((hit_start, hit)) = ranges.range(..new.end).next_back().map(|(&start, &hit)| (start, hit)) {
        if hit.end <= start {
            break;
        }
        ranges.remove(&hit_start);
        if hit.end > new.end {
            ranges.insert(new.end, hit);
        }
        if hit_start < start {
            ranges.insert(hit_start, Range { end: start, ..hit });
        }
    }
    ranges.insert(start, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(map: &PerfMap, addresses: &[u64]) -> Vec<String> {
        addresses.iter().map(|&address| map.find(address).unwrap_or_default()).collect()
    }

    /// Check that addresses get the function they are in, that names may contain spaces, and that other addresses have
    /// none.
    #[test]
    fn functions_are_found() {
        let map = PerfMap::read(b"1000 20 LazyCompile:*f a.js:1\n0x2000 0x8 second\r\n".to_vec());
        assert_eq!(
            names(&map, &[0xfff, 0x1000, 0x101f, 0x1020]),
            ["", "LazyCompile:*f a.js:1", "LazyCompile:*f a.js:1", ""]
        );
        assert_eq!(names(&map, &[0x2000, 0x2008]), ["second", ""]);
    }

    /// Check that code that replaced other code is named by the later line, and the rest of the replaced code by the
    /// earlier one.
    #[test]
    fn later_lines_win() {
        let map = PerfMap::read(b"1000 100 old\n1040 20 new\n1050 8 newest\n".to_vec());
        let found = names(&map, &[0x1000, 0x1040, 0x1050, 0x1058, 0x1060, 0x10ff, 0x1100]);
        assert_eq!(found, ["old", "new", "newest", "new", "old", "old", ""]);
    }

    /// Check that invalid lines are ignored, and that none ends the reading.
    #[test]
    fn hostile_lines_are_left_out() {
        let text =
            b"\n x\n1000\n1000 20\n1000 20 \nffffffffffffffff 2 wraps\n1000 0 empty\n-1 2 x\n\xff\xfe 2 y\n3000 1 \xff";
        let map = PerfMap::read(text.to_vec());
        assert_eq!(map.ranges.len(), 1, "{map:?}");
        assert_eq!(names(&map, &[0x1000, 0x3000]), ["", "\u{fffd}"]);
    }
}
