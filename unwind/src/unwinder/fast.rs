//! The walk with ip, sp and fp only, by rules of eight bytes.

use super::full::FullWalk;
use super::options::Options;
use super::resolve::resolve;
use crate::arch::Arch;
use crate::cache::RuleCache;
use crate::cfi::Scratch;
use crate::memory::Memory;
use crate::regs::Regs;
use crate::rule::{Kind, Rule};
use crate::space::{Modules, Space};
use crate::stack::{BrokenReason, Frame, FrameFlags, FrameSource, Stack, StopReason, TruncatedReason};

/// Unwinds samples, one or many. It remembers the rules of the addresses it has met; what it gives for a sample
/// depends on the sample alone.
#[derive(Debug)]
pub struct Unwinder {
    pub(super) options: Options,
    cache: RuleCache,
    pub(super) scratch: Scratch,
}

impl Default for Unwinder {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

/// How a walk by rules went.
enum Outcome {
    Stop(StopReason),
    /// The walk needs all registers.
    NeedsFull,
}

impl Unwinder {
    /// An unwinder that has met nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, cache: RuleCache::new(), scratch: Scratch::new() }
    }

    /// What was asked for.
    #[must_use]
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// Unwinds one sample into `out`, whatever it held.
    pub fn unwind<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        space: &Space,
        regs: &Regs,
        memory: &Y,
        out: &mut Stack,
    ) {
        out.frames.clear();
        if regs.arch() == Arch::X86_64
            && let (Some(ip), Some(sp), Some(fp)) = (regs.ip(), regs.sp(), regs.fp())
        {
            match self.walk(modules, space, [ip, sp, fp], memory, out) {
                Outcome::Stop(stop) => {
                    out.stop = stop;
                    return;
                }
                Outcome::NeedsFull => out.frames.clear(),
            }
        }
        let options = &self.options;
        FullWalk { options, scratch: &mut self.scratch, modules, space, memory }.run(regs, out);
    }

    /// The rule of an address, remembered or new.
    #[inline]
    pub(super) fn rule<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, lookup: u64) -> Rule {
        let rule = self.cache.find(space.id(), lookup);
        if rule != Rule::EMPTY { rule } else { self.resolve(modules, space, lookup) }
    }

    #[cold]
    fn resolve<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, lookup: u64) -> Rule {
        let rule = resolve(modules, space, Arch::X86_64, lookup, &mut self.scratch);
        self.cache.insert(space.id(), lookup, rule);
        rule
    }

    fn walk<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        space: &Space,
        [mut ip, mut sp, mut fp]: [u64; 3],
        memory: &Y,
        out: &mut Stack,
    ) -> Outcome {
        let mut source = FrameSource::Registers;
        let mut flags = FrameFlags { is_instruction: true, ..FrameFlags::default() };
        loop {
            let mut frame = Frame { address: ip, cfa: 0, source, flags };
            let rule = self.rule(modules, space, frame.lookup());
            let cfa = match rule.kind() {
                Kind::Sp => sp.wrapping_add(rule.cfa_offset()),
                Kind::Fp => fp.wrapping_add(rule.cfa_offset()),
                Kind::Plt => sp.wrapping_add(if ip & 15 >= rule.cfa_offset() { 16 } else { 8 }),
                Kind::Stop => return self.stop(rule.stop_reason(), frame, out),
                Kind::Empty | Kind::Full => return Outcome::NeedsFull,
            };
            // Odd cases are the full walk's, which names them.
            if cfa % 8 != 0 || cfa <= sp {
                return Outcome::NeedsFull;
            }
            if out.frames.len() as u64 >= u64::from(self.options.max_depth) {
                return Outcome::Stop(StopReason::Truncated(TruncatedReason::MaxDepth));
            }
            frame.cfa = cfa;
            out.frames.push(frame);
            ip = match memory.read_u64(cfa.wrapping_sub(8)) {
                Ok(address) => address,
                Err(fault) => return Outcome::Stop(fault.stop()),
            };
            if rule.is_fp_saved() {
                let slot = cfa.wrapping_add(rule.fp_offset());
                if slot >= sp {
                    match memory.read_u64(slot) {
                        Ok(value) => fp = value,
                        Err(_) => return Outcome::NeedsFull,
                    }
                }
            }
            sp = cfa;
            source = FrameSource::Cfi;
            flags = FrameFlags::default();
        }
    }

    /// Ends a walk at a frame, which is a frame unless it is a return address to nowhere.
    #[cold]
    fn stop(&self, stop: StopReason, frame: Frame, out: &mut Stack) -> Outcome {
        if self.options.may_guess(stop) {
            return Outcome::NeedsFull;
        }
        if stop == StopReason::Broken(BrokenReason::RaNotExec) && frame.source != FrameSource::Registers {
            return Outcome::Stop(stop);
        }
        if out.frames.len() as u64 >= u64::from(self.options.max_depth) {
            return Outcome::Stop(StopReason::Truncated(TruncatedReason::MaxDepth));
        }
        out.frames.push(frame);
        Outcome::Stop(stop)
    }
}
