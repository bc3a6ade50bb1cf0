//! `.sframe` sections: rows with the caller's CFA, return address and frame pointer, and nothing else.
//!
//! ```text
//! header      magic, version, flags, ABI, fixed offsets, counts, where the other two begin   28 bytes plus extension
//! functions   start, size, where its rows begin, how they are encoded                        17, 20 or 16 bytes each
//! rows        version 3: counts and encoding of a function, then as in all versions:
//!             start in the function (1, 2 or 4 bytes), info (1 byte), offsets (1, 2 or 4 bytes each)
//! ```
//!
//! Versions 1 to 3 are read, little-endian. In version 3, rows of flexible functions may name any register: each of
//! CFA, return address and frame pointer is a control word and an offset, or one zero if it has no rule.
//!
//! # Sources
//! The `SFrame` format, versions 1 to 3 (binutils 2.40, 2.44 and 2.46).

use core::ops::Range;

use super::sections::Section;
use crate::arch::Arch;

const MAGIC: [u8; 2] = 0xdee2_u16.to_le_bytes();
const HEADER_BYTES: usize = 28;
/// Flag: functions are sorted by start address, as linkers write them. Unsorted sections are not used.
const SORTED: u8 = 1;
/// Flag: a function's start is relative to its own field; otherwise to the section.
const IS_RELATIVE_TO_FIELD: u8 = 4;
const ABI_AARCH64: u8 = 2;
const ABI_AMD64: u8 = 3;
/// The most rows read per function. No known function has as many.
const MAX_ROWS: u32 = 1 << 16;

/// Layout of a section.
#[derive(Debug)]
pub(super) struct Sframe {
    version: u8,
    is_relative_to_field: bool,
    /// Fixed offsets from the CFA; 0 if each row has its own.
    fixed_fp: i64,
    fixed_ra: i64,
    n_functions: usize,
    functions_at: usize,
    rows_at: usize,
}

/// An entry of the function table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    /// The code it covers, SVMAs.
    range: Range<u64>,
    is_signal_frame: bool,
    is_flexible: bool,
    /// If set, the code is a repeated block of this many bytes (PLT entries), and rows give offsets in the block.
    block_bytes: Option<u64>,
    /// Size in bytes of a row's start field.
    start_bytes: usize,
    n_rows: u32,
    rows_at: usize,
}

/// The row of an address. Offsets are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SframeRow {
    /// The code of the function, SVMAs.
    pub(crate) function: Range<u64>,
    pub(crate) is_signal_frame: bool,
    /// `None` where there is no caller.
    pub(crate) cfa: Option<SframeRule>,
    pub(crate) ra: Option<SframeRule>,
    /// The caller's fp.
    pub(crate) fp: Option<SframeRule>,
    /// In an earlier row the slot of fp was at or above sp.
    pub(crate) was_fp_in_frame: bool,
}

/// base + offset, or the word in memory there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SframeRule {
    pub(crate) base: Base,
    pub(crate) offset: i64,
    pub(crate) is_in_memory: bool,
}

/// The base of an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Cfa,
    Sp,
    Fp,
    /// Any other, by DWARF number.
    Register(u16),
}

/// A decoded row.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// Offset in the function, or in the block.
    start: u64,
    /// The row defines the CFA or marks the outermost frame, and has no rule the unwinder cannot express.
    is_sound: bool,
    cfa: Option<SframeRule>,
    ra: Option<SframeRule>,
    fp: Option<SframeRule>,
}

impl Row {
    /// Whether fp's slot is at or above sp, as far as the row shows.
    fn has_fp_in_frame(&self) -> bool {
        let above_sp = self.cfa.filter(|cfa| cfa.base == Base::Sp);
        self.fp.is_some_and(|fp| above_sp.is_none_or(|cfa| cfa.offset.saturating_add(fp.offset) >= 0))
    }
}

impl Sframe {
    /// Reads the header. `None` if it is invalid or for another architecture.
    pub(super) fn parse(section: &Section, arch: Arch) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = section.bytes.first_chunk()?;
        let &[m0, m1, version @ 1..=3, flags, abi, fixed_fp, fixed_ra, more, ..] = header else { return None };
        let is_ours = matches!((arch, abi), (Arch::X86_64, ABI_AMD64) | (Arch::Aarch64, ABI_AARCH64));
        if [m0, m1] != MAGIC || !is_ours || flags & SORTED == 0 {
            return None;
        }
        let after = HEADER_BYTES.checked_add(more.into())?;
        let part = |at| after.checked_add(usize::try_from(u32_at(header, at)?).ok()?);
        Some(Self {
            version,
            is_relative_to_field: flags & IS_RELATIVE_TO_FIELD != 0,
            fixed_fp: fixed_fp.cast_signed().into(),
            fixed_ra: fixed_ra.cast_signed().into(),
            // Bounded by what fits: each takes at least 16 bytes.
            n_functions: usize::try_from(u32_at(header, 8)?).ok()?.min(section.bytes.len() / 16),
            functions_at: part(20)?,
            rows_at: part(24)?,
        })
    }

    /// The function that covers an address.
    fn find(&self, section: &Section, svma: u64) -> Option<Function> {
        let number = self.n_starting_up_to(section, svma)?.checked_sub(1)?;
        self.function(section, number).filter(|function| function.range.contains(&svma))
    }

    /// Start of the first function above an address.
    pub(super) fn next_start(&self, section: &Section, svma: u64) -> Option<u64> {
        self.start(section, self.n_starting_up_to(section, svma)?)
    }

    /// The ranges of functions that have rows.
    pub(super) fn ranges(&self, section: &Section) -> impl Iterator<Item = Range<u64>> {
        let functions = (0..self.n_functions).filter_map(|number| self.function(section, number));
        functions.filter(|function| function.n_rows > 0).map(|function| function.range)
    }

    /// The row of an address.
    pub(super) fn row(&self, section: &Section, svma: u64) -> Option<SframeRow> {
        let function = self.find(section, svma)?;
        let (row, was_fp_in_frame) = self.find_row(section, &function, svma)?;
        let Function { range: function, is_signal_frame, .. } = function;
        let Row { start: _, is_sound: _, cfa, ra, fp } = row;
        Some(SframeRow { function, is_signal_frame, cfa, ra, fp, was_fp_in_frame })
    }

    /// Number of functions that start at or below an address.
    fn n_starting_up_to(&self, section: &Section, svma: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.n_functions);
        while low < high {
            let middle = low.midpoint(high);
            if self.start(section, middle)? <= svma {
                low = middle.checked_add(1)?;
            } else {
                high = middle;
            }
        }
        Some(low)
    }

    fn function_at(&self, number: usize) -> Option<usize> {
        let bytes = match self.version {
            1 => 17,
            2 => 20,
            _ => 16,
        };
        self.functions_at.checked_add(number.checked_mul(bytes)?)
    }

    fn start(&self, section: &Section, number: usize) -> Option<u64> {
        let at = self.function_at(number)?;
        let offset = match self.version {
            1 | 2 => i64::from(u32_at(&section.bytes, at)?.cast_signed()),
            _ => i64::from_le_bytes(*section.bytes.get(at..)?.first_chunk()?),
        };
        let base = if self.is_relative_to_field { section.svma.checked_add(at as u64)? } else { section.svma };
        Some(base.wrapping_add_signed(offset))
    }

    fn function(&self, section: &Section, number: usize) -> Option<Function> {
        const IS_REPEATED: u8 = 1 << 4;
        const IS_SIGNAL_FRAME: u8 = 1 << 7;
        let at = self.function_at(number)?;
        let bytes = &section.bytes;
        let fields = if self.version < 3 { at.checked_add(4)? } else { at.checked_add(8)? };
        let (size, rows_at) = (u32_at(bytes, fields)?, u32_at(bytes, fields.checked_add(4)?)?);
        let mut rows_at = self.rows_at.checked_add(usize::try_from(rows_at).ok()?)?;
        let (n_rows, info, is_flexible, repeated_bytes) = if self.version < 3 {
            let rest = bytes.get(fields.checked_add(8)?..)?;
            let &[a, b, c, d, info, ref rest @ ..] = rest else { return None };
            // In version 1 only PLT entries repeat. Their rows start at the low bits of an address.
            let repeated_bytes = if self.version == 1 { 16 } else { *rest.first()? };
            (u32::from_le_bytes([a, b, c, d]), info, false, repeated_bytes)
        } else {
            let &[a, b, info, kind, repeated_bytes, ..] = bytes.get(rows_at..)? else { return None };
            rows_at = rows_at.checked_add(5)?;
            let is_flexible = match kind & 0x1f {
                0 => false,
                1 => true,
                _ => return None,
            };
            (u16::from_le_bytes([a, b]).into(), info, is_flexible, repeated_bytes)
        };
        let start = self.start(section, number)?;
        Some(Function {
            range: start..start.checked_add(size.into())?,
            is_signal_frame: self.version >= 3 && info & IS_SIGNAL_FRAME != 0,
            is_flexible,
            block_bytes: Some(repeated_bytes.into()).filter(|&bytes: &u64| info & IS_REPEATED != 0 && bytes > 0),
            start_bytes: match info & 0xf {
                0 => 1,
                1 => 2,
                2 => 4,
                _ => return None,
            },
            n_rows,
            rows_at,
        })
    }

    /// The last row that starts at or below an address, and whether an earlier row had fp's slot in the frame.
    fn find_row(&self, section: &Section, function: &Function, svma: u64) -> Option<(Row, bool)> {
        let offset = svma.checked_sub(function.range.start)?;
        let offset = function.block_bytes.map_or(offset, |bytes| offset % bytes);
        let (mut at, mut found, mut was_fp_in_frame) = (function.rows_at, None, false);
        for _ in 0..function.n_rows.min(MAX_ROWS) {
            let (row, after) = self.read_row(section, function, at)?;
            if row.start > offset {
                break;
            }
            was_fp_in_frame |= found.replace(row).is_some_and(|before: Row| before.has_fp_in_frame());
            at = after;
        }
        Some((found.filter(|row| row.is_sound)?, was_fp_in_frame))
    }

    /// The row at `at`, and the offset of the next one.
    fn read_row(&self, section: &Section, function: &Function, at: usize) -> Option<(Row, usize)> {
        let bytes = section.bytes.get(at..)?;
        let (start, rest) = bytes.split_at_checked(function.start_bytes)?;
        let (&info, rest) = rest.split_first()?;
        let word_bytes = match info >> 5 & 3 {
            0 => 1,
            1 => 2,
            2 => 4,
            _ => return None,
        };
        let words = rest.get(..usize::from(info >> 1 & 0xf).checked_mul(word_bytes)?)?;
        let numbers = words.chunks_exact(word_bytes).filter_map(signed);
        let rules =
            if function.is_flexible { self.flexible(numbers, word_bytes) } else { Some(self.fixed(info, numbers)) };
        let [cfa, ra, fp] = rules.unwrap_or_default();
        let start = start.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        let after = at.checked_add(function.start_bytes)?.checked_add(1)?.checked_add(words.len())?;
        // The unwinder has no rule for a register's value plus an offset.
        let is_odd = |rule: SframeRule| rule.base != Base::Cfa && !rule.is_in_memory && rule.offset != 0;
        let is_sound = (cfa.is_some() || words.is_empty()) && ![ra, fp].into_iter().flatten().any(is_odd);
        Some((Row { start, is_sound, cfa, ra, fp }, after))
    }

    /// Decodes the offsets of an ordinary row: the CFA relative to sp or fp; return address and fp in memory relative
    /// to the CFA, unless the header fixes their offsets.
    fn fixed(&self, info: u8, mut offsets: impl Iterator<Item = i64>) -> [Option<SframeRule>; 3] {
        const IS_FROM_SP: u8 = 1;
        let base = if info & IS_FROM_SP != 0 { Base::Sp } else { Base::Fp };
        let cfa = offsets.next().map(|offset| SframeRule { base, offset, is_in_memory: false });
        let mut saved = |fixed: i64| {
            let offset = if fixed == 0 { offsets.next() } else { cfa.and(Some(fixed)) };
            offset.map(|offset| SframeRule { base: Base::Cfa, offset, is_in_memory: true })
        };
        [cfa, saved(self.fixed_ra), saved(self.fixed_fp)]
    }

    /// Decodes a flexible row: each rule is a control word and an offset. The header's fixed offsets apply where there
    /// is no rule. `None` if a word is missing or the register number is invalid.
    fn flexible(&self, mut words: impl Iterator<Item = i64>, word_bytes: usize) -> Option<[Option<SframeRule>; 3]> {
        const IS_REGISTER: u64 = 1;
        const IS_IN_MEMORY: u64 = 2;
        // Offsets are signed, control words are not.
        let mask = u64::MAX >> 8_usize.saturating_sub(word_bytes).saturating_mul(8).min(63);
        let mut next = || {
            let control = words.next().map_or(0, |word| word.cast_unsigned() & mask);
            if control == 0 {
                return Some(None);
            }
            let register = u16::try_from(control >> 3).ok()?;
            Some(Some(SframeRule {
                base: if control & IS_REGISTER != 0 { Base::Register(register) } else { Base::Cfa },
                offset: words.next()?,
                is_in_memory: control & IS_IN_MEMORY != 0,
            }))
        };
        let [cfa, ra, fp] = [next()?, next()?, next()?];
        let saved = |fixed: i64| {
            let offset = cfa.and((fixed != 0).then_some(fixed));
            offset.map(|offset| SframeRule { base: Base::Cfa, offset, is_in_memory: true })
        };
        Some([cfa, ra.or_else(|| saved(self.fixed_ra)), fp.or_else(|| saved(self.fixed_fp))])
    }
}

fn signed(word: &[u8]) -> Option<i64> {
    Some(match *word {
        [byte] => byte.cast_signed().into(),
        [a, b] => i16::from_le_bytes([a, b]).into(),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
