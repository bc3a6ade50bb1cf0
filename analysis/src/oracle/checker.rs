//! Checks one instruction: the true stack, every strategy's stack, and the verdicts.

use super::TrueFrame;
use super::history::History;
use super::shadow::ShadowStack;
use super::tally::{RowThere, Site, Tally};
use super::walk_rules::WalkRules;
use crate::address_space::{FileIx, Place, Timeline};
use crate::kernel_walks::KernelWalks;
use crate::modules::ModuleTable;
use crate::replay::{PlacedSpace, Spaces};
use crate::strategy::{Item, Strategy, StrategyError, Unwound, Walker};
use fpprof_recording::model::{Arch, CaptureMode, Sample};
use fpprof_unwind::{ModuleId, Modules, StackRef, row_at};
use std::sync::Arc;

/// The contents of the samples: the whole stack, and no frame-pointer chain.
const MODE: CaptureMode = CaptureMode::Dwarf { stack_bytes: u32::MAX };

/// Checks instructions while the mappings do not change.
#[derive(Debug)]
pub struct Checker<'a> {
    modules: &'a ModuleTable<'a>,
    space: Arc<PlacedSpace>,
    walker: Walker<'a>,
    strategies: Vec<Strategy>,
    unwound: Vec<Unwound>,
    truth: Vec<TrueFrame>,
    rules: WalkRules,
}

impl<'a> Checker<'a> {
    /// Creates a checker for the last state of a process in a timeline.
    #[must_use]
    pub fn new(timeline: &'a Timeline, modules: &'a ModuleTable<'a>, pid: u32, strategies: &[Strategy]) -> Self {
        let key = timeline.place(pid, pid, u64::MAX).space;
        Self {
            modules,
            space: Spaces::new(timeline, modules).get(key),
            walker: Walker::new(modules, MODE, Arch::X86_64, Arc::default()),
            strategies: strategies.to_vec(),
            unwound: strategies.iter().map(|_| Unwound::default()).collect(),
            truth: Vec::new(),
            rules: WalkRules::default(),
        }
    }

    /// The rule of the code at an address, as the kernel's walks use it.
    pub fn rule(&mut self, address: u64) -> Option<u64> {
        let mapping = self.space.space.find(address).filter(|mapping| mapping.executable)?;
        self.rules.find(self.modules, mapping.module?, address.wrapping_sub(self.modules.bias(mapping)))
    }

    /// The eight bytes of a file's code before a return address: `None` if the address is not one of executable memory,
    /// and `Some(None)` if they are not known.
    #[must_use]
    pub fn code_before(&self, address: u64) -> Option<Option<[u8; 8]>> {
        self.space.code_before(self.modules, address)
    }

    /// Returns and resets the counts of the samples' kernel walks, as far as strategies used them.
    pub fn take_kernel_walks(&mut self) -> KernelWalks {
        self.walker.take_kernel_walks()
    }

    /// Compares every strategy's stack with the shadow stack of the thread. `sample` is what a sample taken before the
    /// instruction would have: registers, the stack, and its end. `false` if the true stack is not known.
    pub fn check(&mut self, instruction: u64, sample: &Sample, shadow: &ShadowStack, tally: &mut Tally) -> bool {
        let Some(regs) = &sample.user_regs else { return false };
        let word = |address: u64| {
            let offset = usize::try_from(address.checked_sub(sample.stack_start())?).ok()?;
            sample.stack.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
        };
        if let Err(why) = shadow.frames(regs.ip(), word, &mut self.truth) {
            tally.count_unknown(why);
            return false;
        }
        let item = [Item { sample, place: Place::default(), space: &self.space }];
        for (&strategy, unwound) in self.strategies.iter().zip(&mut self.unwound) {
            self.walker.walk(strategy, &item, unwound);
        }
        let mut stacks: Vec<StackRef<'_>> = self.unwound.iter().filter_map(|unwound| unwound.get(0)).collect();
        if let Some(n_frames) = judged_frames(self.modules, &self.space, &self.truth) {
            tally.count_partly_judged();
            end_at(n_frames, &mut self.truth, &mut stacks);
        }
        let place = |address: u64| place(&self.space, self.modules, address);
        let row = |site: Site| row(self.modules, site);
        tally.count(instruction, &self.truth, &stacks, place, row);
        true
    }
}

/// Number of frames of a stack to judge, if not all: those up to where a run-time library ends the stack by its own
/// rule. Go's switches from a goroutine's stack to its scheduler's and back in its own ways, and its tracebacks stop
/// there, too (`runtime/traceback.go`). A strategy that continues is neither right nor wrong.
fn judged_frames(modules: &ModuleTable<'_>, space: &PlacedSpace, truth: &[TrueFrame]) -> Option<usize> {
    let is_root = |(index, frame): (usize, &TrueFrame)| {
        let Site { file, svma } = place(space, modules, frame.address.wrapping_sub(u64::from(index > 0)));
        let module = file.and_then(|file| modules.module(ModuleId(file.0)).ok());
        module.is_some_and(|module| module.root_at(svma).is_some())
    };
    let n_frames = truth.iter().enumerate().position(is_root)?.checked_add(1)?;
    (n_frames < truth.len()).then_some(n_frames)
}

/// Truncates every stack to the first frames.
fn end_at(n_frames: usize, truth: &mut Vec<TrueFrame>, stacks: &mut [StackRef<'_>]) {
    truth.truncate(n_frames);
    if let Some(last) = truth.last_mut() {
        last.cfa = None;
    }
    for stack in stacks {
        stack.frames = stack.frames.get(..n_frames).unwrap_or(stack.frames);
    }
}

fn place(space: &PlacedSpace, modules: &ModuleTable<'_>, address: u64) -> Site {
    match space.space.find(address) {
        Some(mapping) => match mapping.module {
            Some(module) => Site { file: Some(FileIx(module.0)), svma: address.wrapping_sub(modules.bias(mapping)) },
            None => Site { file: None, svma: address },
        },
        None => Site { file: None, svma: address },
    }
}

/// Our unwinder's row at a site. Sites without one are grouped by 256 bytes.
fn row(modules: &ModuleTable<'_>, site: Site) -> RowThere {
    let nearby = Site { svma: site.svma & !0xff, ..site };
    let none = |words: String| RowThere { words, entry: nearby };
    let Some(file) = site.file else { return none("no module".to_owned()) };
    match modules.module(ModuleId(file.0)) {
        Ok(module) => match row_at(module, site.svma) {
            Ok(row) => RowThere {
                words: format!("{row} for {:#x}..{:#x}", row.range.start, row.range.end),
                entry: Site { svma: row.entry_range.start, ..site },
            },
            Err(error) => none(error.to_string()),
        },
        Err(reason) => none(reason.name().to_owned()),
    }
}

/// The strategies that this build can check, in the order they are reported.
#[must_use]
pub fn available_strategies() -> Vec<Strategy> {
    let all = [Strategy::Fp, Strategy::Dwarf, Strategy::Cfi, Strategy::Elfutils, Strategy::Libunwind];
    all.into_iter().filter(|&strategy| check_strategy(strategy).is_ok()).collect()
}

/// Whether this build can check a strategy.
///
/// # Errors
/// Why not.
pub fn check_strategy(strategy: Strategy) -> Result<(), StrategyError> {
    match strategy {
        // Not recorded: the walks are made at each instruction.
        Strategy::Cfi => Ok(()),
        other => other.check(&History::new(0, 0).meta()),
    }
}
