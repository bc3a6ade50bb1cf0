//! What options allow where there is no call frame information.

use super::caller::{FrameRegs, read_word};
use super::code::find_code;
use super::options::{Fallback, Options};
use super::resolve::is_after_call;
use crate::arch::Spec;
use crate::memory::Memory;
use crate::regs::Regs;
use crate::space::{Modules, Space};
use crate::stack::{Frame, FrameFlags, FrameSource, StopReason, TruncatedReason};

/// The most frames without unwind information between a frame and the JIT-compiled code that called it.
pub const MAX_BETWEEN: usize = 16;

/// A caller that was found without call frame information.
pub(super) struct Guess {
    pub(super) cfa: u64,
    pub(super) caller: FrameRegs,
    pub(super) source: FrameSource,
    pub(super) flags: FrameFlags,
}

impl Options {
    /// Whether a walk that would stop for this reason may continue by a guess.
    pub(super) fn may_guess(&self, stop: StopReason) -> bool {
        let StopReason::Truncated(reason) = stop else { return false };
        match reason {
            TruncatedReason::NoCfi | TruncatedReason::NoModule => {
                self.is_leaf_guessed || self.fallback != Fallback::None
            }
            TruncatedReason::NoSframe | TruncatedReason::ModuleUnavailable | TruncatedReason::BuildIdMismatch => {
                self.is_leaf_guessed || self.fallback == Fallback::FramePointer
            }
            _ => false,
        }
    }

    /// The caller of a frame without unwind information, if the options ask for a guess and there is a plausible one.
    /// `regs` are those of `frame`.
    pub(super) fn guess<M: Modules + ?Sized, Y: Memory>(
        &self,
        modules: &M,
        space: &Space,
        frame: &Frame,
        regs: &FrameRegs,
        memory: &Y,
    ) -> Option<Guess> {
        let spec = regs.regs.arch().spec();
        let mask = self.mask(spec);
        if frame.flags.is_instruction && self.is_leaf_guessed {
            let guess = guess_leaf(spec, mask, space, regs, memory);
            if guess.is_some() {
                return guess;
            }
        }
        let flags = FrameFlags::default();
        match self.fallback {
            Fallback::None => None,
            Fallback::Jit => {
                let flags = FrameFlags { fp_in_jit: true, ..flags };
                let follow = |regs: &FrameRegs| follow_frame_pointer(spec, mask, space, regs, memory, flags);
                let guess = follow(regs)?;
                is_of_jit(modules, space, frame, &guess, follow).then_some(guess)
            }
            Fallback::FramePointer => {
                let flags = FrameFlags { fp_fallback: true, ..flags };
                follow_frame_pointer(spec, mask, space, regs, memory, flags)
            }
        }
    }
}

/// Whether a frame without unwind information is JIT-compiled code, was called by it, or was reached from it, with
/// nothing but code without information in between: V8 contains code that its JIT compiler generated at build time.
fn is_of_jit<M: Modules + ?Sized>(
    modules: &M,
    space: &Space,
    frame: &Frame,
    guess: &Guess,
    follow: impl Fn(&FrameRegs) -> Option<Guess>,
) -> bool {
    let arch = guess.caller.regs.arch();
    let is_jit = |lookup| space.find(lookup).is_some_and(|mapping| mapping.executable && mapping.module.is_none());
    let is_sound = |address| is_after_call(modules, space, arch.spec(), address);
    let Some(mut address) = guess.caller.regs.ip().filter(|&address| is_sound(address)) else { return false };
    if frame.flags.fp_in_jit || is_jit(frame.lookup()) {
        return true;
    }
    let mut next = follow(&guess.caller);
    for _ in 0..MAX_BETWEEN {
        let lookup = address.wrapping_sub(1);
        if is_jit(lookup) {
            return true;
        }
        let has_row = find_code(modules, space, arch, lookup).is_ok_and(|code| code.module.has_row(code.svma));
        let caller = next.filter(|_| !has_row).and_then(|guess| Some((guess.caller.regs.ip()?, follow(&guess.caller))));
        match caller {
            Some((above, after)) if is_sound(above) => (address, next) = (above, after),
            _ => return false,
        }
    }
    false
}

/// Takes the return address from where the call put it.
pub(super) fn guess_leaf<Y: Memory>(
    spec: &'static Spec,
    mask: u64,
    space: &Space,
    frame: &FrameRegs,
    memory: &Y,
) -> Option<Guess> {
    let sp = frame.regs.get(spec.sp)?;
    let (address, cfa) = match spec.lr {
        Some(lr) => (frame.regs.get(lr)?, sp),
        None => (read_word(memory, spec, sp).ok()?, sp.checked_add(u64::from(spec.word_bytes))?),
    };
    let address = checked_return_address(space, address & mask)?;
    let mut caller = *frame;
    caller.regs.set(spec.ip, address);
    caller.regs.set(spec.sp, cfa);
    let flags = FrameFlags::default();
    Some(Guess { cfa, caller, source: FrameSource::Heuristic, flags })
}

/// Follows the frame pointer one step. All other registers are lost.
fn follow_frame_pointer<Y: Memory>(
    spec: &'static Spec,
    mask: u64,
    space: &Space,
    frame: &FrameRegs,
    memory: &Y,
    flags: FrameFlags,
) -> Option<Guess> {
    let word = u64::from(spec.word_bytes);
    let (sp, fp) = (frame.regs.get(spec.sp)?, frame.regs.get(spec.fp)?);
    if fp < sp || fp % word != 0 {
        return None;
    }
    let caller_fp = read_word(memory, spec, fp).ok()?;
    let address = checked_return_address(space, read_word(memory, spec, fp.checked_add(word)?).ok()? & mask)?;
    let cfa = fp.checked_add(2 * word)?;
    let mut regs = Regs::new(frame.regs.arch());
    regs.set(spec.ip, address);
    regs.set(spec.sp, cfa);
    regs.set(spec.fp, caller_fp);
    Some(Guess { cfa, caller: FrameRegs::new(regs), source: FrameSource::FramePointer, flags })
}

/// Returns `address` if it is after executable code.
fn checked_return_address(space: &Space, address: u64) -> Option<u64> {
    let mapping = space.find(address.checked_sub(1)?)?;
    mapping.executable.then_some(address)
}
