//! Functions and inline frames from DWARF.

use super::demangle::Demangled;
use super::symbolizer::Detail;
use crate::modules::ElfFile;
use fpprof_recording::model::BuildId;
use gimli::{DwarfSections, EndianSlice, RunTimeEndian, SectionId};

/// Most bytes of all DWARF sections of a module together; beyond it there are no inline frames, and a warning.
const MAX_DWARF_BYTES: u64 = 1 << 30;
/// Most bytes of a link to a supplementary file: a path and a build id.
const MAX_LINK_BYTES: u64 = 8 << 10;
/// Most inline frames at one address; the deepest in rustc has some 60.
const MAX_INLINE_DEPTH: usize = 256;

/// Most characters of a file's name beside a function.
const MAX_FILE_CHARS: usize = 255;

/// The sections that functions, inline frames and names need.
const SECTIONS: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// The DWARF of a module, in memory.
#[derive(Debug)]
pub(super) struct Dwarf {
    sections: DwarfSections<Vec<u8>>,
    /// What several modules share (dwz).
    supplementary: Option<DwarfSections<Vec<u8>>>,
    endian: RunTimeEndian,
}

/// There is DWARF, but more than we read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooMuchDwarf;

impl Dwarf {
    /// The DWARF of a file.
    pub(super) fn new(file: &ElfFile, supplementary: Option<&ElfFile>) -> Result<Self, TooMuchDwarf> {
        let endian = if file.image().little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let mut left_bytes = MAX_DWARF_BYTES;
        let sections = load(file, &mut left_bytes)?;
        let supplementary = supplementary.map(|file| load(file, &mut left_bytes)).transpose()?;
        Ok(Self { sections, supplementary, endian })
    }

    /// Asks for the names of many addresses: of each the function at the address, innermost inline frame first.
    /// An address that DWARF does not know has none.
    pub(super) fn names(&self, svmas: &[u64], detail: Detail, demangled: &mut Demangled) -> Vec<Vec<String>> {
        let nothing = || svmas.iter().map(|_| Vec::new()).collect();
        let dwarf =
            self.sections.borrow_with_sup(self.supplementary.as_ref(), |bytes| EndianSlice::new(bytes, self.endian));
        let Ok(context) = addr2line::Context::from_dwarf(dwarf) else { return nothing() };
        svmas.iter().map(|&svma| names_at(&context, svma, detail, demangled)).collect()
    }
}

fn names_at(
    context: &addr2line::Context<EndianSlice<'_, RunTimeEndian>>,
    svma: u64,
    detail: Detail,
    demangled: &mut Demangled,
) -> Vec<String> {
    let mut names = Vec::new();
    let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else { return names };
    while let Ok(Some(frame)) = frames.next() {
        let Some(function) = frame.function.filter(|_| names.len() < MAX_INLINE_DEPTH) else { break };
        let mut name = demangled.name(function.name.slice());
        if let Some(location) = frame.location.filter(|_| detail == Detail::Lines) {
            push_line(&mut name, location.file, location.line);
        }
        names.push(name);
    }
    names
}

/// ` (file.c:12)`: the last part of the path is what a person looks for, and the module stands beside the name.
fn push_line(name: &mut String, file: Option<&str>, line: Option<u32>) {
    let (Some(file), Some(line)) = (file, line) else { return };
    let file = file.rsplit('/').next().unwrap_or(file);
    let file: String = file.chars().take(MAX_FILE_CHARS).collect();
    name.push_str(&format!(" ({file}:{line})"));
}

fn load(file: &ElfFile, left_bytes: &mut u64) -> Result<DwarfSections<Vec<u8>>, TooMuchDwarf> {
    let all = file.sections();
    DwarfSections::load(|id| {
        let wanted = SECTIONS.contains(&id).then(|| all.iter().find(|section| section.name == id.name().as_bytes()));
        let Some(section) = wanted.flatten() else { return Ok(Vec::new()) };
        if section.full_bytes() > *left_bytes {
            return Err(TooMuchDwarf);
        }
        let bytes = file.read(section, *left_bytes).unwrap_or_default();
        *left_bytes = left_bytes.saturating_sub(bytes.len() as u64);
        Ok(bytes)
    })
}

/// The build id of the file that a debug file shares parts with.
///
/// # Sources
/// `.gnu_debugaltlink`: a path, a zero byte, a build id (dwz, `write_gnu_debugaltlink`).
pub(super) fn supplementary_build_id(file: &ElfFile) -> Option<BuildId> {
    let sections = file.sections();
    let link = sections.iter().find(|section| section.name == b".gnu_debugaltlink")?;
    let bytes = file.read(link, MAX_LINK_BYTES)?;
    let end = bytes.iter().position(|&byte| byte == 0)?;
    BuildId::new(bytes.get(end.checked_add(1)?..)?)
}
