//! Finds the files of a core without `NT_FILE`, from the dynamic linker's list.

use super::{Core, CoreOptions, MappedRange};
use crate::address_space::MappedFile;
use crate::modules::{ElfFile, Image};
use fpprof_recording::model::FileIdentity;
use fpprof_unwind::{Arch, Memory};
use object::elf;
use std::os::unix::ffi::OsStrExt as _;

/// The most libraries and entries of a dynamic section that are read; lists in damaged cores may be cyclic.
const MAX_ENTRIES: usize = 4096;
/// Longest path (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;
const PAGE: u64 = 4096;

/// The mapped files, ascending by address: the executable, whose file must be available, and the libraries it had
/// loaded. Adds what is missing to `warnings`.
///
/// # Sources
/// System V gABI, "Dynamic Section" (`DT_DEBUG`); glibc `elf/link.h` (`r_debug`, `link_map`). Emulators and older
/// kernels write such cores.
pub(super) fn files(
    core: &Core,
    memory: &dyn Memory,
    options: &CoreOptions<'_>,
    warnings: &mut Vec<String>,
) -> Vec<MappedRange> {
    let Some(path) = options.executable else {
        warnings.push("the core dump has no list of mapped files (NT_FILE); pass its executable with --exe".to_owned());
        return Vec::new();
    };
    let elf = options.resolver.open(path).and_then(ElfFile::new).ok().filter(|elf| elf.image().arch == Some(core.arch));
    let Some(elf) = elf else {
        warnings.push(format!("{}: not an executable of the core dump's architecture", path.display()));
        return Vec::new();
    };
    let Some(bias) = core.entry.zip(elf.image().entry).map(|(avma, svma)| avma.wrapping_sub(svma)) else {
        warnings.push("the core dump has no entry point (AT_ENTRY)".to_owned());
        return Vec::new();
    };
    let mut files = ranges(elf.image(), bias, path.as_os_str().as_bytes());
    let words = Words { memory, bytes: if core.arch == Arch::I386 { 4 } else { 8 } };
    for (bias, path) in libraries(&elf, bias, &words) {
        match library(core.arch, &path, options) {
            Some(image) => files.extend(ranges(&image, bias, &path)),
            None => warnings.push(format!("{}: not found", String::from_utf8_lossy(&path))),
        }
    }
    files.sort_by_key(|file| file.start);
    files
}

/// The ranges that the loader maps from a file.
fn ranges(image: &Image, bias: u64, path: &[u8]) -> Vec<MappedRange> {
    let range = |segment: &crate::modules::Segment| {
        let end = segment.svma.checked_add(segment.file_bytes)?.checked_next_multiple_of(PAGE)?;
        Some(MappedRange {
            start: (segment.svma & !(PAGE - 1)).wrapping_add(bias),
            end: end.wrapping_add(bias),
            file_offset: segment.file_offset & !(PAGE - 1),
            path: path.to_vec(),
        })
    };
    image.segments.iter().filter_map(range).filter(|range| range.start < range.end).collect()
}

fn library(arch: Arch, path: &[u8], options: &CoreOptions<'_>) -> Option<Image> {
    let file = MappedFile { path: path.to_vec(), identity: FileIdentity::default(), first_mapped_ns: 0 };
    let candidates = options.resolver.candidates(&file).into_iter().map(|candidate| candidate.path);
    let below_root = candidates.filter(|path| options.root.is_none_or(|root| path.starts_with(root)));
    below_root
        .filter_map(|path| options.resolver.open(&path).and_then(ElfFile::new).ok())
        .map(|elf| elf.image().clone())
        .find(|image| image.arch == Some(arch))
}

/// Reads memory in words of the core's architecture.
struct Words<'a> {
    memory: &'a dyn Memory,
    bytes: u64,
}

impl Words<'_> {
    /// Word `number` of an array at `start`.
    fn get(&self, start: u64, number: u64) -> Option<u64> {
        let address = start.checked_add(number.checked_mul(self.bytes)?)?;
        if self.bytes == 8 {
            return self.memory.read_u64(address).ok();
        }
        let mut bytes = [0; 4];
        self.memory.read(address, &mut bytes).ok()?;
        Some(u64::from(u32::from_le_bytes(bytes)))
    }

    /// The string at `start`.
    fn text(&self, start: u64) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < MAX_PATH_BYTES {
            let mut byte = [0];
            self.memory.read(start.checked_add(text.len() as u64)?, &mut byte).ok()?;
            if byte == [0] {
                return Some(text);
            }
            text.extend(byte);
        }
        None
    }
}

/// (AVMA − SVMA, path) of the libraries in the list the dynamic linker keeps for debuggers.
fn libraries(executable: &ElfFile, bias: u64, words: &Words<'_>) -> Vec<(u64, Vec<u8>)> {
    let mut libraries = Vec::new();
    let Some(mut map) = first_map(executable, bias, words) else { return libraries };
    for _ in 0..MAX_ENTRIES {
        // l_addr, l_name, l_ld, l_next
        let [bias, name, next] = [0, 1, 3].map(|number| words.get(map, number));
        let path = name.and_then(|name| words.text(name));
        // The executable has no name here, and the vDSO's is not a path.
        if let (Some(bias), Some(path)) = (bias, path.filter(|path| path.starts_with(b"/"))) {
            libraries.push((bias, path));
        }
        match next {
            Some(next) if next != 0 => map = next,
            _ => break,
        }
    }
    libraries
}

fn first_map(executable: &ElfFile, bias: u64, words: &Words<'_>) -> Option<u64> {
    let sections = executable.sections();
    let dynamic = sections.iter().find(|section| section.kind == elf::SHT_DYNAMIC.0)?.svma.wrapping_add(bias);
    for entry in 0..MAX_ENTRIES as u64 {
        let (tag, value) = (words.get(dynamic, 2 * entry)?, words.get(dynamic, 2 * entry + 1)?);
        if tag == elf::DT_DEBUG.0.cast_unsigned() && value != 0 {
            // struct r_debug: r_version, padded to a word, then r_map.
            return words.get(value, 1).filter(|&map| map != 0);
        }
        if tag == elf::DT_NULL.0.cast_unsigned() {
            return None;
        }
    }
    None
}
