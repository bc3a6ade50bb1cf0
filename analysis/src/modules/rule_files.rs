//! Rules of functions by file offset, for walks in the kernel.

use super::unwind_sections::unwind_sections;
use super::{ElfFile, FileStat, Opened, Segment};
use fpprof_unwind::{Arch, Module, ModuleId, Modules, TruncatedReason, Unwinder};
use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;

/// The most files kept open, and the most bytes of their sections.
const MAX_FILES: usize = 8;
const MAX_BYTES: usize = 128 << 20;
/// The most ranges returned at once.
const MAX_RANGES: usize = 1 << 18;
/// How much code is read at once.
const WINDOW_BYTES: u64 = 4096;

/// A cache of files whose rules were requested recently, so that they are not read again for each function.
#[derive(Debug, Default)]
pub struct RuleFiles {
    /// Most recently used first. `None` for a file without rules.
    files: Vec<(FileStat, Option<RuleFile>)>,
}

impl RuleFiles {
    /// The rules of the functions in these parts of an ELF file, as [`Unwinder::function_rules`] returns them. Parts
    /// and rules are given as ranges of file offsets. Parts must be ascending; rules are ascending and do not overlap.
    /// `None` if the file has no rules: it is not an x86-64 ELF file.
    #[must_use]
    pub fn rules(&mut self, file: File, parts: &[Range<u64>]) -> Option<Vec<(Range<u64>, u64)>> {
        let stat = FileStat::of(&file.metadata().ok()?);
        match self.files.iter().position(|(known, _)| *known == stat) {
            Some(known) => self.files.get_mut(..=known)?.rotate_right(1),
            None => {
                self.files.insert(0, (stat, RuleFile::read(Opened { reader: Box::new(file), stat })));
                self.files.truncate(MAX_FILES);
                let mut bytes = 0;
                self.files.retain(|(_, file)| {
                    bytes += file.as_ref().map_or(0, |file| file.bytes);
                    bytes <= MAX_BYTES
                });
            }
        }
        let (_, file) = self.files.first_mut()?;
        Some(file.as_mut()?.rules(parts))
    }
}

/// A file, its call frame information, and an unwinder for it alone.
#[derive(Debug)]
struct RuleFile {
    code: CodeFile,
    unwinder: Unwinder,
    bytes: usize,
}

#[derive(Debug)]
struct CodeFile {
    elf: ElfFile,
    module: Module,
    window: RefCell<CodeWindow>,
}

/// The code read last, from an SVMA on. Code without call frame information is looked at byte by byte, several times.
#[derive(Debug, Default)]
struct CodeWindow {
    svma: u64,
    code: Vec<u8>,
}

impl CodeWindow {
    fn get(&self, svma: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(svma.checked_sub(self.svma)?).ok()?;
        self.code.get(start..start.checked_add(len)?)
    }
}

impl Modules for CodeFile {
    fn module(&self, _id: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.module)
    }

    fn code(&self, _id: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        let mut window = self.window.borrow_mut();
        if window.get(svma, code.len()).is_none()
            && let Some(read) = self.window_around(svma)
        {
            *window = read;
        }
        let Some(bytes) = window.get(svma, code.len()) else {
            // At the beginning or the end of a segment.
            return self.elf.copy_code(svma, code);
        };
        code.copy_from_slice(bytes);
        true
    }
}

impl CodeFile {
    /// Code before and after an address, all of the same segment.
    fn window_around(&self, svma: u64) -> Option<CodeWindow> {
        let in_segment = |segment: &Segment| svma.checked_sub(segment.svma).filter(|at| *at < segment.file_bytes);
        let found = self.elf.image().segments.iter().find_map(|segment| Some((segment, in_segment(segment)?)));
        let (segment, at) = found?;
        let begin = at.saturating_sub(WINDOW_BYTES / 2);
        let bytes = WINDOW_BYTES.min(segment.file_bytes - begin);
        let code = self.elf.read_range(segment.file_offset.checked_add(begin)?, bytes, WINDOW_BYTES)?;
        Some(CodeWindow { svma: segment.svma + begin, code })
    }
}

impl RuleFile {
    fn read(opened: Opened) -> Option<Self> {
        let elf = ElfFile::new(opened).ok()?;
        let arch = elf.image().arch.filter(|&arch| arch == Arch::X86_64 && elf.is_64() && elf.image().little_endian)?;
        // The debug file is not looked up; code that only it describes has no rules.
        let found = unwind_sections(&elf, arch, || None);
        let sections = found.sections;
        let all = [&sections.eh_frame, &sections.eh_frame_hdr, &sections.debug_frame];
        let bytes = all.into_iter().flatten().map(|section| section.bytes.len()).sum();
        let module = Module::new(sections);
        (!found.is_too_much).then(|| Self {
            code: CodeFile { elf, module, window: RefCell::default() },
            unwinder: Unwinder::default(),
            bytes,
        })
    }

    fn rules(&mut self, parts: &[Range<u64>]) -> Vec<(Range<u64>, u64)> {
        let mut found = Found::default();
        for part in parts {
            let Some(segment) = code_segment(&self.code.elf.image().segments, part) else { continue };
            let end = segment.file_offset.saturating_add(segment.file_bytes);
            let start = part.start.max(segment.file_offset);
            if found.end() <= start {
                self.add_function(&segment, start, &mut found);
            }
            self.add_further(&segment, start..part.end.min(end), &mut found);
        }
        found.ranges
    }

    /// Adds the rules of functions in a part that were not added yet.
    fn add_further(&mut self, segment: &Segment, part: Range<u64>, found: &mut Found) {
        let mut at = part.start.saturating_add(1).max(found.end()).next_multiple_of(ALIGNMENT);
        while at < part.end && found.ranges.len() < MAX_RANGES {
            let svma = at.wrapping_sub(segment.file_offset).wrapping_add(segment.svma);
            if self.code.module.range_of(svma).is_some() {
                self.add_function(segment, at, found);
            }
            at = found.end().max(at.saturating_add(1)).next_multiple_of(ALIGNMENT);
        }
    }

    /// Adds the rules of the function at an offset, after those already found.
    fn add_function(&mut self, segment: &Segment, offset: u64, found: &mut Found) {
        let to_svma = segment.svma.wrapping_sub(segment.file_offset);
        let end = segment.file_offset.saturating_add(segment.file_bytes);
        let from = found.end().max(segment.file_offset);
        self.unwinder.function_rules(&self.code, ModuleId(0), offset.wrapping_add(to_svma), |range, rule| {
            let start = range.start.wrapping_sub(to_svma).max(from);
            let end = range.end.wrapping_sub(to_svma).min(end);
            if start < end {
                found.ranges.push((start..end, rule));
            }
        });
    }
}

/// Usual alignment of functions; few programs have functions with a smaller one.
const ALIGNMENT: u64 = 16;

/// The rules found so far.
#[derive(Debug, Default)]
struct Found {
    ranges: Vec<(Range<u64>, u64)>,
}

impl Found {
    /// End of the last range.
    fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |(range, _)| range.end)
    }
}

/// The code segment that contains a part of a file, or its beginning.
fn code_segment(segments: &[Segment], part: &Range<u64>) -> Option<Segment> {
    let holds = |segment: &&Segment| {
        let end = segment.file_offset.saturating_add(segment.file_bytes);
        segment.executable && segment.file_offset < part.end && part.start < end
    };
    segments.iter().find(holds).copied()
}

#[cfg(test)]
mod tests {
    use super::{CodeFile, Modules as _, Opened, RuleFile, RuleFiles, WINDOW_BYTES};
    use crate::modules::FileStat;
    use fpprof_unwind::ModuleId;
    use std::fs::File;

    /// Check that functions of a real file have rules at their offsets, the same when requested again, that two offsets
    /// in one function return it once, and that other files have none.
    #[test]
    fn functions_of_this_program_have_rules() {
        let own = std::env::current_exe().expect("this program");
        let open = || File::open(&own).expect("this program");
        let object = std::fs::read(&own).expect("bytes");
        let object = object::File::parse(&*object).expect("an ELF file");
        use object::{Object as _, ObjectSection as _};
        let text = object.section_by_name(".text").expect("code").file_range().expect("bytes");
        let mut files = RuleFiles::default();
        let offset = text.0 + text.1 / 2;
        let part = offset..offset + 1;
        let once = files.rules(open(), std::slice::from_ref(&part)).expect("rules");
        assert!(once.iter().any(|(range, _)| range.contains(&offset)), "{offset:x}: {once:x?}");
        assert_eq!(files.rules(open(), &[part.clone(), offset + 1..offset + 2]), Some(once));
        assert_eq!(files.files.len(), 1);
        let other = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(files.rules(other.reopen().expect("the file"), &[part, 0..0]), None);
        assert_eq!(files.rules(open(), &[u64::MAX - 1..u64::MAX, 0..0]), Some(Vec::new()));
    }

    /// Check that the code of a real file is the same with and without a window, at the edges of its segments, too.
    #[test]
    fn windows_hold_the_code() {
        let own = File::open(std::env::current_exe().expect("this program")).expect("this program");
        let stat = FileStat::of(&own.metadata().expect("its metadata"));
        let file = RuleFile::read(Opened { reader: Box::new(own), stat }).expect("it has rules");
        let CodeFile { elf, .. } = &file.code;
        let mut n_read = 0;
        for segment in &elf.image().segments {
            let end = segment.svma + segment.file_bytes;
            let near = |at: u64| at.saturating_sub(20)..at + 20;
            for svma in near(segment.svma).chain(near(segment.svma + WINDOW_BYTES)).chain(near(end)) {
                let (mut with, mut without) = ([0; 16], [0; 16]);
                let is_read = file.code.code(ModuleId(0), svma, &mut with);
                assert_eq!((is_read, with), (elf.copy_code(svma, &mut without), without), "{svma:x}");
                n_read += usize::from(is_read);
            }
        }
        assert!(n_read > 100, "{n_read}");
    }
}
