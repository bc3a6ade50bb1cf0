//! Frame-pointer chains: walks them, and judges recorded ones.
//!
//! A chain is complete only if its last address is in a function that has no caller: one whose call frame information
//! says that the return address is undefined, or one without information at the end of its stack. A frame pointer of
//! zero does not prove that. Code built without frame pointers uses the register for anything, so a chain through it
//! ends at random, often at a zero: `main` of a program with frame pointers, under a C library without them, is called
//! by a function whose frame pointer is 1 or 0, with two callers still to come.

use super::caller::read_word;
use super::code::{NO_CFI, find_code};
use super::outermost::near_end;
use super::resolve::resolve;
use super::single::Unwinder;
use crate::arch::{Arch, Spec};
use crate::cfi::{CfaRule, RegisterRule};
use crate::memory::Memory;
use crate::regs::Regs;
use crate::rule::{Kind, Rule};
use crate::space::{Modules, Space};
use crate::stack::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Stack, StopReason, TruncatedReason};

/// A recorded frame-pointer chain.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a> {
    /// Leaf first: the sampled instruction, then return addresses.
    pub entries: &'a [ChainEntry],
    /// Why it ended, according to the recorder.
    pub end: ChainEnd,
    /// The architecture of the code.
    pub arch: Arch,
    /// The sampled registers, if recorded: they show whether the leaf had set up its frame.
    pub regs: Option<&'a Regs>,
    /// First address above the stack, if known.
    pub stack_end: Option<u64>,
}

/// One step of a recorded chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainEntry {
    /// The sampled instruction for the first entry, a return address for all others. AVMA.
    pub address: u64,
    /// Address of the frame record (the saved frame pointer below this return address); 0 for the first entry and if
    /// not known.
    pub frame_address: u64,
}

/// Why a recorded chain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ChainEnd {
    /// Not known.
    #[default]
    Unknown,
    /// The frame pointer was zero.
    Zero,
    /// Memory at the frame pointer could not be read.
    Unreadable,
    /// The next frame pointer was not above the current one, or not aligned.
    NotAscending,
    /// The return address was zero.
    ZeroReturnAddress,
    /// The recorder's limit of frames was reached.
    MaxDepth,
}

impl ChainEnd {
    /// The stop reason of a chain that ended this way without reaching a root.
    const fn stop(self) -> StopReason {
        match self {
            // Whatever was there was no return address.
            Self::Unknown | Self::Unreadable | Self::ZeroReturnAddress => StopReason::Broken(BrokenReason::RaNotExec),
            Self::Zero | Self::NotAscending => StopReason::Broken(BrokenReason::CfaNotIncreasing),
            Self::MaxDepth => StopReason::Truncated(TruncatedReason::MaxDepth),
        }
    }
}

impl Unwinder {
    /// Walks the frame-pointer chain in copied memory, as a profiler would have walked it in the live process.
    ///
    /// A return address that is not executable ends the walk and is left out. [`Unwinder::judge_chain`] says when a
    /// chain is complete.
    pub fn walk_frame_pointers<M: Modules + ?Sized, Y: Memory>(
        &mut self,
        modules: &M,
        space: &Space,
        regs: &Regs,
        memory: &Y,
        out: &mut Stack,
    ) {
        out.frames.clear();
        let spec = regs.arch().spec();
        let mask = self.options.mask(spec);
        let (Some(ip), Some(sp), Some(mut fp)) = (regs.ip(), regs.sp(), regs.fp()) else {
            out.stop = StopReason::Broken(BrokenReason::RaNotExec);
            return;
        };
        self.push_leaf(modules, space, ip, regs.arch(), Some(regs), out);
        let max_depth = self.options.max_depth;
        let mut above = sp;
        let stop = loop {
            let (address, next_fp) = match read_link(spec, mask, memory, fp, above) {
                Ok(link) => link,
                Err(stop) => break stop,
            };
            if !is_executable(space, address) {
                break StopReason::Broken(BrokenReason::RaNotExec);
            }
            if out.frames.len() as u64 >= u64::from(max_depth) {
                break StopReason::Truncated(TruncatedReason::MaxDepth);
            }
            set_last_cfa(out, spec, fp);
            out.frames.push(return_frame(address));
            above = fp.saturating_add(1);
            fp = next_fp;
        };
        let is_zero = fp == 0;
        let is_at_end = |address| near_end(spec, memory, address) == Some(address);
        let end = End { is_zero, is_outermost: last_sp(spec, out, Some(regs)).map(is_at_end) };
        out.stop = self.root_of(modules, space, regs.arch(), out, end).unwrap_or(stop);
    }

    /// Judges a recorded chain: how many of its return addresses are executable, and what its end means.
    ///
    /// It is complete only if its last address is in a function that has no caller according to its call frame
    /// information, in the entry point, or in code without information at the end of the stack. Otherwise the stop
    /// reason is derived from how it ended.
    pub fn judge_chain<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, chain: &Chain<'_>, out: &mut Stack) {
        out.frames.clear();
        out.stop = StopReason::Broken(BrokenReason::RaNotExec);
        let Some((leaf, callers)) = chain.entries.split_first() else { return };
        let spec = chain.arch.spec();
        self.push_leaf(modules, space, leaf.address, chain.arch, chain.regs, out);
        let mask = self.options.mask(spec);
        let mut stop = chain.end.stop();
        let mut below = 0;
        for entry in callers {
            let address = entry.address & mask;
            let fault = if !is_executable(space, address) {
                Some(StopReason::Broken(BrokenReason::RaNotExec))
            } else if out.frames.len() as u64 >= u64::from(self.options.max_depth) {
                Some(StopReason::Truncated(TruncatedReason::MaxDepth))
            } else if entry.frame_address != 0 {
                ascent_fault(spec, below, entry.frame_address)
            } else {
                None
            };
            if let Some(fault) = fault {
                stop = fault;
                break;
            }
            if entry.frame_address != 0 {
                below = entry.frame_address;
                set_last_cfa(out, spec, entry.frame_address);
            }
            out.frames.push(return_frame(address));
        }
        let is_outermost = match (last_sp(spec, out, chain.regs), chain.stack_end) {
            (Some(sp), Some(end)) => Some(sp >= end),
            // The chain of a leaf without callers is most likely broken.
            _ => (out.frames.len() == 1).then_some(false),
        };
        let end = End { is_zero: chain.end == ChainEnd::Zero, is_outermost };
        out.stop = self.root_of(modules, space, chain.arch, out, end).unwrap_or(stop);
    }

    /// How the stack ends if its last frame is a root, or may be one; `None` otherwise.
    fn root_of<M: Modules + ?Sized>(
        &mut self,
        modules: &M,
        space: &Space,
        arch: Arch,
        out: &Stack,
        end: End,
    ) -> Option<StopReason> {
        let lookup = out.frames.last()?.lookup();
        let rule = self.rule_of(modules, space, arch, lookup);
        if rule.kind() != Kind::Stop {
            return None;
        }
        let is_entry =
            || find_code(modules, space, arch, lookup).is_ok_and(|code| code.module.is_entry_code(code.svma));
        match (rule.stop_reason(), end.is_outermost) {
            (StopReason::Complete(Root::UndefinedRa), _) if end.is_zero => Some(StopReason::Complete(Root::ZeroFp)),
            (stop @ StopReason::Complete(_), _) => Some(stop),
            (NO_CFI, Some(true)) if is_entry() => Some(StopReason::Complete(Root::Start)),
            (NO_CFI, Some(true)) => Some(StopReason::Complete(Root::StackEnd)),
            // Without the frame's position and its rows, only the address can identify the entry point.
            (NO_CFI, None) if is_entry() => Some(StopReason::Complete(Root::Start)),
            // It may be the outermost frame, or one that the entry point called.
            (NO_CFI, Some(false)) if end.is_zero && is_entry() => Some(NO_CFI),
            _ => None,
        }
    }

    /// Adds the leaf, and its caller if the return address is still in the link register: then the chain starts with
    /// the caller's return address.
    fn push_leaf<M: Modules + ?Sized>(
        &mut self,
        modules: &M,
        space: &Space,
        ip: u64,
        arch: Arch,
        regs: Option<&Regs>,
        out: &mut Stack,
    ) {
        let is_skipped = self.is_caller_skipped(modules, space, ip, arch, regs);
        let linked = regs.filter(|_| is_skipped).and_then(|regs| self.linked_caller(modules, space, ip, regs));
        let leaf_skip_suspect = is_skipped && linked.is_none();
        let flags = FrameFlags { is_instruction: true, leaf_skip_suspect, ..FrameFlags::default() };
        out.frames.push(Frame { address: ip, cfa: 0, source: FrameSource::Registers, flags });
        out.frames.extend(linked.map(|address| Frame { source: FrameSource::Cfi, ..return_frame(address) }));
    }

    /// The return address in the link register, if the row says that it is there and it is executable.
    fn linked_caller<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, ip: u64, regs: &Regs) -> Option<u64> {
        let spec = regs.arch().spec();
        let code = find_code(modules, space, regs.arch(), ip).ok()?;
        let row = self.rows.find(modules, &code, &mut self.compiler.scratch).ok()?;
        let is_linked = spec.lr == Some(row.return_address_register)
            && matches!(
                row.state.rule(row.return_address_register),
                RegisterRule::Unspecified | RegisterRule::SameValue
            );
        let address = regs.get(spec.lr?)? & self.options.mask(spec);
        (is_linked && is_executable(space, address)).then_some(address)
    }

    /// Whether the frame pointer at an instruction is still the caller's, so that the chain starts with the caller's
    /// return address and the caller is missing: the row computes the CFA without the frame pointer, and the frame
    /// pointer, if known, is not in this frame either. False without unwind information.
    fn is_caller_skipped<M: Modules + ?Sized>(
        &mut self,
        modules: &M,
        space: &Space,
        ip: u64,
        arch: Arch,
        regs: Option<&Regs>,
    ) -> bool {
        let spec = arch.spec();
        if arch == Arch::X86_64 {
            let rule = self.rule(modules, space, ip);
            match rule.kind() {
                Kind::Sp => return !has_frame_at(spec, regs, rule.cfa_offset()),
                Kind::Plt => return true,
                Kind::Fp | Kind::Stop => return false,
                Kind::Empty | Kind::Full | Kind::Signal => {}
            }
        }
        let Ok(code) = find_code(modules, space, arch, ip) else { return false };
        let Ok(row) = self.rows.find(modules, &code, &mut self.compiler.scratch) else { return false };
        match row.state.cfa {
            CfaRule::None => false,
            CfaRule::RegisterOffset { register, .. } if register == spec.fp => false,
            CfaRule::RegisterOffset { register, offset } if register == spec.sp => {
                // Compilers may keep the CFA relative to sp although there is a frame record. Only the registers can
                // tell.
                let may_have_frame = spec.lr.is_some() && row.state.rule(spec.fp) != RegisterRule::Unspecified;
                !(has_frame_at(spec, regs, offset.cast_unsigned()) || regs.is_none() && may_have_frame)
            }
            CfaRule::RegisterOffset { .. } | CfaRule::AtRegister { .. } => true,
            CfaRule::Expression(bytes) => !is_from_fp(spec, code.expression(row.section, bytes)),
        }
    }

    fn rule_of<M: Modules + ?Sized>(&mut self, modules: &M, space: &Space, arch: Arch, lookup: u64) -> Rule {
        match arch {
            Arch::X86_64 => self.rule(modules, space, lookup),
            _ => resolve(modules, space, arch, lookup, &mut self.compiler.scratch),
        }
    }
}

/// How a chain ended.
#[derive(Debug, Clone, Copy)]
struct End {
    /// The last frame pointer was zero.
    is_zero: bool,
    /// The last frame is at the end of its stack; `None` if not known.
    is_outermost: Option<bool>,
}

/// The stack pointer of the last frame, if known: the end of its callee's frame. Not known with a link register, since
/// then the frame record may be anywhere in its frame.
fn last_sp(spec: &Spec, out: &Stack, regs: Option<&Regs>) -> Option<u64> {
    match out.frames.as_slice() {
        [.., callee, _] => Some(callee.cfa).filter(|cfa| *cfa != 0 && spec.lr.is_none()),
        _ => regs.and_then(Regs::sp),
    }
}

/// Reads (return address, next frame pointer) at a frame pointer, which must be at least `lowest`.
fn read_link<Y: Memory>(spec: &Spec, mask: u64, memory: &Y, fp: u64, lowest: u64) -> Result<(u64, u64), StopReason> {
    let word = u64::from(spec.word_bytes);
    if fp != 0 && fp.checked_add(1) == Some(lowest) {
        return Err(StopReason::Broken(BrokenReason::Loop));
    }
    if fp < lowest {
        return Err(StopReason::Broken(BrokenReason::CfaNotIncreasing));
    }
    if !fp.is_multiple_of(word) {
        return Err(StopReason::Broken(BrokenReason::Misaligned));
    }
    let next_fp = read_word(memory, spec, fp).map_err(crate::memory::ReadFault::stop)?;
    let address = read_word(memory, spec, fp.wrapping_add(word)).map_err(crate::memory::ReadFault::stop)?;
    Ok((address & mask, next_fp))
}

/// Why a frame address cannot follow the one `below`; `None` if it can.
fn ascent_fault(spec: &Spec, below: u64, frame_address: u64) -> Option<StopReason> {
    if frame_address == below {
        return Some(StopReason::Broken(BrokenReason::Loop));
    }
    if frame_address < below {
        return Some(StopReason::Broken(BrokenReason::CfaNotIncreasing));
    }
    (!frame_address.is_multiple_of(u64::from(spec.word_bytes))).then_some(StopReason::Broken(BrokenReason::Misaligned))
}

/// Whether the frame pointer points to the frame record of the frame whose CFA is sp + `cfa_offset`.
fn has_frame_at(spec: &Spec, regs: Option<&Regs>, cfa_offset: u64) -> bool {
    let Some((sp, fp)) = regs.and_then(|regs| Some((regs.sp()?, regs.fp()?))) else { return false };
    let cfa = sp.wrapping_add(cfa_offset);
    match spec.lr {
        // The frame record may be anywhere in the frame.
        Some(_) => sp <= fp && fp < cfa,
        None => fp == cfa.wrapping_sub(2 * u64::from(spec.word_bytes)),
    }
}

/// Whether an expression starts with the frame pointer, as that of a realigned stack does.
fn is_from_fp(spec: &Spec, expression: Option<&[u8]>) -> bool {
    const BREG0: u16 = gimli::DW_OP_breg0.0 as u16;
    expression.and_then(<[u8]>::first).is_some_and(|first| u16::from(*first) == BREG0 + spec.fp)
}

fn is_executable(space: &Space, return_address: u64) -> bool {
    let Some(lookup) = return_address.checked_sub(1) else { return false };
    space.find(lookup).is_some_and(|mapping| mapping.executable)
}

/// Notes the place of the last frame. With a link register it is not known: the frame record may be anywhere in its frame.
fn set_last_cfa(out: &mut Stack, spec: &Spec, frame_address: u64) {
    if let Some(last) = out.frames.last_mut().filter(|_| spec.lr.is_none()) {
        last.cfa = frame_address.wrapping_add(2 * u64::from(spec.word_bytes));
    }
}

fn return_frame(address: u64) -> Frame {
    Frame { address, cfa: 0, source: FrameSource::FramePointer, flags: FrameFlags::default() }
}
