//! Reads the unwind information of an ELF file.

use super::go::go_roots;
use super::{ElfFile, Image, SectionInfo};
use fpprof_unwind::{Arch, ModuleSections, Section};

/// The most bytes of call frame information of a module, all sections together. The largest known (browsers, LLVM) have
/// about 40 MiB; an index of all FDEs takes as much again.
const MAX_BYTES: u64 = 64 << 20;

/// The remaining budget of a module.
struct Left {
    bytes: u64,
    is_spent: bool,
}

/// The call frame information of a module.
pub(super) struct UnwindSections {
    pub(super) sections: ModuleSections,
    /// There is more than the limit.
    pub(super) is_too_much: bool,
}

/// The call frame information of `elf`, complemented by its debug file.
///
/// `debug` is called only if the file has no `.debug_frame` of its own; stripping moves it to the debug file.
pub(super) fn unwind_sections(elf: &ElfFile, arch: Arch, debug: impl FnOnce() -> Option<ElfFile>) -> UnwindSections {
    let sections = elf.sections();
    let named = |name: &[u8]| find(&sections, name);
    let mut left = Left { bytes: MAX_BYTES, is_spent: false };
    let mut loaded = |name: &[u8]| named(name).and_then(|section| left.read(elf, section));
    let image = elf.image();
    let mut eh_frame = loaded(b".eh_frame");
    if sections.iter().filter(|section| section.name == b".eh_frame").count() > 1 {
        eh_frame = joined(elf, &sections).or(eh_frame);
    }
    let mut eh_frame_hdr = loaded(b".eh_frame_hdr");
    let mut debug_frame = loaded(b".debug_frame");
    if sections.is_empty() {
        (eh_frame_hdr, eh_frame) = by_segments(elf);
    }
    if debug_frame.is_none()
        && let Some(debug) = debug()
    {
        let sections = debug.sections();
        debug_frame = find(&sections, b".debug_frame").and_then(|section| left.read(&debug, section));
    }
    let sections = ModuleSections {
        eh_frame,
        eh_frame_hdr,
        debug_frame,
        sframe: None,
        text: named(b".text").and_then(|text| Some(text.svma..text.svma.checked_add(text.bytes)?)),
        got: named(b".got.plt").or_else(|| named(b".got")).map(|got| got.svma),
        arch,
        little_endian: image.little_endian,
        entry: image.entry,
        roots: go_roots(elf, &sections, arch),
    };
    UnwindSections { sections, is_too_much: left.is_spent }
}

/// The input for unwinding by `.sframe` alone; `None` without that section.
pub(super) fn sframe_sections(elf: &ElfFile, arch: Arch) -> Option<ModuleSections> {
    let sections = elf.sections();
    let section = find(&sections, b".sframe")?;
    let bytes = elf.read_shared(section, MAX_BYTES)?;
    let image = elf.image();
    Some(ModuleSections {
        sframe: Some(Section { svma: section.svma, bytes }),
        arch,
        little_endian: image.little_endian,
        entry: image.entry,
        roots: go_roots(elf, &sections, arch),
        ..ModuleSections::default()
    })
}

/// Several `.eh_frame` sections as one: the gaps between them read as terminators, which are skipped. `None` if they
/// are too far apart.
fn joined(elf: &ElfFile, sections: &[SectionInfo]) -> Option<Section> {
    let parts: Vec<&SectionInfo> = sections.iter().filter(|section| section.name == b".eh_frame").collect();
    let start = parts.iter().map(|part| part.svma).min()?;
    let end = parts.iter().filter_map(|part| part.svma.checked_add(part.full_bytes())).max()?;
    let len = end.checked_sub(start).filter(|&len| len <= MAX_BYTES / 2)?;
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    for part in parts {
        let from = usize::try_from(part.svma.checked_sub(start)?).ok()?;
        let read = elf.read(part, len)?;
        bytes.get_mut(from..from.checked_add(read.len())?)?.copy_from_slice(&read);
    }
    Some(Section { svma: start, bytes: bytes.into() })
}

fn find<'a>(sections: &'a [SectionInfo], name: &[u8]) -> Option<&'a SectionInfo> {
    sections.iter().find(|section| section.name == name)
}

impl Left {
    fn read(&mut self, elf: &ElfFile, section: &SectionInfo) -> Option<Section> {
        self.is_spent |= section.full_bytes() > self.bytes;
        let bytes = elf.read_shared(section, self.bytes)?;
        self.bytes = self.bytes.saturating_sub(bytes.len() as u64);
        Some(Section { svma: section.svma, bytes })
    }
}

/// `.eh_frame_hdr` and `.eh_frame` of a file without section headers: both extend at most to the end of their segment.
///
/// # Sources
/// LSB 5.0 Core §10.6.2 (`.eh_frame_hdr`): version, three encodings, then the encoded address of `.eh_frame`; every
/// linker writes it as 0x1b, four signed bytes relative to the field itself.
fn by_segments(elf: &ElfFile) -> (Option<Section>, Option<Section>) {
    const PCREL_SDATA4: u8 = 0x1b;
    let image = elf.image();
    let header = image.eh_frame_hdr.and_then(|svma| to_segment_end(elf, image, svma));
    let eh_frame = header.as_ref().and_then(|header| {
        let &[1, PCREL_SDATA4, _, _, a, b, c, d] = header.bytes.first_chunk::<8>()? else { return None };
        let field = header.svma.wrapping_add(4);
        let relative = i64::from(i32::from_le_bytes([a, b, c, d]));
        to_segment_end(elf, image, field.wrapping_add_signed(relative))
    });
    (header, eh_frame)
}

fn to_segment_end(elf: &ElfFile, image: &Image, svma: u64) -> Option<Section> {
    let segment = image
        .segments
        .iter()
        .find(|segment| svma.checked_sub(segment.svma).is_some_and(|offset| offset < segment.file_bytes))?;
    let skipped = svma.checked_sub(segment.svma)?;
    let offset = segment.file_offset.checked_add(skipped)?;
    let bytes = elf.read_range_shared(offset, segment.file_bytes.checked_sub(skipped)?, MAX_BYTES / 2)?;
    Some(Section { svma, bytes })
}
