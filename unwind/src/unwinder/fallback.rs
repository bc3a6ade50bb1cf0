//! What is done, when asked for, where there is no call frame information.

use super::caller::{FrameRegs, read_word};
use super::options::{Fallback, Options};
use crate::arch::Spec;
use crate::memory::Memory;
use crate::regs::Regs;
use crate::space::Space;
use crate::stack::{FrameFlags, FrameSource, StopReason, TruncatedReason};

/// A caller that was found without call frame information.
pub(super) struct Guess {
    pub(super) cfa: u64,
    pub(super) caller: FrameRegs,
    pub(super) source: FrameSource,
    pub(super) flags: FrameFlags,
}

impl Options {
    /// Whether a walk that would stop for this reason may go on by a guess.
    pub(super) fn may_guess(&self, stop: StopReason) -> bool {
        let is_without_cfi = matches!(
            stop,
            StopReason::Truncated(
                TruncatedReason::NoCfi
                    | TruncatedReason::NoModule
                    | TruncatedReason::ModuleUnavailable
                    | TruncatedReason::BuildIdMismatch
            )
        );
        is_without_cfi && (self.is_leaf_guessed || self.fallback == Fallback::FramePointer)
    }

    /// The caller of a frame without information, where the options want one and a likely one is found.
    pub(super) fn guess<Y: Memory>(
        &self,
        spec: &'static Spec,
        space: &Space,
        frame: &FrameRegs,
        is_instruction: bool,
        memory: &Y,
    ) -> Option<Guess> {
        let mask = self.mask(spec);
        if is_instruction && self.is_leaf_guessed {
            let guess = guess_leaf(spec, mask, space, frame, memory);
            if guess.is_some() {
                return guess;
            }
        }
        match self.fallback {
            Fallback::None => None,
            Fallback::FramePointer => follow_frame_pointer(spec, mask, space, frame, memory),
        }
    }
}

/// Takes the return address from where a call has left it.
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
    let flags = FrameFlags { fp_fallback: true, ..FrameFlags::default() };
    Some(Guess { cfa, caller: FrameRegs::new(regs), source: FrameSource::FramePointer, flags })
}

/// A return address, if code may run there.
fn checked_return_address(space: &Space, address: u64) -> Option<u64> {
    let mapping = space.find(address.checked_sub(1)?)?;
    mapping.executable.then_some(address)
}
