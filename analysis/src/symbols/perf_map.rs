//! Names of code that a program compiled while it ran, from the table it kept for perf.

use super::demangle::demangle;
use fpprof_recording::compiled::perf_map::function;
use std::collections::BTreeMap;

/// Most lines read; a long-running JVM has some 100,000.
const MAX_LINES: usize = 4 << 20;

/// The table of a process.
///
/// Compilers move and drop code, and say so by naming the same addresses again: of several lines for an address the
/// last counts.
#[derive(Debug, Default)]
pub struct PerfMap {
    text: Vec<u8>,
    /// By first address: the first address above, and the name's place in `text`. They do not overlap.
    ranges: BTreeMap<u64, Range>,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    end: u64,
    name: (usize, usize),
}

impl PerfMap {
    /// Reads a table: on each line the first address and the bytes, both in hex, and the name. Other lines are left out.
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

    /// The name of the function that an address (AVMA) is in.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<String> {
        let (_, range) = self.ranges.range(..=address).next_back().filter(|(_, range)| address < range.end)?;
        Some(demangle(self.text.get(range.name.0..range.name.1)?.trim_ascii_end()))
    }
}

/// Takes the range out of those it overlaps, then puts it there.
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

    /// Check that addresses get the function they are in, that names may hold blanks, and that there is nothing beyond.
    #[test]
    fn functions_are_found() {
        let map = PerfMap::read(b"1000 20 LazyCompile:*f a.js:1\n0x2000 0x8 second\r\n".to_vec());
        assert_eq!(
            names(&map, &[0xfff, 0x1000, 0x101f, 0x1020]),
            ["", "LazyCompile:*f a.js:1", "LazyCompile:*f a.js:1", ""]
        );
        assert_eq!(names(&map, &[0x2000, 0x2008]), ["second", ""]);
    }

    /// Check that code that took the place of other code is named by the later line, and what is left of the other by
    /// the earlier one.
    #[test]
    fn later_lines_win() {
        let map = PerfMap::read(b"1000 100 old\n1040 20 new\n1050 8 newest\n".to_vec());
        let found = names(&map, &[0x1000, 0x1040, 0x1050, 0x1058, 0x1060, 0x10ff, 0x1100]);
        assert_eq!(found, ["old", "new", "newest", "new", "old", "old", ""]);
    }

    /// Check that lines that make no sense are left out, and that no line ends the reading.
    #[test]
    fn hostile_lines_are_left_out() {
        let text =
            b"\n x\n1000\n1000 20\n1000 20 \nffffffffffffffff 2 wraps\n1000 0 empty\n-1 2 x\n\xff\xfe 2 y\n3000 1 \xff";
        let map = PerfMap::read(text.to_vec());
        assert_eq!(map.ranges.len(), 1, "{map:?}");
        assert_eq!(names(&map, &[0x1000, 0x3000]), ["", "\u{fffd}"]);
    }
}
