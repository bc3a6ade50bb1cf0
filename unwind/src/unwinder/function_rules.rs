//! Returns the rules of a whole function, for walkers that have their own look-up tables.

use core::ops::Range;

use super::code::{BAD_CFI, Code};
use super::resolve::resolve_quickly;
use super::single::Unwinder;
use crate::arch::Arch;
use crate::cfi::{Program, Sections};
use crate::module::Module;
use crate::rule::Rule;
use crate::space::{Mapping, ModuleId, Modules, Space};
use crate::stack::{Root, StopReason, TruncatedReason};

/// The most code whose rules are returned at once. The largest function of rustc 1.95 has 540 KiB.
const MAX_BYTES: u64 = 1 << 20;
/// The most addresses of a function that are resolved one by one. They are few: only those at which a walk ends.
const MAX_SINGLE: u64 = 4096;
/// How much code without call frame information is visited at once.
const BLOCK_BYTES: u64 = 256;

impl Unwinder {
    /// Calls `visit` with the rules of the function that contains an address: ascending ranges of SVMAs without gaps,
    /// each with the rule of all its addresses. Of code without call frame information, the aligned 256 bytes that
    /// contain the address are visited, as far as they have none. Where FDEs overlap, each address has the rule a walk
    /// would use. At most 1 MiB of code is visited: of a larger function, the 1 MiB block, counted from its start, that
    /// contains the address. x86-64 only; modules of other architectures have no rules.
    ///
    /// The rules are those [`Self::unwind`] uses, so a walk elsewhere gives the same frames. There is one exception:
    /// after 4,096 addresses of a function at which a walk ends, the remaining ones get the kind that needs more
    /// registers.
    ///
    /// The constants of [`crate::rules`] are this layout:
    ///
    /// | bits | |
    /// |---|---|
    /// | 0–3 | kind, see below |
    /// | 4 | fp was saved |
    /// | 5 | fp has been restored if its slot is below sp |
    /// | 6 | code of the entry point; only where the walk ends for lack of unwind information |
    /// | 8–15 | why the walk ends |
    /// | 16–31 | slot of fp, signed words of eight bytes above the CFA |
    /// | 32–63 | offset, signed bytes |
    ///
    /// | kind | |
    /// |---|---|
    /// | 8 | CFA = sp + offset |
    /// | 9 | CFA = fp + offset |
    /// | 1 | lazy PLT entry: CFA = sp + 8, or sp + 16 if `ip & 15`, of the frame's address itself, is at least the offset |
    /// | 3 | the walk ends: 0 to 5 at an outermost frame (return address undefined, entry point, thread start, `makecontext`, Go's `goexit`, Go's system stack), 8 for lack of call frame information, others for lack of valid unwind information |
    /// | 4 | signal frame: `rt_sigreturn` would find the interrupted registers at sp, which are not those of a call |
    /// | others | more registers are needed than ip, sp and fp |
    ///
    /// Except for signal frames, the return address is the word below the CFA, and the caller's sp is the CFA. A slot of
    /// fp below sp can only be read in the innermost frame.
    pub fn function_rules<M: Modules + ?Sized>(
        &mut self,
        modules: &M,
        id: ModuleId,
        svma: u64,
        mut visit: impl FnMut(Range<u64>, u64),
    ) {
        let Ok(module) = modules.module(id) else { return };
        if module.arch() != Arch::X86_64 {
            return;
        }
        let everywhere = Mapping { start: 0, end: u64::MAX, executable: true, module: Some(id), bias: 0 };
        let space = Space::new(0, alloc::vec![everywhere]);
        let mut joined = Joined { visit: &mut visit, last: None };
        let modules = &AtSvmas(modules);
        let range = module.extent(svma);
        if module.find(svma).is_err() {
            let start = svma / BLOCK_BYTES * BLOCK_BYTES;
            for at in range.start.max(start)..range.end.min(start.saturating_add(BLOCK_BYTES)) {
                let rule = resolve_quickly(modules, &space, at, &mut self.compiler);
                joined.add(at..at.saturating_add(1), rule);
            }
            return joined.finish();
        }
        let start = range.start.saturating_add(svma.saturating_sub(range.start) / MAX_BYTES * MAX_BYTES);
        let range = start..range.end.min(start.saturating_add(MAX_BYTES));
        let mut left = MAX_SINGLE;
        let mut next = range.start;
        for (row, rule) in self.rows(module, id, svma) {
            let row = row.start.max(next)..row.end.min(range.end);
            if row.is_empty() {
                continue;
            }
            next = row.end;
            if rule != Rule::stop(StopReason::Complete(Root::UndefinedRa)) && !module.has_root_in(&row) {
                joined.add(row, rule);
                continue;
            }
            // Which root it is depends on the code at each address.
            for at in row {
                let single =
                    if left == 0 { Rule::FULL } else { resolve_quickly(modules, &space, at, &mut self.compiler) };
                left = left.saturating_sub(1);
                joined.add(at..at.saturating_add(1), single);
            }
        }
        joined.finish();
    }

    /// The rows of the function that contains an address. After the last valid row, the rest is bad call frame
    /// information.
    fn rows(&mut self, module: &Module, id: ModuleId, svma: u64) -> alloc::vec::Vec<(Range<u64>, Rule)> {
        let mut rows = alloc::vec::Vec::new();
        let Ok(fde) = module.find(svma) else { return rows };
        let (spec, cie) = (module.arch().spec(), fde.entry.cie());
        let code = Code { id, module, bias: 0, svma };
        let (return_address, root) = (cie.return_address_register().0, code.root(fde.range()));
        let sections = Sections::new(module);
        let mut next = fde.range().start;
        if let Ok(mut program) = Program::new(module, &sections, &fde, &mut self.compiler.scratch) {
            while let Ok(Some(range)) = program.next_row() {
                let needed = program.state().needed(spec, return_address);
                next = range.end;
                rows.push((range, code.compile_row(fde.kind, return_address, fde.is_signal_frame(), root, &needed)));
            }
        }
        rows.push((next..fde.range().end, Rule::stop(BAD_CFI)));
        rows
    }
}

/// The same modules with a bias of 0: addresses here are those in the files. A caller computes the bias of a process's mapping.
struct AtSvmas<'a, M: ?Sized>(&'a M);

impl<M: Modules + ?Sized> Modules for AtSvmas<'_, M> {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        self.0.module(id)
    }

    fn bias(&self, _mapping: &Mapping) -> u64 {
        0
    }

    fn code(&self, id: ModuleId, svma: u64, code: &mut [u8]) -> bool {
        self.0.code(id, svma, code)
    }
}

/// Merges adjacent ranges with the same rule.
struct Joined<'a, V> {
    visit: &'a mut V,
    last: Option<(Range<u64>, Rule)>,
}

impl<V: FnMut(Range<u64>, u64)> Joined<'_, V> {
    fn add(&mut self, range: Range<u64>, rule: Rule) {
        match &mut self.last {
            _ if range.is_empty() => {}
            Some((last, known)) if *known == rule && last.end == range.start => last.end = range.end,
            last => {
                if let Some((last, known)) = last.replace((range, rule)) {
                    (self.visit)(last, known.to_bits());
                }
            }
        }
    }

    fn finish(self) {
        if let Some((last, known)) = self.last {
            (self.visit)(last, known.to_bits());
        }
    }
}

#[cfg(test)]
mod tests;
