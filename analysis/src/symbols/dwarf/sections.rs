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

/// The bytes of a section; empty if there is none.
pub(super) fn section(file: &ElfFile, name: &str, left_bytes: &mut u64) -> Result<Vec<u8>, TooMuchDwarf> {
    let sections = file.sections();
    let Some(section) = sections.iter().find(|section| section.name == name.as_bytes()) else { return Ok(Vec::new()) };
    if section.full_bytes() > *left_bytes {
        return Err(TooMuchDwarf);
    }
    let bytes = file.read(section, *left_bytes).unwrap_or_default();
    *left_bytes = left_bytes.saturating_sub(bytes.len() as u64);
    Ok(bytes)
}
