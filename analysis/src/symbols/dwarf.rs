//! Functions and inline frames from DWARF.

use super::demangle::{Demangled, is_mangled};
use super::symbol_map::SymbolMap;
use super::symbolizer::Detail;
use crate::modules::ElfFile;
use gimli::{DwarfSections, EndianSlice, RunTimeEndian, SectionId};

/// Most bytes of all DWARF sections of a module together; beyond it there are no inline frames, and a warning.
const MAX_DWARF_BYTES: u64 = 1 << 30;
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
    ///
    /// A function that DWARF gives no linkage name takes the one of the symbol table: with `line-tables-only`, DWARF has
    /// `get` or `{closure#0}` of whatever type or module.
    pub(super) fn names(
        &self,
        svmas: &[u64],
        detail: Detail,
        symbols: &SymbolMap<'_>,
        demangled: &mut Demangled,
    ) -> Vec<Vec<String>> {
        let nothing = || svmas.iter().map(|_| Vec::new()).collect();
        let dwarf =
            self.sections.borrow_with_sup(self.supplementary.as_ref(), |bytes| EndianSlice::new(bytes, self.endian));
        let Ok(context) = addr2line::Context::from_dwarf(dwarf) else { return nothing() };
        svmas
            .iter()
            .map(|&svma| {
                let symbol = symbols.find(svma).filter(|symbol| is_mangled(symbol));
                names_at(&context, svma, detail, symbol, demangled)
            })
            .collect()
    }
}

fn names_at(
    context: &addr2line::Context<EndianSlice<'_, RunTimeEndian>>,
    svma: u64,
    detail: Detail,
    symbol: Option<&[u8]>,
    demangled: &mut Demangled,
) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(mut frames) = context.find_frames(svma).skip_all_loads() else { return Vec::new() };
    while let Ok(Some(frame)) = frames.next() {
        let Some(function) = frame.function.filter(|_| found.len() < MAX_INLINE_DEPTH) else { break };
        found.push((function.name.slice(), frame.location));
    }
    // The last is the function itself, which all others are inlined into.
    if let (Some((function, _)), Some(symbol)) = (found.last_mut(), symbol)
        && !is_mangled(function)
    {
        *function = symbol;
    }
    let named = |(function, location): (&[u8], Option<addr2line::Location<'_>>)| {
        let mut name = demangled.name(function);
        if let Some(location) = location.filter(|_| detail == Detail::Lines) {
            push_line(&mut name, location.file, location.line);
        }
        name
    };
    found.into_iter().map(named).collect()
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
