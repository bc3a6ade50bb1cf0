//! The parts of a file that go into a recording: what unwinding and symbolization read, and not its data, which may
//! hold secrets.

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, FileKind};
use std::ops::Range;

/// The same file with its data zeroed. `None` if it is no ELF file: then nothing in it is of use.
///
/// Headers, code, symbols, notes, relocations (which name PLT entries), call frame information and debug
/// information are kept. Without section headers: executable segments, notes, and what follows `PT_GNU_EH_FRAME`
/// in its segment.
pub(crate) fn without_data(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let mut kept = match FileKind::parse(bytes.as_slice()).ok()? {
        FileKind::Elf64 => needed::<FileHeader64<Endianness>>(&bytes),
        FileKind::Elf32 => needed::<FileHeader32<Endianness>>(&bytes),
        _ => return None,
    }
    .ok()?;
    kept.sort_unstable_by_key(|range| range.start);
    let mut at = 0;
    for range in kept {
        // Also if a header points beyond the end of the file.
        let start = range.start.min(bytes.len());
        if let Some(data) = bytes.get_mut(at..start) {
            data.fill(0);
        }
        at = at.max(range.end);
    }
    if let Some(data) = bytes.get_mut(at..) {
        data.fill(0);
    }
    Some(bytes)
}

/// Ranges of the file, in any order; they may overlap and end beyond it.
fn needed<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> object::Result<Vec<Range<usize>>> {
    let header = E::parse(bytes)?;
    let endian = header.endian()?;
    let programs = header.program_headers(endian, bytes)?;
    let sections = header.section_headers(endian, bytes).unwrap_or_default();
    let names = header.section_strings_index(endian, bytes).ok().and_then(|index| sections.get(index.0));
    let names = names.and_then(|names| names.data(endian, bytes).ok()).unwrap_or_default();
    let mut kept = vec![
        range(0, u64::from(header.e_ehsize(endian))),
        range(header.e_phoff(endian).into(), size_of_val(programs) as u64),
        range(header.e_shoff(endian).into(), size_of_val(sections) as u64),
    ];
    for program in programs {
        let (start, len) = program.file_range(endian);
        let is_code = program.p_flags(endian) & elf::PF_X != elf::ProgramFlags(0);
        match program.p_type(endian) {
            elf::PT_NOTE => kept.push(range(start, len)),
            elf::PT_LOAD if sections.is_empty() && is_code => kept.push(range(start, len)),
            elf::PT_GNU_EH_FRAME => {
                let segments = programs.iter().filter(|program| program.p_type(endian) == elf::PT_LOAD);
                let segment = segments.map(|program| program.file_range(endian));
                let after = segment
                    .map(|(start, len)| start..start.saturating_add(len))
                    .find(|segment| sections.is_empty() && segment.contains(&start))
                    .map_or(0, |segment| segment.end - start);
                kept.push(range(start, len.max(after)));
            }
            _ => {}
        }
    }
    for section in sections {
        let name =
            usize::try_from(section.sh_name(endian)).ok().and_then(|start| names.get(start..)).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let is_code = section.sh_flags(endian) & elf::SHF_EXECINSTR != elf::SectionFlags(0);
        if let Some((start, len)) = section.file_range(endian)
            && (is_code || is_table(section.sh_type(endian)) || is_about_code(name))
        {
            kept.push(range(start, len));
        }
    }
    Ok(kept)
}

fn range(start: u64, len: u64) -> Range<usize> {
    let clamped = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    clamped(start)..clamped(start.saturating_add(len))
}

fn is_table(kind: elf::SectionType) -> bool {
    use elf::{SHT_DYNSYM, SHT_NOTE, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB, SHT_X86_64_UNWIND};
    [SHT_SYMTAB, SHT_DYNSYM, SHT_STRTAB, SHT_NOTE, SHT_REL, SHT_RELA, SHT_X86_64_UNWIND].contains(&kind)
}

fn is_about_code(name: &[u8]) -> bool {
    // `.go.buildinfo` identifies Go programs, whose stacks end in ways of their own.
    const NAMES: [&[u8]; 4] = [b".eh_frame", b".eh_frame_hdr", b".sframe", b".go.buildinfo"];
    const PREFIXES: [&[u8]; 3] = [b".debug_", b".zdebug_", b".gnu_debug"];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::without_data;
    use object::{Object as _, ObjectSection as _, SectionKind};

    /// Check that all of this very program is kept but its data, at the same place in the file.
    #[test]
    fn programs_lose_their_data() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let reduced = without_data(whole.clone()).unwrap();
        assert_eq!(reduced.len(), whole.len());
        let [whole, reduced] = [&whole, &reduced].map(|bytes| object::File::parse(bytes.as_slice()).unwrap());
        let (mut kept, mut lost) = (0, 0);
        for (ours, theirs) in reduced.sections().zip(whole.sections()) {
            let name = theirs.name().unwrap();
            assert_eq!(ours.name().unwrap(), name);
            let data = ours.data().unwrap();
            match theirs.kind() {
                SectionKind::ReadOnlyData if !name.contains("eh_frame") => {
                    assert!(data.iter().all(|&byte| byte == 0), "{name}");
                    lost += 1;
                }
                SectionKind::Data => {
                    assert!(data.iter().all(|&byte| byte == 0), "{name}");
                    lost += 1;
                }
                SectionKind::Text | SectionKind::Debug => {
                    assert_eq!(data, theirs.data().unwrap(), "{name}");
                    kept += 1;
                }
                _ => {}
            }
        }
        assert!(kept >= 1 && lost >= 2, "{kept} kept, {lost} lost");
        assert_eq!(reduced.build_id().unwrap(), whole.build_id().unwrap());
        assert_eq!(reduced.symbols().count(), whole.symbols().count());
        for name in [".eh_frame", ".eh_frame_hdr"] {
            let of = |file: &object::File<'_>| file.section_by_name(name).unwrap().data().unwrap().to_vec();
            assert_eq!(of(&reduced), of(&whole), "{name}");
        }
    }

    /// Check that without section headers, code and call frame information are kept, and data is not.
    #[test]
    fn programs_without_section_headers_keep_what_is_executed() {
        let mut whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let (text, frames, data) = {
            let file = object::File::parse(whole.as_slice()).unwrap();
            let range = |name| file.section_by_name(name).unwrap().file_range().unwrap();
            (range(".text"), range(".eh_frame"), range(".data"))
        };
        // Remove the section headers: e_shoff, e_shnum and e_shstrndx.
        whole[0x28..0x30].fill(0);
        whole[0x3c..0x40].fill(0);
        let reduced = without_data(whole.clone()).unwrap();
        let at = |bytes: &[u8], (start, len): (u64, u64)| {
            bytes[usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap()].to_vec()
        };
        for range in [text, frames] {
            assert_eq!(at(&reduced, range), at(&whole, range));
        }
        assert!(at(&reduced, data).iter().all(|&byte| byte == 0));
    }

    /// Check that a header that points beyond the end of the file keeps no data.
    #[test]
    fn headers_that_point_nowhere_keep_nothing() {
        let mut whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let data = {
            let file = object::File::parse(whole.as_slice()).unwrap();
            file.section_by_name(".data").unwrap().file_range().unwrap()
        };
        // Point to section headers, which follow the data, beyond the end.
        let len = whole.len() as u64;
        whole[0x28..0x30].copy_from_slice(&(len + 1).to_le_bytes());
        let reduced = without_data(whole).unwrap();
        let (start, len) = (usize::try_from(data.0).unwrap(), usize::try_from(data.1).unwrap());
        assert!(reduced[start..start + len].iter().all(|&byte| byte == 0));
    }

    /// Check that nothing of other files is kept, and that no cut or changed file causes a panic.
    #[test]
    fn other_files_are_left_out() {
        assert_eq!(without_data(b"a key of somebody".to_vec()), None);
        assert_eq!(without_data(Vec::new()), None);
        let whole = std::fs::read("/bin/true").unwrap();
        for len in (0..512).chain([whole.len() / 2, whole.len() - 1]) {
            let _ = without_data(whole[..len].to_vec());
        }
        for at in 0..2048.min(whole.len()) {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let _ = without_data(changed);
        }
    }
}
