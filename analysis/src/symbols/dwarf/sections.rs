//! The sections of a file, as far as they are read.

use crate::modules::ElfFile;
use gimli::{DwarfSections, SectionId};

/// The sections that functions, inline frames and names need.
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

/// There is DWARF, but more than we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::symbols) struct TooMuchDwarf;

pub(super) fn load(file: &ElfFile, left_bytes: &mut u64) -> Result<DwarfSections<Vec<u8>>, TooMuchDwarf> {
    DwarfSections::load(|id| match SECTIONS.contains(&id) {
        true => section(file, id.name(), left_bytes),
        false => Ok(Vec::new()),
    })
}

/// The bytes of a section, none where there is no such section.
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
