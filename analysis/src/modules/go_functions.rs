//! Go's function table (`.gopclntab`), which is in every Go program, stripped or not.
//!
//! # Sources
//! Go 1.26 `src/debug/gosym/pclntab.go` (all forms of the table since Go 1.2) and `src/runtime/symtab.go` (`pcHeader`,
//! `moduledata`), `src/runtime/runtime2.go` (`_func`).

use super::{ElfFile, SectionInfo};
use std::ops::Range;

/// The most bytes of a table; that of a program of 200 MB has about 40 MiB.
const MAX_TABLE_BYTES: u64 = 128 << 20;
/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 4 << 10;
/// The most bytes of `.go.module`, Go's description of a program's code.
const MAX_MODULE_BYTES: u64 = 64 << 10;
/// Index, in words, of the address of the first function there.
const MODULE_TEXT: usize = 22;

/// Why a program's table cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoMissing {
    /// It is larger than the limit.
    TooLarge,
    /// It cannot be read, has an unknown version, or lacks the address of the code.
    Unreadable,
}

impl GoMissing {
    /// As text, for a warning.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::TooLarge => "Go's table of functions is too large; stripped functions have no names",
            Self::Unreadable => "Go's table of functions cannot be read; stripped functions have no names",
        }
    }
}

/// The functions of a Go program: their start addresses, ascending, and names.
#[derive(Debug)]
pub(crate) struct GoFunctions {
    table: Vec<u8>,
    /// Size of a field of an entry, in bytes.
    field: usize,
    n_functions: usize,
    /// Base of the start addresses.
    text: u64,
    /// Offsets of the entries, of the base of their offsets to details, and of the names.
    entries: usize,
    details: usize,
    names: usize,
}

/// The version of the table, by its magic number.
enum Version {
    Go1_2,
    Go1_16,
    Go1_18,
}

impl GoFunctions {
    /// Reads the table of a program; `None` if it is not Go's.
    ///
    /// # Errors
    /// Why the table cannot be used.
    pub(crate) fn read(elf: &ElfFile, sections: &[SectionInfo]) -> Result<Option<Self>, GoMissing> {
        let is_table =
            |section: &&SectionInfo| section.name == b".gopclntab" || section.name == b".data.rel.ro.gopclntab";
        let Some(section) = sections.iter().find(is_table) else { return Ok(None) };
        if section.full_bytes() > MAX_TABLE_BYTES {
            return Err(GoMissing::TooLarge);
        }
        let table = elf.read(section, MAX_TABLE_BYTES).filter(|_| elf.image().little_endian);
        let text = |word| text_by_module(elf, sections, section.svma, word);
        let functions = table.and_then(|table| Self::parse(table, text)).ok_or(GoMissing::Unreadable)?;
        let start = functions.start(0).ok_or(GoMissing::Unreadable)?;
        let is_code = |section: &SectionInfo| section.is_code() && start.wrapping_sub(section.svma) < section.bytes;
        if sections.iter().any(is_code) { Ok(Some(functions)) } else { Err(GoMissing::Unreadable) }
    }

    /// Parses a table. If its header lacks the base of the functions, `text` is called with the size of an address to
    /// find it.
    fn parse(table: Vec<u8>, text: impl FnOnce(usize) -> Option<u64>) -> Option<Self> {
        let &[magic @ .., 0, 0, 1 | 2 | 4, word @ (4 | 8)] = table.first_chunk::<8>()? else { return None };
        let version = match u32::from_le_bytes(magic) {
            0xffff_fffb => Version::Go1_2,
            0xffff_fffa => Version::Go1_16,
            0xffff_fff0 | 0xffff_fff1 => Version::Go1_18,
            _ => return None,
        };
        let word = usize::from(word);
        let head = |index: usize| uint(&table, 8 + index * word, word);
        let place = |index: usize| usize::try_from(head(index)?).ok();
        let n_functions = place(0)?;
        let (field, entries, details, names) = match version {
            Version::Go1_2 => (word, 8 + word, 0, 0),
            Version::Go1_16 => (word, place(6)?, place(6)?, place(2)?),
            Version::Go1_18 => (4, place(7)?, place(7)?, place(3)?),
        };
        let text = match version {
            Version::Go1_2 | Version::Go1_16 => 0,
            // Go 1.26 leaves it out.
            Version::Go1_18 => head(2).filter(|&text| text != 0).or_else(|| text(word))?,
        };
        let bytes = n_functions.checked_mul(2)?.checked_add(1)?.checked_mul(field)?;
        (entries.checked_add(bytes)? <= table.len()).then_some(())?;
        Some(Self { table, field, n_functions, text, entries, details, names })
    }

    /// All functions: their code and names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &[u8])> {
        (0..self.n_functions).filter_map(|index| self.function(index))
    }

    /// The name of the function that contains an SVMA.
    pub(crate) fn find(&self, svma: u64) -> Option<&[u8]> {
        let (mut low, mut high) = (0, self.n_functions);
        while low < high {
            let middle = low.midpoint(high);
            if self.start(middle)? <= svma { low = middle + 1 } else { high = middle }
        }
        let (range, name) = self.function(low.checked_sub(1)?)?;
        range.contains(&svma).then_some(name)
    }

    /// Start of function number `index`; after the last one, its end.
    fn start(&self, index: usize) -> Option<u64> {
        let at = index.checked_mul(2 * self.field)?.checked_add(self.entries)?;
        Some(self.text.wrapping_add(uint(&self.table, at, self.field)?))
    }

    fn function(&self, index: usize) -> Option<(Range<u64>, &[u8])> {
        let at = index.checked_mul(2 * self.field)?.checked_add(self.entries)?.checked_add(self.field)?;
        let details = usize::try_from(uint(&self.table, at, self.field)?).ok()?.checked_add(self.details)?;
        let (start, end) = (self.start(index)?, self.start(index.checked_add(1)?)?);
        // The details repeat the start of the function.
        if self.text.wrapping_add(uint(&self.table, details, self.field)?) != start {
            return None;
        }
        let name = usize::try_from(uint(&self.table, details.checked_add(self.field)?, 4)?).ok()?;
        let name = self.table.get(self.names.checked_add(name)?..)?;
        let name = name.get(..name.len().min(MAX_NAME_BYTES))?;
        let name = name.get(..memchr::memchr(0, name)?)?;
        (!name.is_empty()).then_some((start..end, name))
    }
}

/// The base of the functions according to `.go.module`, which begins with the table's address.
fn text_by_module(elf: &ElfFile, sections: &[SectionInfo], table: u64, word: usize) -> Option<u64> {
    let module = sections.iter().find(|section| section.name == b".go.module")?;
    let bytes = elf.read(module, MAX_MODULE_BYTES)?;
    (uint(&bytes, 0, word)? == table).then_some(())?;
    uint(&bytes, MODULE_TEXT * word, word)
}

/// An unsigned number of 4 or 8 bytes.
fn uint(bytes: &[u8], at: usize, n: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(n)?)?;
    match n {
        4 => bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes).into()),
        _ => bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[u8] = b"runtime.rt0_go\0main.burn\0runtime.goexit\0";
    /// (start, offset of the name).
    const FUNCTIONS: [(u64, u64); 3] = [(0x1000, 0), (0x1040, 15), (0x10c0, 25)];
    const END: u64 = 0x1100;

    /// A table as Go's linker writes it.
    fn table(magic: u32, word: usize) -> Vec<u8> {
        let mut table = [&magic.to_le_bytes()[..], &[0, 0, 1, u8::try_from(word).unwrap()]].concat();
        let push = |table: &mut Vec<u8>, value: u64, n: usize| table.extend(&value.to_le_bytes()[..n]);
        let (is_offset, n_words) = match magic {
            0xffff_fffb => (false, 1),
            0xffff_fffa => (false, 7),
            _ => (true, 8),
        };
        let names = if n_words == 1 { 0 } else { 8 + n_words * word };
        let field = if is_offset { 4 } else { word };
        let entries = 8 + n_words * word + if n_words == 1 { 0 } else { NAMES.len() };
        let details_at = (2 * FUNCTIONS.len() + 1) * field;
        let head: Vec<u64> = match n_words {
            1 => vec![],
            7 => vec![0, names as u64, 0, 0, 0, entries as u64],
            _ => vec![0, 0, names as u64, 0, 0, 0, entries as u64],
        };
        for value in [FUNCTIONS.len() as u64].into_iter().chain(head) {
            push(&mut table, value, word);
        }
        // In the oldest version the names are after everything else, and offsets are from the start of the table.
        let (base, names_base) = match n_words {
            1 => (entries, entries + details_at + FUNCTIONS.len() * (field + 4)),
            _ => {
                table.extend(NAMES);
                (0, 0)
            }
        };
        let start = |start: u64| if is_offset { start - 0x1000 } else { start };
        for (index, &(from, _)) in FUNCTIONS.iter().enumerate() {
            push(&mut table, start(from), field);
            push(&mut table, (base + details_at + index * (field + 4)) as u64, field);
        }
        push(&mut table, start(END), field);
        for (from, name) in FUNCTIONS {
            push(&mut table, start(from), field);
            push(&mut table, names_base as u64 + name, 4);
        }
        if n_words == 1 {
            table.extend(NAMES);
        }
        table
    }

    const FORMS: [(u32, usize); 6] =
        [(0xffff_fffb, 8), (0xffff_fffa, 8), (0xffff_fff0, 8), (0xffff_fff1, 8), (0xffff_fff1, 4), (0xffff_fffb, 4)];

    /// Check that all functions are found in every version of the table, with their ends and names.
    #[test]
    fn functions_of_all_versions() {
        for (magic, word) in FORMS {
            let functions = GoFunctions::parse(table(magic, word), |_| Some(0x1000)).unwrap();
            let all: Vec<_> = functions.iter().collect();
            let expected: [(Range<u64>, &[u8]); 3] = [
                (0x1000..0x1040, b"runtime.rt0_go"),
                (0x1040..0x10c0, b"main.burn"),
                (0x10c0..0x1100, b"runtime.goexit"),
            ];
            assert_eq!(all, expected, "{magic:#x}, {word}");
            for (svma, name) in [(0x1000, 0), (0x103f, 0), (0x1040, 1), (0x10bf, 1), (0x10ff, 2)] {
                assert_eq!(functions.find(svma), Some(expected[name].1), "{magic:#x}, {word}: {svma:#x}");
            }
            assert_eq!((functions.find(0xfff), functions.find(0x1100)), (None, None), "{magic:#x}, {word}");
        }
        assert!(GoFunctions::parse(table(0xffff_fff1, 8), |_| None).is_none(), "nothing says where the code is");
    }

    /// Check that damaged and truncated tables merely lack functions.
    #[test]
    fn damaged_tables_give_fewer_functions() {
        for (magic, word) in FORMS {
            let whole = table(magic, word);
            let n_bytes = whole.len();
            let cut = (0..n_bytes).map(|n| whole[..n].to_vec());
            let changed = (0..n_bytes).flat_map(|at| [0, 0x7f, 0x80, 0xff].map(|byte| (at, byte))).map(|(at, byte)| {
                let mut table = whole.clone();
                table[at] = byte;
                table
            });
            for table in cut.chain(changed) {
                let Some(functions) = GoFunctions::parse(table, |_| Some(u64::MAX - 7)) else { continue };
                assert!(functions.iter().take(1000).all(|(_, name)| name.len() <= n_bytes));
                for svma in [0, 0x1000, 0x1050, u64::MAX] {
                    let _ = functions.find(svma);
                }
            }
        }
    }
}
