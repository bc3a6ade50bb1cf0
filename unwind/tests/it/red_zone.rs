//! Registers whose slots lie below the stack pointer: saved in the red zone, or popped by an epilogue.

use fpprof_unwind::{
    BrokenReason, Chunk, Module, ModuleId, Modules, Root, Stack, StopReason, TruncatedReason, Unwinder,
};

use crate::build::{BIAS, Cfi, Process, RA, RBP, RBX, RSP, STACK, addresses, bytes, cfa, regs};

const COMPLETE: StopReason = StopReason::Complete(Root::UndefinedRa);
/// The sampled stack pointer: the memory starts with a red zone below it.
const SP: u64 = STACK + 128;

/// `saves` at 0x1000 saves registers in the red zone, `pops` at 0x1100 has popped them from 0x1108 on; their callers at
/// 0x2000 and 0x2100 need rbp and rbx.
fn process() -> Process {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::advance(4), cfa::saved(RBP, 16), cfa::saved(RBX, 24)])
        .fde(
            0x1100,
            0x20,
            &[
                cfa::def_cfa_offset(24),
                cfa::saved(RBP, 16),
                cfa::saved(RBX, 24),
                cfa::advance(8),
                cfa::remember(),
                cfa::def_cfa_offset(8),
                cfa::advance(8),
                cfa::restore_state(),
            ],
        )
        .fde(0x2000, 0x10, &[cfa::def_cfa(RBP, 16)])
        .fde(0x2100, 0x10, &[cfa::def_cfa(RBX, 16)])
        .fde(0x2200, 0x10, &[cfa::def_cfa_offset(24)])
        .fde(0x3000, 0x100, &[cfa::undefined(RA)]);
    Process::new(cfi.module())
}

/// Unwinds from `ip`; `is_kept` says whether rbp and rbx still have the caller's values. Memory starts `below` bytes
/// below sp; the slots hold the caller's values.
fn unwind(ip: u64, caller: u64, is_kept: bool, below: usize) -> (Vec<u64>, StopReason) {
    let mut words = vec![0xbad; 16];
    (words[15], words[14]) = (SP + 8, SP + 8); // rbp, rbx
    words.extend([BIAS + caller, 0, BIAS + 0x3001, BIAS + 0x3002]);
    let bytes = bytes(&words);
    let memory = Chunk { start: SP - below as u64, bytes: &bytes[128 - below..], stack_end: None, holes: &[] };
    let value = if is_kept { SP + 8 } else { 0x1234 };
    let mut regs = regs(ip, SP, value);
    regs.set(u16::from(RBX), value);
    let found = process().unwind(&regs, &memory);
    (addresses(&found), found.stop)
}

/// Check that a register saved in the red zone is read from there, whatever its current value.
#[test]
fn reads_what_was_saved_below_sp() {
    for caller in [0x2004, 0x2104] {
        assert_eq!(unwind(0x1008, caller, false, 128), (vec![0x1008, caller, 0x3001], COMPLETE));
        assert_eq!(unwind(0x1000, caller, true, 128), (vec![0x1000, caller, 0x3001], COMPLETE), "not saved yet");
    }
}

/// Check that a register popped by an epilogue is known, with or without memory below the stack pointer.
#[test]
fn knows_what_was_popped() {
    for (caller, below) in [(0x2004, 128), (0x2104, 128), (0x2004, 0), (0x2104, 0)] {
        assert_eq!(unwind(0x1108, caller, true, below), (vec![0x1108, caller, 0x3001], COMPLETE));
    }
}

/// Check that a register saved in a red zone that was not copied is unknown: a walk that needs it ends with that
/// reason, and one that does not continues.
#[test]
fn a_red_zone_that_was_not_copied_is_reported() {
    for caller in [0x2004, 0x2104] {
        let (frames, stop) = unwind(0x1008, caller, false, 0);
        assert_eq!((frames, stop.class(), stop.name()), (vec![0x1008, caller], "truncated", "red_zone"));
    }
    assert_eq!(unwind(0x1008, 0x2204, false, 0), (vec![0x1008, 0x2204, 0x3002], COMPLETE));
}

/// Check that nothing is read below the red zone, where signal handlers may write: the register was popped.
#[test]
fn reads_nothing_below_the_red_zone() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::saved(RBP, 16 + 128), cfa::saved(RBX, 16 + 128)])
        .fde(0x2000, 0x10, &[cfa::def_cfa(RBP, 16)])
        .fde(0x2100, 0x10, &[cfa::def_cfa(RBX, 16)])
        .fde(0x3000, 0x100, &[cfa::undefined(RA)]);
    let process = Process::new(cfi.module());
    for caller in [0x2004, 0x2104] {
        let mut words = vec![0xbad; 17];
        words.extend([BIAS + caller, 0, BIAS + 0x3001]);
        let bytes = bytes(&words);
        let memory = Chunk { start: SP - 136, bytes: &bytes, stack_end: None, holes: &[] };
        let mut regs = regs(0x1004, SP, SP + 8);
        regs.set(u16::from(RBX), SP + 8);
        let found = process.unwind(&regs, &memory);
        assert_eq!((addresses(&found), found.stop), (vec![0x1004, caller, 0x3001], COMPLETE));
    }
}

/// Check that a slot below the stack pointer is not read for a frame that has called: its callee has overwritten it.
#[test]
fn a_callee_overwrites_the_red_zone() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x10, &[cfa::def_cfa(RSP, 16)])
        .fde(0x1100, 0x10, &[cfa::saved(RBP, 16)])
        .fde(0x2000, 0x10, &[cfa::def_cfa(RBP, 16)])
        .fde(0x3000, 0x100, &[cfa::undefined(RA)]);
    let stack = bytes(&[0, BIAS + 0x1104, BIAS + 0x2004, 0, BIAS + 0x3001]);
    let memory = Chunk { start: STACK, bytes: &stack, stack_end: None, holes: &[] };
    let found = Process::new(cfi.module()).unwind(&regs(0x1004, STACK, STACK + 24), &memory);
    assert_eq!((addresses(&found), found.stop.name()), (vec![0x1004, 0x1104, 0x2004], "red_zone"));
}

/// A module with the given bytes before every return address.
struct EndingIn(Module, [u8; 5]);

impl Modules for EndingIn {
    fn module(&self, _: ModuleId) -> Result<&Module, TruncatedReason> {
        Ok(&self.0)
    }

    fn code(&self, _: ModuleId, _: u64, code: &mut [u8]) -> bool {
        code.iter_mut().rev().zip(self.1.iter().rev()).for_each(|(to, from)| *to = *from);
        true
    }
}

/// Check that a leaf's popped return address is found below the stack pointer if it follows a call, since a wrong row
/// could find anything there. Other frames are not searched.
#[test]
fn finds_a_popped_return_address() {
    const CALL: [u8; 5] = [0xe8, 0, 1, 0, 0];
    let stop_after = |code, ip| {
        let mut cfi = Cfi::eh_frame();
        cfi.fde(0x1000, 0x10, &[cfa::def_cfa(RSP, 0)]).fde(0x1100, 0x10, &[]).fde(0x3000, 0x10, &[cfa::undefined(RA)]);
        let module = EndingIn(cfi.module(), code);
        let words = bytes(&[BIAS + 0x3001, BIAS + 0x1001, BIAS + 0x3002]);
        let memory = Chunk { start: SP - 8, bytes: &words, stack_end: None, holes: &[] };
        let mut found = Stack::default();
        let space = Process::new(cfi.module()).space;
        Unwinder::default().unwind(&module, &space, &regs(ip, SP, 0), &memory, &mut found);
        (addresses(&found), found.stop)
    };
    let broken = StopReason::Broken(BrokenReason::CfaNotIncreasing);
    assert_eq!(stop_after(CALL, 0x1004), (vec![0x1004, 0x3001], COMPLETE));
    assert_eq!(stop_after([0x90; 5], 0x1004), (vec![0x1004], broken));
    assert_eq!(stop_after(CALL, 0x1104), (vec![0x1104, 0x1001], broken), "a caller has made its call");
}
