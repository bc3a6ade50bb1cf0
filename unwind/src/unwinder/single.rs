//! Unwinds one sample.

use alloc::sync::Arc;

use super::full::FullWalk;
use super::lane::{Lane, Step};
use super::near::NearRules;
use super::options::Options;
use super::resolve::{Compiler, resolve_quickly};
use super::row_cache::RowCache;
use crate::arch::Arch;
use crate::cache::SharedRules;
use crate::memory::Memory;
use crate::regs::Regs;
use crate::rule::Rule;
use crate::space::{Modules, Space};
use crate::stack::Stack;

/// Unwinds samples, one at a time or in batches. It caches rules by address; the stack of a sample depends on the
/// sample alone.
#[derive(Debug)]
pub struct Unwinder {
    pub(super) options: Options,
    pub(super) rules: Arc<SharedRules>,
    pub(super) compiler: Compiler,
    pub(super) rows: RowCache,
    pub(super) lane: Lane,
    pub(super) near: NearRules,
}

impl Default for Unwinder {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Unwinder {
    /// Creates an unwinder with its own rules.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::make(options, Arc::default())
    }

    /// Creates an unwinder that shares its rules with others, usually on other threads.
    #[must_use]
    pub fn with_rules(options: Options, rules: Arc<SharedRules>) -> Self {
        Self::make(options, rules)
    }

    fn make(options: Options, rules: Arc<SharedRules>) -> Self {
        Self {
            options,
            rules,
            compiler: Compiler::new(),
            rows: RowCache::default(),
            lane: Lane::default(),
            near: NearRules::default(),
        }
    }

    /// Replaces the limits and options, on which cached rules do not depend.
    #[must_use]
    pub fn with_options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// The limits and options.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Unwinds one sample into `out`, which is overwritten.
    pub fn unwind<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        space: &Space,
        regs: &Regs,
        memory: &Y,
        out: &mut Stack,
    ) {
        if let Some(start) = walk_start(regs) {
            out.frames.clear();
            core::mem::swap(&mut self.lane.frames, &mut out.frames);
            self.lane.start(start);
            let end = loop {
                let rule = self.rule(modules, space, self.lane.lookup());
                match self.lane.apply_rule(rule, &self.options, memory) {
                    Step::On => {}
                    end => break end,
                }
                match self.lane.load_caller(memory) {
                    Step::On => {}
                    end => break end,
                }
            };
            core::mem::swap(&mut self.lane.frames, &mut out.frames);
            if let Step::Stop(stop) = end {
                out.stop = stop;
                return;
            }
        }
        self.unwind_full(modules, space, regs, memory, out);
    }

    /// Unwinds one sample with all registers.
    pub(super) fn unwind_full<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        space: &Space,
        regs: &Regs,
        memory: &Y,
        out: &mut Stack,
    ) {
        out.frames.clear();
        let (options, scratch, rows) = (&self.options, &mut self.compiler.scratch, &mut self.rows);
        FullWalk { options, scratch, rows, modules, space, memory }.run(regs, out);
    }

    /// The rule of an address, cached or compiled.
    #[inline]
    pub(super) fn rule<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, lookup: u64) -> Rule {
        match self.near.find(space.id(), lookup) {
            Rule::EMPTY => self.fetch(modules, space, lookup),
            rule => rule,
        }
    }

    /// The rule of an address that is not in the private cache.
    #[inline(never)]
    pub(super) fn fetch<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, lookup: u64) -> Rule {
        let known = self.rules.table().find(space.id(), lookup);
        let rule = if known != Rule::EMPTY { known } else { self.resolve(modules, space, lookup) };
        self.near.insert(space.id(), lookup, rule);
        rule
    }

    fn resolve<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, lookup: u64) -> Rule {
        let rule = resolve_quickly(modules, space, lookup, &mut self.compiler);
        self.rules.insert(space.id(), lookup, rule);
        rule
    }
}

/// ip, sp and fp, if a walk by rules can start with them.
#[inline]
pub(super) fn walk_start(regs: &Regs) -> Option<[u64; 3]> {
    if regs.arch() != Arch::X86_64 {
        return None;
    }
    Some([regs.ip()?, regs.sp()?, regs.fp()?])
}
