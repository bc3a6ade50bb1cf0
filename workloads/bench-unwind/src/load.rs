//! A recording in memory: every sample with the address space in which it was taken.

use anyhow::Context as _;
use fpprof_analysis::modules::{FileModules, ModuleTable};
use fpprof_analysis::replay::{PlacedSpace, Recorded, Spaces};
use fpprof_recording::Recording;
use fpprof_recording::model::{Abi, Arch};
use fpprof_unwind::Chunk;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

/// The most bytes of stack held in memory; further samples are left out.
const MAX_STACK_BYTES: usize = 1 << 30;

/// The samples to unwind.
#[derive(Debug)]
pub(crate) struct Input {
    recorded: Recorded,
    pub(crate) files: FileModules,
    pub(crate) samples: Vec<One>,
}

/// A sample.
#[derive(Debug)]
pub(crate) struct One {
    /// The copied bytes.
    pub(crate) stack: Vec<u8>,
    stack_end: Option<u64>,
    /// Registers in DWARF order, the instruction pointer last.
    pub(crate) regs: [u64; 17],
    /// Address of the first copied byte.
    pub(crate) stack_start: u64,
    /// Parts of the stack that could not be copied, as offsets.
    pub(crate) holes: Vec<(u32, u32)>,
    pub(crate) space: Arc<PlacedSpace>,
}

impl One {
    /// Its copied stack.
    pub(crate) fn chunk(&self) -> Chunk<'_> {
        Chunk { start: self.stack_start, bytes: &self.stack, stack_end: self.stack_end, holes: &self.holes }
    }
}

impl Input {
    /// Reads a recording.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut recording = Recording::open(BufReader::new(File::open(path)?))?;
        let recorded = Recorded::read(&mut recording, None)?;
        let files = FileModules::new();
        let mut samples = Vec::new();
        {
            let modules = recorded.modules(&files);
            let spaces = Spaces::new(&recorded.timeline, &modules);
            let mut n_bytes = 0_usize;
            for block in recording.sample_blocks() {
                block?.decode(|sample| {
                    let Some(regs) = sample.user_regs.filter(|regs| regs.abi == Abi::Bits64) else { return };
                    let Some(&values) = regs.own().first_chunk().filter(|_| regs.arch == Arch::X86_64) else { return };
                    n_bytes = n_bytes.saturating_add(sample.stack.len());
                    if n_bytes > MAX_STACK_BYTES {
                        return;
                    }
                    let place = recorded.timeline.place(sample.pid, sample.tid, sample.time_ns);
                    let holes = sample.stack_holes.iter().map(|hole| (hole.offset, hole.len)).collect();
                    let space = spaces.get(place.space);
                    samples.push(One {
                        stack: sample.stack.clone(),
                        stack_end: sample.stack_end.map(|end| end.address),
                        stack_start: sample.stack_start(),
                        regs: values,
                        holes,
                        space,
                    });
                })?;
            }
        }
        samples.first().context("no sample with a user stack")?;
        Ok(Self { recorded, files, samples })
    }

    /// The table of modules; none of their files is read yet.
    pub(crate) fn modules(&self) -> ModuleTable<'_> {
        self.recorded.modules(&self.files)
    }
}
