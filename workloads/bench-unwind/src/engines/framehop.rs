//! The engine framehop, used as documented: one unwinder per list of modules, one cache.

use super::name::{Engine, MAX_DEPTH, Pass};
use crate::load::{Input, One};
use bytes::Bytes;
use fpprof_analysis::address_space::FileIx;
use fpprof_analysis::modules::{ElfFile, ModuleTable};
use fpprof_unwind::Memory as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder as _};
use std::collections::HashMap;
use std::ops::Range;

/// Largest section that is read, in bytes.
const MAX_SECTION_BYTES: u64 = 256 << 20;

pub(crate) struct Framehop<'a> {
    modules: ModuleTable<'a>,
    /// Sections by file, shared between address spaces.
    sections: HashMap<FileIx, Option<Sections>>,
    unwinders: HashMap<u32, UnwinderX86_64<Bytes, MayAllocateDuringUnwind>>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
}

/// The sections and addresses that framehop needs of a file.
#[derive(Clone)]
struct Sections {
    base_svma: u64,
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    eh_frame: Option<(Range<u64>, Bytes)>,
    eh_frame_hdr: Option<(Range<u64>, Bytes)>,
    debug_frame: Option<Bytes>,
}

impl<'a> Framehop<'a> {
    pub(crate) fn new(input: &'a Input) -> Self {
        Self {
            modules: input.modules(),
            sections: HashMap::new(),
            unwinders: HashMap::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Prepares the unwinder with the modules of a sample's address space.
    fn prepare(&mut self, one: &One) {
        let id = one.space.space.id();
        if self.unwinders.contains_key(&id) {
            return;
        }
        let mut unwinder = UnwinderX86_64::new();
        for placed in one.space.modules(&self.modules) {
            let modules = &self.modules;
            let sections = self.sections.entry(placed.file).or_insert_with(|| {
                let elf = modules.open(placed.file).ok()?;
                Some(sections(&elf))
            });
            let Some(sections) = sections.clone() else { continue };
            let base_avma = sections.base_svma.wrapping_add(placed.bias);
            unwinder.add_module(Module::new(String::new(), placed.start..placed.end, base_avma, sections.info()));
        }
        self.unwinders.insert(id, unwinder);
    }
}

impl Sections {
    fn info(self) -> ExplicitModuleSectionInfo<Bytes> {
        let split = |section: Option<(Range<u64>, Bytes)>| section.unzip();
        let (eh_frame_svma, eh_frame) = split(self.eh_frame);
        let (eh_frame_hdr_svma, eh_frame_hdr) = split(self.eh_frame_hdr);
        ExplicitModuleSectionInfo {
            base_svma: self.base_svma,
            text_svma: self.text,
            got_svma: self.got,
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            debug_frame: self.debug_frame,
            ..ExplicitModuleSectionInfo::default()
        }
    }
}

fn sections(elf: &ElfFile) -> Sections {
    let all = elf.sections();
    let find = |name: &[u8]| all.iter().find(|section| section.name == name);
    let range = |name: &[u8]| find(name).map(|section| section.svma..section.svma.saturating_add(section.bytes));
    let bytes = |name: &[u8]| find(name).and_then(|section| elf.read_shared(section, MAX_SECTION_BYTES));
    Sections {
        base_svma: elf.image().svmas().map_or(0, |svmas| svmas.start),
        text: range(b".text"),
        got: range(b".got"),
        eh_frame: range(b".eh_frame").zip(bytes(b".eh_frame")),
        eh_frame_hdr: range(b".eh_frame_hdr").zip(bytes(b".eh_frame_hdr")),
        debug_frame: bytes(b".debug_frame"),
    }
}

impl Engine for Framehop<'_> {
    fn pass(&mut self, input: &Input, out: &mut Pass) -> anyhow::Result<()> {
        let mut addresses: Vec<u64> = Vec::new();
        for one in &input.samples {
            self.prepare(one);
            let Some(unwinder) = self.unwinders.get(&one.space.space.id()) else { continue };
            let chunk = one.chunk();
            let mut read = |address| chunk.read_u64(address).map_err(|_fault| ());
            let regs = UnwindRegsX86_64::new(one.regs[16], one.regs[7], one.regs[6]);
            let mut frames = unwinder.iter_frames(one.regs[16], regs, &mut self.cache, &mut read);
            addresses.clear();
            let is_complete = loop {
                match frames.next() {
                    Ok(Some(frame)) if addresses.len() < MAX_DEPTH as usize => addresses.push(frame.address()),
                    Ok(Some(_)) | Err(_) => break false,
                    Ok(None) => break true,
                }
            };
            out.add(addresses.iter().copied(), is_complete);
        }
        Ok(())
    }
}
