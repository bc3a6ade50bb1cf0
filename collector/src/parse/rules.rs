//! Rules for the kernel's walk by call frame information, as parsers return them.

use crate::bpf::types::limit;

/// The rule for a range of a file's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleRange {
    /// File offset of the first byte of code.
    pub start: u64,
    /// File offset after the last byte.
    pub end: u64,
    /// The rule; see `cfi_walk.bpf.h`.
    pub rule: u64,
}

const BYTES: usize = 24;
/// The most bytes of code in one answer.
const MAX_CODE_BYTES: u64 = 64 << 20;
/// Code beyond this offset has no rules.
const MAX_OFFSET: u64 = 1 << limit::KEY_OFFSET_BITS.0;

impl RuleRange {
    /// Encodes ranges as bytes.
    #[must_use]
    pub fn encode(ranges: &[Self]) -> Vec<u8> {
        ranges.iter().flat_map(|range| [range.start, range.end, range.rule]).flat_map(u64::to_le_bytes).collect()
    }

    /// Decodes [`Self::encode`]'s output; from other bytes, yields what can be a range, up to more code than any honest
    /// answer has.
    pub(crate) fn decode(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let mut left = MAX_CODE_BYTES;
        let ranges = bytes.as_chunks::<BYTES>().0.iter().map(|range| {
            let (words, _) = range.as_chunks::<8>();
            let word = |n: usize| words.get(n).map_or(0, |word| u64::from_le_bytes(*word));
            Self { start: word(0), end: word(1), rule: word(2) }
        });
        let ranges = ranges.filter(|range| range.start < range.end && range.end <= MAX_OFFSET);
        ranges.take_while(move |range| {
            let bytes = range.end - range.start;
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        })
    }
}

#[cfg(test)]
mod tests {
    use super::RuleRange;

    /// Check that ranges round-trip, and that invalid ones are left out.
    #[test]
    fn decodes_what_was_encoded() {
        let range = |start, end| RuleRange { start, end, rule: 0x8_0000_0000_0008 };
        let mut bytes = RuleRange::encode(&[range(16, 24), range(24, 24), range(64, 32), range(32, 33)]);
        bytes.push(1);
        assert_eq!(RuleRange::decode(&bytes).collect::<Vec<_>>(), [range(16, 24), range(32, 33)]);
        let far = RuleRange::encode(&[range(0, u64::MAX), range(1 << 38, (1 << 38) + 1), range(1, 2)]);
        assert_eq!(RuleRange::decode(&far).collect::<Vec<_>>(), [range(1, 2)]);
        let large = RuleRange::encode(&[range(0, 60 << 20), range(60 << 20, 70 << 20)]);
        assert_eq!(RuleRange::decode(&large).collect::<Vec<_>>(), [range(0, 60 << 20)]);
    }
}
