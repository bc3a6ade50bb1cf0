//! Finds the compiler of the code at an address.

use crate::address_space::FileIx;
use crate::modules::{ElfFile, ModuleTable};
use gimli::{AttributeValue, DwarfSections, EndianSlice, LittleEndian, SectionId};

/// The most bytes of all debug sections together; for a file with more, only `.comment` is read.
const MAX_DWARF_BYTES: u64 = 256 << 20;
/// The most bytes of `.comment`.
const MAX_COMMENT_BYTES: u64 = 64 << 10;
/// Longest name of a compiler.
const MAX_NAME_BYTES: usize = 120;

/// The compilers of a file.
#[derive(Debug, Default)]
pub(super) struct Producers {
    /// Ascending by start: (first SVMA, first SVMA above, index into `names`).
    units: Vec<(u64, u64, usize)>,
    names: Vec<String>,
    /// The compilers of the file as a whole.
    comment: Option<String>,
}

impl Producers {
    /// The compilers of a module, from its debug information and its `.comment`.
    pub(super) fn of(modules: &ModuleTable<'_>, file: FileIx) -> Self {
        let own = modules.open(file).ok();
        let debug = modules.open_debug(file);
        let mut producers = Self { comment: own.as_ref().and_then(comment), ..Self::default() };
        for elf in [own.as_ref(), debug.as_ref()].into_iter().flatten() {
            if producers.units.is_empty() {
                producers.read_units(elf);
            }
        }
        producers.units.sort_unstable();
        producers
    }

    /// The compiler of the code at an SVMA.
    pub(super) fn at(&self, svma: u64) -> Option<&str> {
        let above = self.units.partition_point(|&(start, ..)| start <= svma);
        let unit = above.checked_sub(1).and_then(|below| self.units.get(below)).filter(|&&(_, end, _)| svma < end);
        let name = unit.and_then(|&(.., name)| self.names.get(name));
        name.or(self.comment.as_ref()).map(String::as_str)
    }

    fn read_units(&mut self, elf: &ElfFile) -> Option<()> {
        if !elf.image().little_endian {
            return None;
        }
        let mut left_bytes = MAX_DWARF_BYTES;
        let sections = elf.sections();
        let load = |id: SectionId| -> Result<Vec<u8>, ()> {
            let Some(section) = sections.iter().find(|section| section.name == id.name().as_bytes()) else {
                return Ok(Vec::new());
            };
            let bytes = elf.read(section, left_bytes).ok_or(())?;
            left_bytes = left_bytes.checked_sub(bytes.len() as u64).ok_or(())?;
            Ok(bytes)
        };
        let sections = DwarfSections::load(load).ok()?;
        let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            self.read_unit(&dwarf, header);
        }
        Some(())
    }

    fn read_unit(
        &mut self,
        dwarf: &gimli::Dwarf<EndianSlice<'_, LittleEndian>>,
        header: gimli::UnitHeader<EndianSlice<'_, LittleEndian>>,
    ) -> Option<()> {
        let unit = dwarf.unit(header).ok()?;
        let mut entries = unit.entries();
        let root = entries.next_dfs().ok()??;
        let value: AttributeValue<_> = root.attr_value(gimli::DW_AT_producer)?;
        let producer = dwarf.attr_string(&unit, value).ok()?;
        let name = compiler(&String::from_utf8_lossy(producer.slice()));
        let index = self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len().saturating_sub(1)
        });
        let mut ranges = dwarf.unit_ranges(&unit).ok()?;
        while let Ok(Some(range)) = ranges.next() {
            if range.begin < range.end {
                self.units.push((range.begin, range.end, index));
            }
        }
        Some(())
    }
}

/// Strips the flags: `GNU C17 12.2.0` from `GNU C17 12.2.0 -mtune=generic -O2`.
fn compiler(producer: &str) -> String {
    let words = producer.split_whitespace().take_while(|word| !word.starts_with('-'));
    let name: Vec<&str> = words.collect();
    bounded(&name.join(" "))
}

/// The distinct strings of `.comment`, one for every compiler, including those of start-up files.
fn comment(elf: &ElfFile) -> Option<String> {
    let sections = elf.sections();
    let section = sections.iter().find(|section| section.name == b".comment")?;
    let bytes = elf.read(section, MAX_COMMENT_BYTES)?;
    let mut names: Vec<String> = Vec::new();
    for text in bytes.split(|&byte| byte == 0).filter(|text| !text.is_empty()).take(16) {
        let name = bounded(&String::from_utf8_lossy(text));
        // The linker is listed, too.
        if !names.contains(&name) && !name.starts_with("Linker:") {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(" + "))
}

fn bounded(name: &str) -> String {
    name.chars().take(MAX_NAME_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that flags are not part of a compiler's name, and that an address outside all units has the file's
    /// compiler.
    #[test]
    fn compilers_are_found_by_address() {
        assert_eq!(compiler("GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O2"), "GNU C17 12.2.0");
        assert_eq!(compiler("Debian clang version 14.0.6"), "Debian clang version 14.0.6");
        let producers = Producers {
            units: vec![(0x10, 0x20, 1), (0x20, 0x30, 0), (0x40, 0x50, 1)],
            names: vec!["cc".to_owned(), "as".to_owned()],
            comment: Some("both".to_owned()),
        };
        let at = |svma| producers.at(svma).unwrap_or("none");
        assert_eq!(
            [0x0f, 0x10, 0x1f, 0x20, 0x30, 0x45, 0x50].map(at),
            ["both", "as", "as", "cc", "both", "as", "both"]
        );
    }
}
