//! Reads the DWARF sections of a file.

use crate::modules::ElfFile;
use gimli::{DwarfSections, SectionId};

/// The sections needed for functions, inline frames and names.
const SECTIONS: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// There is more DWARF than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::symbols) struct TooMuchDwarf;

pub(super) fn load(file: &ElfFile, left_bytes: &mut u64) -> Result<DwarfSections<Vec<u8>>, TooMuchDwarf> {
    DwarfSections::load(|id| match SECTIONS.contains(&id) {
        true => section(file, id.name(), left_bytes),
        false => Ok(Vec::new()),
    })
}

/// The bytes of a section; empty if there is none. In a `.dwo` by GCC each type unit has a section of its own: what has the same
/// name is joined, as a linker would.
pub(super) fn section(file: &ElfFile, name: &str, left_bytes: &mut u64) -> Result<Vec<u8>, TooMuchDwarf> {
    let mut joined = Vec::new();
    for section in file.sections().iter().filter(|section| section.name == name.as_bytes()) {
        if section.full_bytes() > *left_bytes {
            return Err(TooMuchDwarf);
        }
        let mut bytes = file.read(section, *left_bytes).unwrap_or_default();
        *left_bytes = left_bytes.saturating_sub(bytes.len() as u64);
        match joined.is_empty() {
            true => joined = bytes,
            false => joined.append(&mut bytes),
        }
    }
    Ok(joined)
}
