//! Decides whether a place in a file is a root, for stacks unwound by other tools.

use super::unwind_sections::unwind_sections;
use super::{ElfFile, Image, Resolver};
use fpprof_unwind::{
    Arch, Chain, ChainEnd, ChainEntry, Mapping, Module, ModuleId, Modules, Options, Space, Stack, StopReason,
    TruncatedReason, Unwinder,
};
use std::path::Path;

/// A file that is examined by file offset.
#[derive(Debug)]
pub struct OutermostJudge {
    image: Image,
    arch: Arch,
    module: OneModule,
    space: Space,
}

#[derive(Debug)]
struct OneModule {
    elf: ElfFile,
    module: Module,
}

impl Modules for OneModule {
    fn module(&self, _: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.module)
    }

    fn code(&self, _: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        self.elf.copy_code(svma, code)
    }
}

impl OutermostJudge {
    /// Reads the call frame information of the file at `path`; `None` if it is not an ELF file the unwinder supports.
    #[must_use]
    pub fn new(resolver: &dyn Resolver, path: &Path) -> Option<Self> {
        let elf = ElfFile::new(resolver.open(path).ok()?).ok()?;
        let image = elf.image().clone();
        let arch = image.arch?;
        let sections = unwind_sections(&elf, arch, || None).sections;
        let svmas = image.svmas()?;
        let module = Some(ModuleId(0));
        let mapping = Mapping { start: svmas.start, end: svmas.end, executable: true, module, bias: 0 };
        let module = OneModule { elf, module: Module::new(sections) };
        Some(Self { image, arch, module, space: Space::new(0, vec![mapping]) })
    }

    /// Whether a frame at this file offset that ends a stack has no caller according to its call frame information, or
    /// is the entry point: the rule that also makes a frame-pointer chain complete.
    #[must_use]
    pub fn is_root(&self, file_offset: u64) -> bool {
        let Some(address) = self.svma(file_offset) else { return false };
        let entries = [ChainEntry { address, frame_address: 0 }];
        let chain = Chain { entries: &entries, end: ChainEnd::Unknown, arch: self.arch, regs: None, stack_end: None };
        let mut stack = Stack { frames: Vec::new(), stop: StopReason::Truncated(TruncatedReason::NoCfi) };
        Unwinder::new(Options::default()).judge_chain(&self.module, &self.space, &chain, &mut stack);
        matches!(stack.stop, StopReason::Complete(_))
    }

    fn svma(&self, file_offset: u64) -> Option<u64> {
        self.image.segments.iter().find_map(|segment| {
            let offset = file_offset.checked_sub(segment.file_offset).filter(|&offset| offset < segment.file_bytes)?;
            segment.svma.checked_add(offset)
        })
    }
}
